# SPDX-License-Identifier: Apache-2.0
"""The operations on databases, each a list of steps."""
