# SPDX-License-Identifier: Apache-2.0
"""Errors that the main job shows as one plain message."""


class JobError(Exception):
    """The database could not be created, or it does not work as expected."""
