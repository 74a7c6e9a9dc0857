# SPDX-License-Identifier: Apache-2.0
"""What an interface promises, as test cases for each of its implementations to run."""
