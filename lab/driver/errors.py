# SPDX-License-Identifier: Apache-2.0
"""Errors that the driver shows to its user as one plain message."""


class LabError(Exception):
    """Something the user can act on; the message says what and how."""
