# SPDX-License-Identifier: Apache-2.0
"""Errors for the user of the lab."""


class ProfileError(Exception):
    """The plan cannot be made or applied; the message says what to do about it."""
