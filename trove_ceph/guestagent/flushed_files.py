# SPDX-License-Identifier: Apache-2.0
"""Have files outlive a crash of the guest, such as those that make a replica refuse writes.

What Trove writes is in the page cache for up to half a minute. After a crash a new file may be
empty, and one that was removed before it may be gone all the same. If the agent needs sudo, Trove
also leaves a copy of each file in the directory for temporary files, with its passwords.
"""

import os

from trove_ceph import exceptions
from trove_ceph.guestagent import replacement_process
from trove_ceph.host import file_replacement


def replace(
    path: str,
    content: str,
    owner: tuple[int, int] | None = None,
    mode: int = 0o600,
    needs_root: bool = True,
) -> None:
    """Replace or create a file: after a crash it has all of its old content or of the new one.

    :param owner: uid and gid; None: those of the file that is replaced, with its mode, or root
    :param mode: of a file that is new, or whose owner is given
    :param needs_root: an agent that is not root has it written by sudo
    :raises StorageCommandError: the file is the old one
    """
    file = file_replacement.File(path, content, mode=mode, owner=owner)
    replacement = file_replacement.Replacement(None, '', (file,))
    if needs_root and os.geteuid() != 0:
        replacement_process.ReplacementProcess().replace(replacement)
        return
    try:
        file_replacement.replace(replacement)
    except OSError as error:
        raise exceptions.StorageCommandError(f'{path}: {error.strerror}') from error


def flush_directory(directory: str) -> None:
    """Return when the removal of names from a directory, if it exists, is on the disk."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except PermissionError:
        # An agent that is not root may not open it.
        os.sync()
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
