# SPDX-License-Identifier: Apache-2.0
"""Every error this package raises on purpose, split by what a caller does about it."""


class TroveCephError(Exception):
    """The root: catch this to handle any failure of this package.

    The first 255 characters of the message are what Trove stores as an instance's fault, so
    messages name the object first and state observed against expected values.
    """


class FlavorTooSmallError(TroveCephError):
    """The tenant must choose a larger flavor; retrying with the same one cannot succeed."""


class VolumeTooSmallError(TroveCephError):
    """The tenant must choose a larger volume; retrying with the same one cannot succeed."""


class VolumeNotReadyError(TroveCephError):
    """The data volume is not there, or not yet as large as announced; a later retry may succeed."""


class VolumeHasDataError(TroveCephError):
    """The data volume holds something that must not be overwritten; an operator has to look."""


class StorageCommandError(TroveCephError):
    """A file system or block device command failed or timed out on the host."""
