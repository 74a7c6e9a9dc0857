# SPDX-License-Identifier: Apache-2.0
"""What is done to databases, each operation as a list of steps."""
