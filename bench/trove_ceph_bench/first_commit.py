# SPDX-License-Identifier: Apache-2.0
"""Time operations on instances until the first commit of a client at the tenant's address.

Trove's status says when Trove has noticed that a database runs. A tenant waits for the first commit
of an application, so each verb here ends with it. The client is that of ``BENCH_USER``,
``BENCH_PASSWORD`` and ``BENCH_DATABASE``.
"""

import argparse
import contextlib
import functools
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import openstack
import troveclient.exceptions

from trove_ceph import exceptions, waiting
from trove_ceph_bench import (
    configured,
    ledger,
    operation_output,
    process_group,
    trove_operations,
)
from trove_ceph_bench.targets import cloud

#: Commits of a client before its server is killed.
LEAD_ROWS = 20
_COMMIT_POLL_SEC = 0.1
_KILL = 'kills the virtual machine of the instance that its last argument names'
#: Rows that were acknowledged before a failure, and are missing after it.
LOST = 'lost_commits'


class Process(Protocol):
    """A started command."""

    def poll(self) -> int | None:
        """Return the exit status; None: it runs."""

    def terminate(self) -> None: ...


class Operations:
    """Operations that end with a client's first commit, or with an error.

    :param client: of the instances
    :param begin: called when the operation is about to be requested
    :param phase: called with the name of each phase when it ends
    :param record: called with the name of a figure and the figure
    :param kill: kills the virtual machine of an instance
    :param fail_over: starts a command that requests a failover of an instance, and waits for it
    """

    def __init__(
        self,
        trove: Any,
        client: ledger.Client,
        begin: Callable[[], None] = operation_output.print_begin,
        phase: Callable[[str], None] = operation_output.print_phase,
        record: Callable[[str, int], None] = lambda name, figure: None,
        kill: Callable[[str], None] = lambda instance_id: None,
        fail_over: Callable[[str], Process] | None = None,
        timeout_sec: float = 1800,
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._trove = trove
        self._client = client
        self._begin = begin
        self._phase = phase
        self._record = record
        self._kill = kill
        self._start_failover = fail_over or _start_failover
        self._timeout_sec = timeout_sec
        self._start_wait = start_wait

    def create(
        self, name: str, like: str, zone: str | None = None, flavor: str | None = None
    ) -> None:
        """Create an instance with the client's user, like another one.

        :param zone: availability zone; None: the request names none
        :param flavor: its name or id; None: that of the other instance
        :raises LoadFailedError: it failed, or no commit succeeded in time
        :raises TargetUnavailableError: there is no such instance or flavor
        """
        source = self._get(like)
        parameters = trove_operations.parameters_like(source)
        if flavor is not None:
            parameters['flavor_id'] = cloud.find_one(self._trove.flavors, flavor).id
        client = self._client
        user = {'name': client.user, 'password': client.password}
        schema = {'name': client.database}
        self._begin()
        instance = self._trove.instances.create(
            name,
            **parameters,
            access=trove_operations.access_like(source),
            availability_zone=zone,
            databases=[schema],
            users=[user | {'databases': [schema]}],
        )
        self._phase('request')
        self._await_commit(instance.id, self._raise_if_failed)

    def restore(self, backup: str, name: str, zone: str | None = None) -> None:
        """Restore a backup, which has the client's user, to an instance like its source.

        :param zone: availability zone; None: the request names none
        :raises LoadFailedError: it failed, or no commit succeeded in time
        """
        found = cloud.find_one(self._trove.backups, backup)
        source = self._trove.instances.get(found.instance_id)
        self._begin()
        self._await_commit(self._request_restore(found, source, name, zone), self._raise_if_failed)

    def fail_over(self, instance: str) -> None:
        """Kill the virtual machine of an instance that the client uses, and fail it over.

        :raises LoadFailedError: the failover failed, no commit succeeded in time, or acknowledged
            commits are lost
        """
        instance_id = self._get(instance).id
        with self._killed(instance_id) as writer:
            process = self._start_failover(instance_id)
            try:
                host = self._await_commit(instance_id, lambda _: _raise_if_ended(process))
            finally:
                process.terminate()
        if lost := self._lost(writer, host):
            raise exceptions.LoadFailedError(
                f'{lost} of {len(writer.acknowledged)} acknowledged commits are lost after the '
                f'failover of {instance}'
            )

    def recover(self, instance: str, backup: str, name: str) -> None:
        """Kill the virtual machine of an instance that the client uses, and restore its backup.

        The commits since the backup are lost; the figure ``lost_commits`` has their number.

        :raises LoadFailedError: the restore failed, or no commit succeeded in time
        """
        found = cloud.find_one(self._trove.backups, backup)
        source = self._get(instance)
        with self._killed(source.id) as writer:
            restored_id = self._request_restore(found, source, name)
            host = self._await_commit(restored_id, self._raise_if_failed)
        self._lost(writer, host)

    def _request_restore(self, backup: Any, source: Any, name: str, zone: str | None = None) -> str:
        instance = self._trove.instances.create(
            name,
            **trove_operations.parameters_like(source),
            restorePoint={'backupRef': backup.id},
            access=trove_operations.access_like(source),
            availability_zone=zone,
        )
        self._phase('request')
        return instance.id

    @contextlib.contextmanager
    def _killed(self, instance_id: str) -> Iterator[ledger.Writer]:
        """Kill the virtual machine of an instance under a writer; the operation begins then."""
        host = self._host_of(instance_id)
        with ledger.Writer(self._client, host) as writer:
            writer.wait_for(LEAD_ROWS)
            self._kill(instance_id)
            self._begin()
            yield writer
        if writer.error is None:
            raise exceptions.LoadFailedError(
                f'{host} still served its client after its virtual machine had been killed'
            )

    def _host_of(self, instance_id: str) -> str:
        """Return the address at which the client commits.

        :raises LoadFailedError: it commits at none
        """
        hosts = trove_operations.hosts_of(self._get(instance_id))
        for host in hosts:
            if self._client.commit(host) is not None:
                return host
        raise exceptions.LoadFailedError(
            f'instance {instance_id}: no commit at {", ".join(hosts) or "any address"}; create it '
            'with "trove-ceph-bench first-commit create"'
        )

    def _lost(self, writer: ledger.Writer, host: str) -> int:
        lost = len(set(writer.acknowledged) - self._client.numbers(host))
        self._record(LOST, lost)
        return lost

    def _await_commit(self, instance_id: str, check: Callable[[Any], None]) -> str:
        """Wait for the first commit; return the address at which it was.

        :param check: called with the listed instance; raises when there is nothing to wait for
        """
        deadline = self._start_wait(self._timeout_sec)
        while deadline.left_sec:
            # Listing does not call the guest agent.
            listed = self._find(instance_id)
            check(listed)
            until = self._start_wait(trove_operations.listing_poll_sec([listed]))
            while True:
                for host in trove_operations.hosts_of(listed):
                    if self._client.commit(host) is not None:
                        self._phase('first-commit')
                        return host
                if not until.pause(_COMMIT_POLL_SEC):
                    break
        raise exceptions.LoadFailedError(
            f'instance {instance_id}: no commit within {self._timeout_sec:.0f} s; it is '
            f'{listed.status} {listed.operating_status}; last error of the client: '
            f'{self._client.error or "none"}'
        )

    def _raise_if_failed(self, listed: Any) -> None:
        trove_operations.raise_if_failed(self._trove, listed)

    def _get(self, instance: str) -> Any:
        return self._trove.instances.get(cloud.find_one(self._trove.instances, instance).id)

    def _find(self, instance_id: str) -> Any:
        return cloud.find_one(self._trove.instances, instance_id)


def _start_failover(instance_id: str) -> Process:
    # The command of a tenant, so its start counts.
    command = ['openstack', 'database', 'instance', 'failover', instance_id, '--force', '--wait']
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def _raise_if_ended(process: Process) -> None:
    if status := process.poll():
        raise exceptions.LoadFailedError(f'the failover failed: exit status {status}')


_VERBS: Mapping[str, tuple[tuple[str, ...], str]] = {
    'create': (('name',), 'create an instance like another one'),
    'restore': (('backup', 'name'), 'restore a backup to an instance like its source'),
    'fail-over': (('instance',), 'kill the virtual machine of an instance, and fail it over'),
    'recover': (
        ('instance', 'backup', 'name'),
        'kill the virtual machine of an instance, and restore its backup to another one',
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verbs and their arguments to a parser."""
    parser.add_argument(
        '--timeout',
        type=float,
        default=1800,
        metavar='SECONDS',
        help='limit of the wait for the commit (%(default)s)',
    )
    verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
    for verb, (names, text) in _VERBS.items():
        command = verbs.add_parser(verb, help=text, description=text)
        for name in names:
            command.add_argument(name, metavar=name.upper())
        if verb == 'create':
            command.add_argument(
                '--like', required=True, metavar='INSTANCE', help='the instance to resemble'
            )
            command.add_argument(
                '--flavor', help='flavor to request (default: that of the other instance)'
            )
        if verb in ('create', 'restore'):
            command.add_argument('--zone', help='availability zone to request (default: none)')
        command.set_defaults(parameters=names)


def main(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> None:
    """Run the parsed verb.

    :raises LoadFailedError: the operation failed, or the cloud refused it
    :raises TargetUnavailableError: there is no such instance, flavor or backup
    """
    process_group.exit_on_sigterm()
    names = (*arguments.parameters, 'like', 'flavor', 'zone')
    parameters = {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
    _, trove = cloud.clients()
    operations = Operations(
        trove,
        ledger.Client(ledger.address(environ)),
        record=functools.partial(
            operation_output.record_figure, operation_output.directory(environ)
        ),
        kill=functools.partial(configured.run, 'BENCH_KILL_SERVER', _KILL),
        timeout_sec=arguments.timeout,
    )
    try:
        getattr(operations, arguments.verb.replace('-', '_'))(**parameters)
    except (troveclient.exceptions.ClientException, openstack.exceptions.SDKException) as error:
        raise exceptions.LoadFailedError(f'Trove refused {arguments.verb}: {error}') from error
