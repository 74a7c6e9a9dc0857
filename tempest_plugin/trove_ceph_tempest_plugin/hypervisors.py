# SPDX-License-Identifier: Apache-2.0
"""Let servers, hosts and services fail, by the commands that the configuration names."""

import shlex
import subprocess

from trove_ceph_tempest_plugin import commands

#: To start a host takes as long as its slowest service.
COMMAND_TIMEOUT_SEC = 600


class Hypervisors:
    """The compute hosts of the cloud under test.

    Every method raises trove_ceph.exceptions.TroveCephError when its command fails.

    :param server_command: ``[trove_ceph] server_command``
    :param host_command: ``[trove_ceph] host_command``
    :param service_command: ``[trove_ceph] service_command``
    """

    def __init__(
        self, server_command: str, host_command: str, service_command: str, run=subprocess.run
    ):
        self._server_command = server_command
        self._host_command = host_command
        self._service_command = service_command
        self._run = run

    def signal(self, signal: str, server_id: str, host: str) -> None:
        """Send a signal to the hypervisor process of a server.

        :param signal: KILL, STOP or CONT
        """
        self._execute(self._server_command, signal=signal, server=server_id, host=host)

    def host(self, action: str, host: str) -> None:
        """Let a host fail or bring it back: kill, start, freeze, thaw."""
        self._execute(self._host_command, action=action, host=host)

    def kill_service(self, service: str) -> None:
        """Kill all processes of a service of the control plane, which is then started again."""
        self._execute(self._service_command, service=service)

    def _execute(self, command, **values):
        words = [word.format(**values) for word in shlex.split(command)]
        commands.run(words, COMMAND_TIMEOUT_SEC, execute=self._run)
