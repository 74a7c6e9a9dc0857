# SPDX-License-Identifier: Apache-2.0
"""A program that freezes a file system, and thaws it even if its caller dies.

Run by its path, as root, with only the standard library::

    freeze_process.py MOUNT_POINT LIMIT_SEC

It reads commands from standard input and answers on standard output, one line each::

    ready                   everything that may fail or take long is done; nothing is frozen
    freeze          ->      frozen SECONDS        the time that freezing took
    thaw            ->      thawed held           it was frozen until now without interruption
                            thawed lost REASON    it was thawed earlier, or by another process
                            failed REASON         it was never frozen

The end of standard input means ``thaw``, so a killed caller leaves nothing frozen. The time limit
covers a caller that hangs. A second process, the timer, covers this process: it starts before
anything is frozen, and thaws when this process ends or the limit has passed. While the file system
is frozen, neither process opens or writes a file, starts a process, or allocates memory.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import sys
import time

# linux/fs.h: _IOWR('X', 119, int) and _IOWR('X', 120, int)
FIFREEZE = 0xC0045877
FITHAW = 0xC0045878

_MCL_CURRENT_AND_FUTURE = 1 | 2
# A freeze that is still under way cannot be thawed yet.
_RETRY_SEC = 0.1
_COMMAND_BYTES = 64
_STDIN, _STDOUT = 0, 1

_LIBC = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> int:
    """Freeze once; return when the file system is thawed."""
    mount_point, limit_sec = arguments[0], float(arguments[1])
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    terminated = _open_sigterm_pipe()
    try:
        volume = open_volume(mount_point)
    except OSError as error:
        return _fail(f'{mount_point} cannot be frozen: {error.strerror}')
    partner, timer_end = socket.socketpair()
    timer = os.fork()
    if timer == 0:
        partner.close()
        _run_timer(volume, timer_end, limit_sec)
    timer_end.close()
    _stay_in_memory()
    # Flush now, so that the freeze, which blocks all writers, has less to flush.
    _LIBC.syncfs(volume)
    # The timer reports that it is ready, too.
    if not partner.recv(1):
        return _fail('the timer did not start')
    try:
        return _serve(volume, partner, terminated, limit_sec)
    finally:
        # The timer must be dead before the caller freezes again, or it might thaw that freeze.
        os.kill(timer, signal.SIGKILL)
        os.waitpid(timer, 0)


def open_volume(mount_point: str) -> int:
    """Open the file system at a mount point, unless this machine runs from it.

    :raises OSError: nothing is mounted there, or freezing it would stop this program
    """
    volume = os.open(mount_point, os.O_RDONLY | os.O_DIRECTORY)
    device = os.fstat(volume).st_dev
    if not os.path.ismount(mount_point) or device in (
        os.stat('/').st_dev,
        os.stat(__file__).st_dev,
        os.stat(sys.executable).st_dev,
    ):
        os.close(volume)
        raise OSError(errno.EINVAL, 'it is not a separate volume')
    return volume


def thaw(volume: int) -> bool:
    """Thaw the file system, retrying after errors, and return whether it was frozen."""
    while True:
        try:
            fcntl.ioctl(volume, FITHAW, 0)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return False
            time.sleep(_RETRY_SEC)
        else:
            return True


def _serve(volume: int, partner: socket.socket, terminated: int, limit_sec: float) -> int:
    _report('ready')
    if _wait({_STDIN: '', terminated: 'terminated'}, None) or _read_command() != 'freeze':
        # The caller canceled, or has ended.
        return 0
    began = time.monotonic()
    deadline = began + limit_sec
    partner.send(b'f')
    try:
        # Blocks writers, then flushes dirty data. It cannot be interrupted.
        fcntl.ioctl(volume, FIFREEZE, 0)
    except OSError as error:
        busy = error.errno == errno.EBUSY
        return _fail('another process has frozen it' if busy else error.strerror or str(error))
    try:
        _report(f'frozen {time.monotonic() - began:.6f}')
        lost = _wait(
            {
                _STDIN: '',
                partner.fileno(): 'the timer was killed',
                terminated: 'the freeze process was terminated',
            },
            deadline,
        )
    finally:
        was_frozen = thaw(volume)
    if not lost and not was_frozen:
        lost = 'another process thawed it'
    if not lost and _read_command() != 'thaw':
        lost = 'the caller has ended'
    _report(f'thawed lost {lost}' if lost else 'thawed held')
    return 0


def _run_timer(volume: int, partner: socket.socket, limit_sec: float) -> None:
    """Thaw when the partner has ended or the limit has passed; never return."""
    # A signal to both is meant for the partner; the timer must outlive it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # The caller detects the end of the partner by the end of its output.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (_STDIN, _STDOUT):
        os.dup2(null, standard)
    _stay_in_memory()
    partner.send(b'r')
    if partner.recv(1):
        deadline = time.monotonic() + limit_sec
        # A killed partner may still be freezing in the kernel, so retry until it is frozen.
        while _wait({partner.fileno(): ''}, deadline):
            if thaw(volume):
                os._exit(0)
            deadline = time.monotonic() + _RETRY_SEC
        thaw(volume)
    os._exit(0)


def _wait(reasons: dict[int, str], deadline: float | None) -> str:
    """Wait for one of the descriptors and return its reason, or that the limit passed."""
    remaining = None if deadline is None else max(deadline - time.monotonic(), 0)
    readable = select.select(list(reasons), [], [], remaining)[0]
    # After the limit the timer may have thawed first, so no command counts any more.
    if not readable or (deadline is not None and time.monotonic() >= deadline):
        return 'the limit passed'
    return max(reasons[descriptor] for descriptor in readable)


def _open_sigterm_pipe() -> int:
    """Return a descriptor that becomes readable when this process receives SIGTERM."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(writable)
    return readable


def _stay_in_memory() -> None:
    """Lock this process in memory: page reclaim may have to wait for the frozen file system."""
    _LIBC.mlockall(_MCL_CURRENT_AND_FUTURE)
    # A container may forbid this; if one process is killed, the other still thaws.
    with (
        contextlib.suppress(OSError),
        open('/proc/self/oom_score_adj', 'w', encoding='ascii') as score,
    ):
        score.write('-1000')


def _read_command() -> str:
    """Return the caller's command; empty when the caller has ended."""
    try:
        return os.read(_STDIN, _COMMAND_BYTES).decode().strip()
    except OSError:
        return ''


def _report(line: str) -> None:
    # A caller that has ended has closed our input too.
    with contextlib.suppress(OSError):
        os.write(_STDOUT, f'{line}\n'.encode())


def _fail(reason: str) -> int:
    _report(f'failed {reason}')
    return 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
