# SPDX-License-Identifier: Apache-2.0
"""Identify, wait for and terminate processes of this host, not only children."""

import contextlib
import os
import select
import signal
from pathlib import Path

import psutil

PROC = Path('/proc')


def identity(pid: int) -> str:
    """Return a name of a process that differs if its pid is reused; empty if it has ended.

    The name includes the clock ticks from boot to the start of the process, field 22 of
    /proc/PID/stat. psutil converts them to wall clock time (``create_time``), which differs after
    the clock was set.
    """
    try:
        # The second field is the program's name in parentheses, which may hold anything.
        fields = (PROC / str(pid) / 'stat').read_text().rpartition(')')[2].split()
    except OSError:
        return ''
    return f'{pid} {fields[19]}'


def cpu_sec(pid: int) -> float:
    """Return the CPU seconds that a process has used, in user and in kernel mode.

    :raises ProcessLookupError: the process has ended
    """
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(str(error)) from error
    return times.user + times.system


def terminate(pid: int, timeout_sec: float) -> bool:
    """Send SIGTERM, then SIGKILL, and return whether the process has ended.

    :param timeout_sec: how long to wait after each signal
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if wait_until_gone(pid, timeout_sec):
            return True
    return False


def kill(pid: int, timeout_sec: float) -> bool:
    """Send SIGKILL and return whether the process has ended within the time."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return wait_until_gone(pid, timeout_sec)


def wait_until_gone(pid: int, timeout_sec: float) -> bool:
    """Wait for the end of any process and return whether it ended within the time."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        # Not select, which does not support descriptors above 1023.
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        return bool(waiting.poll(timeout_sec * 1000))
    finally:
        os.close(handle)
