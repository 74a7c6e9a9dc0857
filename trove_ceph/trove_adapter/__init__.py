# SPDX-License-Identifier: Apache-2.0
"""Everything that touches the private parts of Trove: tables, messages, overridden methods.

A new version of Trove is met here and nowhere else; each private thing that is used has a test.
"""
