# SPDX-License-Identifier: Apache-2.0
"""Stop a command that runs in a process group of its own, with everything that it started."""

import os
import signal
import subprocess
import sys
import time

_POLL_SEC = 0.05


def exit_on_sigterm() -> None:
    """Let SIGTERM end this process through its cleanup handlers, as an exception does.

    The time limit of a plan, and Ctrl-C, send it to the commands of an operation.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def has_exited(process: subprocess.Popen) -> bool:
    """Return whether a process has exited; do not reap it, so that its group id stays in use."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, options) is not None


def stop(process: subprocess.Popen, terminate_sec: float) -> None:
    """Stop a process that leads its group, and all others in the group, and reap it.

    :param process: not reaped yet
    :param terminate_sec: how long it may take to exit after SIGTERM, before SIGKILL
    """
    os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + terminate_sec
    while not has_exited(process) and time.monotonic() < deadline:
        time.sleep(_POLL_SEC)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
