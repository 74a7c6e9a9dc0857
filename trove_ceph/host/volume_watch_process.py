# SPDX-License-Identifier: Apache-2.0
"""A program that kills MySQL when this machine is cut off from its data volume.

Fencing stops the writes of a server that was given up, but the server may still answer its clients
from its memory, with rows that are older and older. So a small durable write to the volume, every
few seconds, has to succeed.

Run by its path, as root, with only the standard library::

    volume_watch_process.py MOUNT_POINT LIMIT_SEC

It prints lines, and ends with its standard input::

    watching            the first write has succeeded
    lost REASON         the volume is lost; all mysqld processes on it were killed
    back                the volume can be written again
    failed REASON       the volume is not watched; the process has ended

The volume is lost when writes fail again and again with an error of the device, or when one hangs
for the limit. A false alarm would take a healthy database down, so only what proves a loss counts:

* The time counts only while ``fdatasync`` runs, which writes one allocated block and flushes the
  disk. What else blocks writers, such as a freeze of the file system, a full log or a full volume,
  blocks the ``write`` before it.
* A late tick counts as one that was in time. This machine was suspended or overloaded then, and the
  hypervisor may have had no chance to answer.
* Other errors, such as a full volume, do not count.

One process writes. It cannot be killed while it waits for the device in the kernel. The other one
watches it, and touches no file after its start. It finds the servers in ``/proc``, so that it needs
neither docker nor the guest agent, which may hang, too. It kills them without docker's knowledge,
so docker starts them again. A server that starts has to read and write its volume: it serves only
once the volume is back.
"""

import contextlib
import ctypes
import errno
import os
import select
import signal
import sys
import time

#: On the volume.
FILE_NAME = '.volume-watch'
#: Seconds between the end of a write and the next one.
INTERVAL_SEC = 5.0
#: Seconds after a write that failed.
RETRY_SEC = 1.0
#: So many failures in a row are a loss.
FAILURES = 3
TICK_SEC = 1.0

_LOST_ERRORS = (errno.EIO, errno.EROFS)
_SERVER = 'mysqld'
_BLOCK_BYTES = 4096
_PR_SET_PDEATHSIG = 1
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_STDIN, _STDOUT, _STDERR = 0, 1, 2

# What the writer reports, one byte each. FAILED_BASE plus the number of an error comes above.
WRITING, SYNCING, WRITTEN = 0, 1, 2
FAILED_BASE = 64

