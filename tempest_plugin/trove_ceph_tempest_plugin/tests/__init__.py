# SPDX-License-Identifier: Apache-2.0
"""What the scenarios are made of, and the scenarios."""
