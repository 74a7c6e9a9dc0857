# SPDX-License-Identifier: Apache-2.0
"""What runs in trove-conductor, whose option ``conductor_manager`` names :mod:`manager`."""
