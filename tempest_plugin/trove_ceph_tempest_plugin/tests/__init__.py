# SPDX-License-Identifier: Apache-2.0
"""The scenarios and their base classes."""
