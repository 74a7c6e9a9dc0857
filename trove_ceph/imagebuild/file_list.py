# SPDX-License-Identifier: Apache-2.0
"""Lists the files of a root directory, so that two builds can be compared by ``diff``."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from trove_ceph.imagebuild import cache

# docker gives its layers random names; extlinux records on which blocks its file lies.
LEFT_OUT = ("var/lib/docker", "var/lib/containerd", "boot/extlinux/ldlinux.sys", "lost+found")


def render(root: Path) -> str:
    """Return one line for each file below a root: mode, owner, SHA-256 or target, and name.

    The lines are in the order of the names. Files of :data:`LEFT_OUT` are not listed.
    """
    return "".join(f"{line}\n" for line in _lines(root, ""))


def _lines(root: Path, within: str) -> Iterator[str]:
    for name in sorted(os.listdir(root / within)):
        relative = f"{within}/{name}" if within else name
        if relative in LEFT_OUT:
            continue
        path = root / relative
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            content = f"-> {os.readlink(path)}"
        elif stat.S_ISREG(status.st_mode):
            content = cache.file_hash(path)
        else:
            content = "-"
        yield f"{status.st_mode:06o} {status.st_uid}:{status.st_gid} {content} {relative}"
        if stat.S_ISDIR(status.st_mode):
            yield from _lines(root, relative)