_LIBC = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Decide from the reports of the writer whether the volume is lost.

    :param limit_sec: seconds that a write may hang
    """

    def __init__(self, limit_sec: float):
        self._limit_sec = limit_sec
        self._is_syncing = False
        self._hung_sec = 0.0
        self._failures = 0
        self._is_lost = False
        self._has_written = False

    @property
    def is_syncing(self) -> bool:
        """Whether time counts."""
        return self._is_syncing

    def note(self, report: int) -> str | None:
        """Note a report of the writer, and return what happened, as the program prints it."""
        self._is_syncing = report == SYNCING
        self._hung_sec = 0.0
        if report == WRITTEN:
            self._failures = 0
            return self._note_success()
        if report >= FAILED_BASE:
            return self._note_failure(report - FAILED_BASE)
        return None

    def tick(self, elapsed_sec: float) -> str | None:
        """Note that time has passed, and return what happened."""
        if not self._is_syncing:
            return None
        self._hung_sec += min(elapsed_sec, TICK_SEC)
        if self._hung_sec < self._limit_sec:
            return None
        return self._lose(f'a write has not ended after {self._hung_sec:.0f} s')

    def _note_success(self) -> str | None:
        if self._is_lost:
            self._is_lost = False
            return 'back'
        if not self._has_written:
            self._has_written = True
            return 'watching'
        return None

    def _note_failure(self, number: int) -> str | None:
        if number not in _LOST_ERRORS:
            self._failures = 0
            return None
        self._failures += 1
        if self._failures < FAILURES:
            return None
        return self._lose(f'{self._failures} writes failed: {os.strerror(number)}')

    def _lose(self, reason: str) -> str | None:
        if self._is_lost:
            return None
        self._is_lost = True
        return f'lost {reason}'


def main(arguments: list[str]) -> int:
    """Watch until the standard input ends."""
    mount_point, limit_sec = arguments[0], float(arguments[1])
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    try:
        device = os.stat(mount_point).st_dev
        if not os.path.ismount(mount_point):
            return _fail(f'{mount_point} is not mounted')
    except OSError as error:
        return _fail(f'{mount_point} cannot be watched: {error.strerror}')
    readable, writable = os.pipe()
    writer = os.fork()
    if writer == 0:
        os.close(readable)
        _write_for_ever(os.path.join(mount_point, FILE_NAME), device, writable)
    os.close(writable)
    # The root disk may be lost as well, and pages could not be read from it.
    _LIBC.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT)
    try:
        return _watch(Watch(limit_sec), readable, device)
    finally:
        os.kill(writer, signal.SIGKILL)
        # A caller that unmounts the volume next waits for the end of this process.
        os.waitpid(writer, 0)


def _watch(watch: Watch, reports: int, device: int) -> int:
    ticked = time.monotonic()
    while True:
        timeout = TICK_SEC if watch.is_syncing else None
        ready = select.select([_STDIN, reports], [], [], timeout)[0]
        now = time.monotonic()
        if _STDIN in ready and not os.read(_STDIN, 1):
            return 0
        if reports in ready:
            received = os.read(reports, 1)
            if not received:
                return _fail('the process that writes has ended')
            happened = watch.note(received[0])
        else:
            happened = watch.tick(now - ticked)
        ticked = now
        if happened:
            if happened.startswith('lost '):
                killed = kill_servers(device)
                happened += f'; killed {_SERVER}, process {", ".join(map(str, killed)) or "none"}'
            _report(happened)


def kill_servers(device: int) -> list[int]:
    """Kill all servers that have a file system mounted, and return their process ids.

    :param device: number of the block device of the file system
    """
    killed = []
    for pid in [int(name) for name in os.listdir('/proc') if name.isdigit()]:
        # A process may have ended.
        with contextlib.suppress(OSError):
            if _is_server(pid, f'{os.major(device)}:{os.minor(device)}'):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
    return killed


def _is_server(pid: int, device: str) -> bool:
    # Each read asks the kernel only, never the file system.
    with open(f'/proc/{pid}/comm', encoding='utf-8', errors='replace') as file:
        if file.read().strip() != _SERVER:
            return False
    with open(f'/proc/{pid}/mountinfo', encoding='utf-8', errors='replace') as file:
        return any(line.split()[2] == device for line in file)


def _write_for_ever(path: str, device: int, reports: int) -> None:
    """Write again and again, and report it; never return."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The caller detects the end of the partner by the end of its output.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (_STDIN, _STDOUT):
        os.dup2(null, standard)
    descriptor = None
    while True:
        pause_sec = INTERVAL_SEC
        try:
            _tell(reports, WRITING)
            if descriptor is None:
                descriptor = _open(path, device)
            os.pwrite(descriptor, _block(), 0)
            _tell(reports, SYNCING)
            os.fdatasync(descriptor)
            _tell(reports, WRITTEN)
        except OSError as error:
            pause_sec = RETRY_SEC
            _tell(reports, FAILED_BASE + (error.errno or 0))
        time.sleep(pause_sec)


def _open(path: str, device: int) -> int:
    """Open a file whose block is allocated; it stays open, so that its inode stays in memory."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if os.fstat(descriptor).st_dev != device:
            raise OSError(errno.ENODEV, 'the volume is not mounted any more')
        # Nothing waits for the disk here, where the time would not count.
        os.posix_fallocate(descriptor, 0, _BLOCK_BYTES)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _block() -> bytes:
    """Return the content of the file: the time, for people."""
    return time.strftime('%Y-%m-%dT%H:%M:%SZ\n', time.gmtime()).encode().ljust(_BLOCK_BYTES, b'\n')


def _tell(reports: int, report: int) -> None:
    try:
        os.write(reports, bytes([report]))
    except BrokenPipeError:
        os._exit(0)


def _report(line: str) -> None:
    """Print a line, also to the journal: the caller may hang."""
    for output in (_STDOUT, _STDERR):
        with contextlib.suppress(OSError):
            os.write(output, f'{line}\n'.encode())


def _fail(reason: str) -> int:
    _report(f'failed {reason}')
    return 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
