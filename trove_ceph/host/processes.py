# SPDX-License-Identifier: Apache-2.0
"""Processes of this host, whoever started them."""

import contextlib
import os
import select
import signal
from pathlib import Path

import psutil

PROC = Path('/proc')


def identity(pid: int) -> str:
    """Name a process so that a reused pid is not taken for it; empty when it is gone.

    By the ticks from boot to its start, field 22 of proc(5)'s stat. psutil makes a time of day of
    them (``create_time``), which another process reads differently after the clock was set.
    """
    try:
        # The second field is the program's name in parentheses, which may hold anything.
        fields = (PROC / str(pid) / 'stat').read_text().rpartition(')')[2].split()
    except OSError:
        return ''
    return f'{pid} {fields[19]}'


def cpu_sec(pid: int) -> float:
    """Return the processor seconds that a process has used, in user and in kernel mode.

    :raises ProcessLookupError: it is gone
    """
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(str(error)) from error
    return times.user + times.system


def end(pid: int, timeout_sec: float) -> bool:
    """Ask a process to end, then make it, and return whether it is gone; waits twice at most."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if wait_until_gone(pid, timeout_sec):
            return True
    return False


def kill(pid: int, timeout_sec: float) -> bool:
    """End a process at once and return whether it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return wait_until_gone(pid, timeout_sec)


def wait_until_gone(pid: int, timeout_sec: float) -> bool:
    """Wait for the end of any process and return whether it ended in time."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        # Not select, which refuses the descriptors of a process that has many open.
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        return bool(waiting.poll(timeout_sec * 1000))
    finally:
        os.close(handle)
