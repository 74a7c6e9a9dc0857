# SPDX-License-Identifier: Apache-2.0
"""Errors that the driver shows to its user as one plain message."""


class LabError(Exception):
    """A failure that the user can fix; the message says what failed and what to do."""
