# SPDX-License-Identifier: Apache-2.0
"""Console entry points."""
