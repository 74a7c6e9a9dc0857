# SPDX-License-Identifier: Apache-2.0
"""Let the second compute host fail, and bring it back."""

import os
import signal
import time

from driver import instruments, processes, up
from driver.errors import LabError
from driver.settings import SECOND_HOST

#: The first host's ends of its links; the kernel removes them some time after the last process.
LINKS = ('c2-services', 'c2-tunnels')
KILL_TIMEOUT_SEC = 60
_POLL_SEC = 0.1


def add_arguments(parser) -> None:
    """Add this command's options."""
    parser.add_argument(
        'action',
        choices=('kill', 'start', 'freeze', 'thaw'),
        help='kill: a power cut, its guests included; start: switch it on again, which starts the '
        'guests that Nova still has there; freeze, thaw: stop and continue all its processes',
    )


def run(settings, args) -> int:
    """Do it to the host of a running lab; each action can be repeated."""
    instruments.require_up(settings)
    if not settings.second_host.exists():
        raise LabError(
            'the lab has one compute host: set second_compute = 1 for a new lab (make lab-clean)'
        )
    if args.action == 'kill':
        cut_power(settings)
    elif args.action == 'start':
        return _start(settings)
    elif args.action == 'freeze':
        processes.freeze(lambda: processes.of_second_host(settings))
    else:
        processes.resume(processes.of_second_host(settings))
    return 0


def _start(settings):
    started = time.monotonic()
    with up.exclusive():
        processes.resume(processes.of_second_host(settings))
        return up.run_playbook(settings, started, up.SECOND_COMPUTE_PLAYBOOK)


def cut_power(settings, clock=time) -> None:
    """Kill all processes of the host at once, and wait until nothing of it is left.

    :param clock: has the functions ``monotonic`` and ``sleep`` of ``time``
    :raises LabError: a process did not end within a minute
    """
    if not settings.second_host.exists():
        return
    # Supervisor kills the parent of the namespaces' first process, with which all others die.
    processes.stop_program(settings, SECOND_HOST)
    deadline = clock.monotonic() + KILL_TIMEOUT_SEC
    while left := processes.of_second_host(settings):
        for pid in left:
            processes.send(pid, signal.SIGKILL)
        if clock.monotonic() > deadline:
            raise LabError(f'{SECOND_HOST}: {len(left)} killed processes did not end; repeat this')
        clock.sleep(_POLL_SEC)
    while any(os.path.exists(f'/sys/class/net/{link}') for link in LINKS):
        if clock.monotonic() > deadline:
            raise LabError(
                f'{SECOND_HOST}: the network links {", ".join(LINKS)} remain; repeat this'
            )
        clock.sleep(_POLL_SEC)
