# SPDX-License-Identifier: Apache-2.0
"""Installations of mysqld: a root file system to enter, or a program on this host."""

import contextlib
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from trove_ceph import exceptions
from trove_ceph.host import commands

#: Name of Trove's data directory on the volume that is mounted at /var/lib/mysql.
DATA = 'data'
_ROOTFS_KIND = 'mysql-rootfs'
_USER = 'mysql'

# The bind mounts come first, because the volume may be below a mount point that is unmounted later.
# All other file systems are unmounted, because the new namespace has a copy of every mount: the
# device of another sandbox could not be released while this server runs. The server gets the
# standard device nodes only.
_ENTER = """
mount --bind "$ROOTFS" "$ROOTFS"
mount -o remount,bind,ro,nosuid "$ROOTFS"
mount --bind "$VOLUME" "$ROOTFS/var/lib/mysql"
mount --bind "$RUN" "$ROOTFS/run/mysqld"
mount -t tmpfs -o mode=755,size=64k tmpfs "$ROOTFS/dev"
for device in null zero full random urandom; do
    : > "$ROOTFS/dev/$device"
    mount --bind "/dev/$device" "$ROOTFS/dev/$device"
done
mount -t proc proc "$ROOTFS/proc"
mount -t tmpfs -o "nosuid,nodev,size=50%" tmpfs "$ROOTFS/tmp"
for point in $(cut -d ' ' -f 5 /proc/self/mountinfo); do
    case "$ROOTFS/" in "${point%/}/"*) continue ;; esac
    case "$point" in "$ROOTFS"/*) continue ;; esac
    umount --lazy "$point" 2>/dev/null || :
done
exec chroot "$ROOTFS" "$@"
"""


class Installation(Protocol):
    """How to run mysqld with a volume and a directory for its socket and log."""

    def paths(self, volume: Path, run: Path) -> tuple[str, str]:
        """Return the paths of the data directory and of ``run`` as the server sees them."""

    def user(self) -> tuple[str, int, int]:
        """Return the name, user id and group id under which the server runs."""

    def spawn(
        self,
        options: Sequence[str],
        volume: Path,
        run: Path,
        environment: Mapping[str, str],
        console: IO[bytes],
    ) -> subprocess.Popen:
        """Start mysqld in a new session; the pid of the process is that of the server."""

    def disclose(self) -> dict[str, str]:
        """Return what identifies this installation in results."""


class Rootfs:
    """A root file system, such as that of a container image, with mysqld in its PATH.

    Each server has its own mount namespace, where its volume is at /var/lib/mysql, as in a guest
    (binlog.index may have absolute paths). The shared root file system is not changed. The mounts
    disappear with the process. Requires root.

    mysqld starts as root, switches to the user mysql, and is not isolated from the host, so use it
    for trusted data only.
    """

    def __init__(self, path: Path):
        self._path = path.resolve()

    def paths(self, volume: Path, run: Path) -> tuple[str, str]:
        return f'/var/lib/mysql/{DATA}', '/run/mysqld'

    def user(self) -> tuple[str, int, int]:
        passwd = self._path / 'etc' / 'passwd'
        for line in passwd.read_text().splitlines():
            fields = line.split(':')
            if fields[0] == _USER:
                return _USER, int(fields[2]), int(fields[3])
        raise exceptions.ServerFailedError(f'{passwd}: has no user {_USER}')

    def spawn(
        self,
        options: Sequence[str],
        volume: Path,
        run: Path,
        environment: Mapping[str, str],
        console: IO[bytes],
    ) -> subprocess.Popen:
        variables = {
            'ROOTFS': str(self._path),
            'VOLUME': str(volume),
            'RUN': str(run),
            # The host's TMPDIR does not exist in the root file system.
            'TMPDIR': '/tmp',
        }
        enter = ['unshare', '--mount', '--propagation', 'private']
        words = [*enter, 'sh', '-ec', _ENTER, 'sh', 'mysqld', *options]
        return _spawn(words, {**environment, **variables}, console)

    def disclose(self) -> dict[str, str]:
        return {'rootfs': self._path.parent.name, 'version': self._version()}

    def _version(self) -> str:
        return commands.run('chroot', self._path, 'mysqld', '--version')


class InPlace:
    """The mysqld in the PATH of this process, which runs in a root file system already.

    :param ids: user id and group id of the server; None: those of this process
    """

    def __init__(self, ids: tuple[int, int] | None = None):
        self._ids = ids

    def paths(self, volume: Path, run: Path) -> tuple[str, str]:
        return str(volume / DATA), str(run)

    def user(self) -> tuple[str, int, int]:
        uid, gid = self._ids or (os.geteuid(), os.getegid())
        return str(uid), uid, gid

    def spawn(
        self,
        options: Sequence[str],
        volume: Path,
        run: Path,
        environment: Mapping[str, str],
        console: IO[bytes],
    ) -> subprocess.Popen:
        return _spawn(['mysqld', *options], environment, console, self._ids)

    def disclose(self) -> dict[str, str]:
        return {'version': commands.run('mysqld', '--no-defaults', '--version')}


class HostBinary:
    """A mysqld program on this host; if root starts it, it runs as the user mysql if one exists."""

    def __init__(self, path: Path):
        self._path = path.resolve()

    def paths(self, volume: Path, run: Path) -> tuple[str, str]:
        return str(volume / DATA), str(run)

    def user(self) -> tuple[str, int, int]:
        me = pwd.getpwuid(os.geteuid())
        if me.pw_uid == 0:
            with contextlib.suppress(KeyError):
                me = pwd.getpwnam(_USER)
        return me.pw_name, me.pw_uid, me.pw_gid

    def spawn(
        self,
        options: Sequence[str],
        volume: Path,
        run: Path,
        environment: Mapping[str, str],
        console: IO[bytes],
    ) -> subprocess.Popen:
        return _spawn([str(self._path), *options], environment, console)

    def disclose(self) -> dict[str, str]:
        return {
            'binary': str(self._path),
            'version': commands.run(self._path, '--no-defaults', '--version'),
        }


def find_newest_rootfs(cache: Path) -> Path | None:
    """Return the MySQL root file system that was built or used last; None: the cache has none."""
    found = [path for path in cache.glob(f'{_ROOTFS_KIND}-*/rootfs') if path.is_dir()]
    return max(found, key=lambda path: path.parent.stat().st_mtime, default=None)


def _spawn(
    words: Sequence[str],
    environment: Mapping[str, str],
    console: IO[bytes],
    ids: tuple[int, int] | None = None,
) -> subprocess.Popen:
    uid, gid = ids or (None, None)
    try:
        return subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
            user=uid,
            group=gid,
            extra_groups=[] if ids else None,
        )
    except OSError as error:
        raise exceptions.ServerFailedError(f'{words[0]} cannot be run: {error}') from error
