# SPDX-License-Identifier: Apache-2.0
"""Do what operators do with ``trove-ceph-manage``."""

import json
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trove_ceph import exceptions, waiting
from trove_ceph_tempest_plugin import commands

POLL_SEC = 5
#: "failover status" also exits so if nothing is watched, or something holds all failovers.
_DIFFERS = 1


class Management:
    """The command of operators.

    Every method raises trove_ceph.exceptions.TroveCephError when the command fails.

    :param command: ``[trove_ceph] manage_command``
    """

    def __init__(
        self,
        command: str,
        execute: Callable[..., Any] = subprocess.run,
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._words = shlex.split(command)
        self._execute = execute
        self._start_wait = start_wait

    def failover_status(self) -> Mapping[str, Any]:
        """Return what automatic failover sees."""
        return self._read('failover', 'status', accepted=(0, _DIFFERS))

    def wait_for_reports(self, timeout_sec: float) -> Mapping[str, Any]:
        """Return what automatic failover sees, once a database has reported, or after the time.

        A taskmanager that has just started has seen no report, and does not watch yet. What the
        former one has seen is there.
        """
        deadline = self._start_wait(timeout_sec)
        while True:
            status = self.failover_status()
            is_watched = status['watched_by'] is not None
            if (is_watched and status['reporting']) or not deadline.pause(POLL_SEC):
                return status

    def wait_until_suspected(
        self, instance_id: str, timeout_sec: float, silent_sec: float = 0
    ) -> Mapping[str, Any]:
        """Wait until all signs say that the server of an instance failed; return the finding.

        :param silent_sec: for how long its agent must have been silent
        :raises TroveCephError: they do not in time
        """
        deadline = self._start_wait(timeout_sec)
        while True:
            status = self.failover_status()
            for one in status['findings']:
                is_suspected = (one['instance_id'], one['verdict']) == (instance_id, 'suspect')
                if is_suspected and one['silent_sec'] >= silent_sec:
                    return one
            if not deadline.pause(POLL_SEC):
                raise exceptions.TroveCephError(
                    f'instance {instance_id} is not suspected after {timeout_sec} s: {status}'
                )

    def begin_maintenance(self, reason: str) -> None:
        """Hold all automatic failovers."""
        self._read('failover', 'maintenance', 'begin', '--reason', reason)

    def end_maintenance(self) -> None:
        """Allow automatic failovers."""
        self._read('failover', 'maintenance', 'end')

    def move_host(self, host: str, reason: str) -> Sequence[str]:
        """Move the databases of a host to other hosts; return the ids of those that it had.

        :raises TroveCephError: one of them is left
        """
        words = ('replacements', 'move-host', host, '--reason', reason, '--yes')
        return [one['instance_id'] for one in self._read(*words)]

    def _read(self, *words: str, accepted: Sequence[int] = (0,)) -> Any:
        # Without notes, an error is all that the command prints beside its result.
        command = [*self._words, '--quiet', *words, '-f', 'json']
        return json.loads(commands.run(command, accepted=accepted, execute=self._execute))
