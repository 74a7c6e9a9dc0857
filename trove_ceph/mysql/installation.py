# SPDX-License-Identifier: Apache-2.0
"""Where a mysqld comes from: a root file system to enter, or a program on this host."""

import contextlib
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from trove_ceph import exceptions
from trove_ceph.host import commands, confinement

#: Trove's place for the data directory below what it mounts at /var/lib/mysql.
DATA = 'data'
_ROOTFS_KIND = 'mysql-rootfs'
_USER = 'mysql'

# The binds come first, since the volume may be mounted at a place that is unmounted after. What
# does not belong to the server is unmounted, because a namespace holds all that was mounted when it
# was made: the device of another sandbox could not be given back while this server runs. Of devices
# it sees those that everybody may use.
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
mount -t tmpfs -o "nosuid,nodev,size=${TMP_SIZE:-50%}" tmpfs "$ROOTFS/tmp"
for point in $(cut -d ' ' -f 5 /proc/self/mountinfo); do
    case "$ROOTFS/" in "${point%/}/"*) continue ;; esac
    case "$point" in "$ROOTFS"/*) continue ;; esac
    umount --lazy "$point" 2>/dev/null || :
done
exec chroot $IDENTITY "$ROOTFS" "$@"
"""


class Installation(Protocol):
    """How to run mysqld with a volume and a directory for its socket and log."""

    def places(self, volume: Path, run: Path) -> tuple[str, str]:
        """Return the data directory and ``run`` as the server sees them."""

    def user(self) -> tuple[str, int, int]:
        """Return the name, user id and group id that the server takes on."""

    def spawn(
        self,
        options: Sequence[str],
        volume: Path,
        run: Path,
        environment: Mapping[str, str],
        console: IO[bytes],
    ) -> subprocess.Popen:
        """Start mysqld in a session of its own; the process's pid is the server's."""

    def disclose(self) -> dict[str, str]:
        """Return what tells this installation from others."""


class Rootfs:
    """A root file system, such as a container's, with mysqld in its PATH.

    Each server has a mount namespace of its own: inside it sees its volume at /var/lib/mysql, the
    same path as in a guest (binlog.index may hold absolute paths), and the shared root file system
    stays untouched. The mounts go with the process. Needs root.

    :param confined: what the server may be and take; None lets it start as root, take on the user
        mysql, and have all of the host
    """

    def __init__(self, path: Path, confined: confinement.Confinement | None = None):
        self._path = path.resolve()
        self._confined = confined

    def places(self, volume: Path, run: Path) -> tuple[str, str]:
        return f'/var/lib/mysql/{DATA}', '/run/mysqld'

    def user(self) -> tuple[str, int, int]:
        if self._confined:
            return str(self._confined.uid), self._confined.uid, self._confined.gid
        passwd = self._path / 'etc' / 'passwd'
        for line in passwd.read_text().splitlines():
            fields = line.split(':')
            if fields[0] == _USER:
                return _USER, int(fields[2]), int(fields[3])
        raise exceptions.ServerFailedError(f'there is no user {_USER} in {passwd}')

    def spawn(
        self,
        options: Sequence[str],
        volume: Path,
        run: Path,
        environment: Mapping[str, str],
        console: IO[bytes],
    ) -> subprocess.Popen:
        places = {
            'ROOTFS': str(self._path),
            'VOLUME': str(volume),
            'RUN': str(run),
            # Inside, there is no directory of ours for temporary files.
            'TMPDIR': '/tmp',
            'IDENTITY': '',
        }
        enter = ['unshare', '--mount', '--propagation', 'private']
        if self._confined:
            enter = [*self._confined.prefix(), *enter, *self._confined.name_spaces()]
            places |= self._confined.environment()
        words = [*enter, 'sh', '-ec', _ENTER, 'sh', 'mysqld', *options]
        return _spawn(words, {**environment, **places}, console)

    def disclose(self) -> dict[str, str]:
        return {'rootfs': self._path.parent.name, 'version': self._version()}

    def _version(self) -> str:
        return commands.run('chroot', self._path, 'mysqld', '--version')


class HostBinary:
    """A mysqld program on this host; started by root, it takes on the user mysql if there is."""

    def __init__(self, path: Path):
        self._path = path.resolve()

    def places(self, volume: Path, run: Path) -> tuple[str, str]:
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
    """Return the MySQL root file system that was built or used last, if the cache holds any."""
    found = [path for path in cache.glob(f'{_ROOTFS_KIND}-*/rootfs') if path.is_dir()]
    return max(found, key=lambda path: path.parent.stat().st_mtime, default=None)


def _spawn(
    words: Sequence[str], environment: Mapping[str, str], console: IO[bytes]
) -> subprocess.Popen:
    try:
        return subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
        )
    except OSError as error:
        raise exceptions.ServerFailedError(f'{words[0]} cannot be run: {error}') from error
