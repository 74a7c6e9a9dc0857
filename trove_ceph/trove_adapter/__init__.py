# SPDX-License-Identifier: Apache-2.0
"""Everything that uses private parts of Trove: its tables, messages and overridden methods.

An upgrade of Trove changes this package only. Each private part that is used has a test.
"""
