# SPDX-License-Identifier: Apache-2.0
"""The program that freezes a file system and thaws it again, whatever becomes of its caller.

Run by its path, as root, with nothing but the standard library::

    freeze_process.py MOUNT_POINT LIMIT_SEC

It answers on standard output, a line each, to what it reads from standard input::

    ready                   everything that may fail or take long is done; nothing is frozen
    freeze          ->      frozen SECONDS        the time that freezing took
    thaw            ->      thawed held           it was frozen from then until now
                            thawed lost REASON    it was not, or not by us
                            failed REASON         it was never frozen

The end of standard input counts as ``thaw``: a caller that is killed needs no more. A caller that
hangs is taken care of by the limit, and a holder that is killed by a second process, the timer,
which is there before anything is frozen and thaws when its partner is gone or the limit has passed.
While frozen neither of them opens or writes a file, starts a process, or needs memory that is not
its own already.
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
    """Hold one freeze; returns when nothing is frozen any more."""
    mount_point, limit_sec = arguments[0], float(arguments[1])
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    terminated = _terminations()
    try:
        volume = open_volume(mount_point)
    except OSError as error:
        return _fail(f'{mount_point} cannot be frozen: {error.strerror}')
    partner, timer_end = socket.socketpair()
    timer = os.fork()
    if timer == 0:
        partner.close()
        _be_timer(volume, timer_end, limit_sec)
    timer_end.close()
    _stay_alive()
    # What is written now need not be written while everybody waits.
    _LIBC.syncfs(volume)
    # The timer says that it is ready, too.
    if not partner.recv(1):
        return _fail('the timer did not start')
    try:
        return _serve(volume, partner, terminated, limit_sec)
    finally:
        # Dead before the caller may freeze again: a late thaw would hit that freeze.
        os.kill(timer, signal.SIGKILL)
        os.waitpid(timer, 0)


def open_volume(mount_point: str) -> int:
    """Open the file system at a mount point; one that this machine runs from is refused.

    :raises OSError: there is no such file system, or freezing it would stop this program
    """
    volume = os.open(mount_point, os.O_RDONLY | os.O_DIRECTORY)
    device = os.fstat(volume).st_dev
    if not os.path.ismount(mount_point) or device in (
        os.stat('/').st_dev,
        os.stat(__file__).st_dev,
        os.stat(sys.executable).st_dev,
    ):
        os.close(volume)
        raise OSError(errno.EINVAL, 'it is no volume of its own')
    return volume


def thaw(volume: int) -> bool:
    """Thaw and return whether it was frozen; a failure is no reason to leave it frozen."""
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
    _say('ready')
    if _wait({_STDIN: '', terminated: 'terminated'}, None) or _read_command() != 'freeze':
        # The caller changed its mind, or is gone.
        return 0
    began = time.monotonic()
    deadline = began + limit_sec
    partner.send(b'f')
    try:
        # Blocks writers first, then writes what is left. Cannot be broken off.
        fcntl.ioctl(volume, FIFREEZE, 0)
    except OSError as error:
        busy = error.errno == errno.EBUSY
        return _fail('somebody else has frozen it' if busy else error.strerror or str(error))
    try:
        _say(f'frozen {time.monotonic() - began:.6f}')
        lost = _wait(
            {
                _STDIN: '',
                partner.fileno(): 'the timer was killed',
                terminated: 'the holder was terminated',
            },
            deadline,
        )
    finally:
        was_frozen = thaw(volume)
    if not lost and not was_frozen:
        lost = 'somebody else thawed it'
    if not lost and _read_command() != 'thaw':
        lost = 'the caller is gone'
    _say(f'thawed lost {lost}' if lost else 'thawed held')
    return 0


def _be_timer(volume: int, partner: socket.socket, limit_sec: float) -> None:
    """Thaw when the partner is gone or the limit has passed; never returns."""
    # Who terminates both means the holder; the timer has to outlast it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # The caller sees the end of the holder by the end of its output.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (_STDIN, _STDOUT):
        os.dup2(null, standard)
    _stay_alive()
    partner.send(b'r')
    if partner.recv(1):
        deadline = time.monotonic() + limit_sec
        # Not frozen at the limit may mean not frozen yet, by a holder that was killed meanwhile.
        while _wait({partner.fileno(): ''}, deadline):
            if thaw(volume):
                os._exit(0)
            deadline = time.monotonic() + _RETRY_SEC
        thaw(volume)
    os._exit(0)


def _wait(endings: dict[int, str], deadline: float | None) -> str:
    """Wait for one of the descriptors and return what it stands for, or that the limit passed."""
    remaining = None if deadline is None else max(deadline - time.monotonic(), 0)
    readable = select.select(list(endings), [], [], remaining)[0]
    # Past the limit nothing counts that may have come later than the timer's thaw.
    if not readable or (deadline is not None and time.monotonic() >= deadline):
        return 'the limit passed'
    return max(endings[descriptor] for descriptor in readable)


def _terminations() -> int:
    """Return a descriptor that becomes readable when this process is asked to end."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(writable)
    return readable


def _stay_alive() -> None:
    """Keep this process in memory: reclaiming some may have to wait for the frozen file system."""
    _LIBC.mlockall(_MCL_CURRENT_AND_FUTURE)
    # A container may forbid it; the partner is left then.
    with (
        contextlib.suppress(OSError),
        open('/proc/self/oom_score_adj', 'w', encoding='ascii') as score,
    ):
        score.write('-1000')


def _read_command() -> str:
    """Return what the caller wants; nothing when it is gone."""
    try:
        return os.read(_STDIN, _COMMAND_BYTES).decode().strip()
    except OSError:
        return ''


def _say(line: str) -> None:
    # A caller that is gone also ended our input.
    with contextlib.suppress(OSError):
        os.write(_STDOUT, f'{line}\n'.encode())


def _fail(reason: str) -> int:
    _say(f'failed {reason}')
    return 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
