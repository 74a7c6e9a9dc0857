# SPDX-License-Identifier: Apache-2.0
"""Errors that the main job shows as one plain message."""


class JobError(Exception):
    """The database could not be made or does not do what it should."""
