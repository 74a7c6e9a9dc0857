# SPDX-License-Identifier: Apache-2.0
"""The driver behind ``make lab`` and its companions.

It runs before anything is installed, so it uses only the standard library.
"""
