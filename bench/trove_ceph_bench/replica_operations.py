# SPDX-License-Identifier: Apache-2.0
"""Time operations on replicas as clients notice them.

Trove's status says when Trove has noticed that a database runs. A replica is of use once it has
what its source commits, so a creation ends when each replica has a row that was committed after the
replica had answered. The client is that of ``BENCH_USER``, ``BENCH_PASSWORD`` and
``BENCH_DATABASE``, which the replicas have from their source.
"""

import argparse
import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import openstack
import pymysql
import troveclient.exceptions

from trove_ceph import exceptions, waiting
from trove_ceph_bench import (
    ledger,
    operation_output,
    operations,
    process_group,
    sysbench,
    trove_operations,
    workloads,
)
from trove_ceph_bench.targets import cloud

#: The longest time without a successful read while a replica is re-provisioned.
OUT_OF_SERVICE = 'out_of_service_ms'
TPS = 'tps'
#: States of a replica that is not being re-provisioned.
_AT_REST = ('following', 'broken')
_STATE_POLL_SEC = 2
_POLL_SEC = 0.1
_COMMIT = f'INSERT INTO {ledger.TABLE} () VALUES ()'
_SEMI_SYNC = "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_source_status'"


class Operations:
    """Operations on a source and its replicas.

    :param client: of the source and its replicas
    :param begin: called when the operation begins
    :param phase: called with the name of each phase when it ends
    :param record: called with the name of a figure and the figure
    """

    def __init__(
        self,
        trove: Any,
        client: ledger.Client,
        begin: Callable[[], None] = operation_output.print_begin,
        phase: Callable[[str], None] = operation_output.print_phase,
        record: Callable[[str, int], None] = lambda name, figure: None,
        timeout_sec: float = 1800,
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._trove = trove
        self._client = client
        self._begin = begin
        self._phase = phase
        self._record = record
        self._timeout_sec = timeout_sec
        self._start_wait = start_wait

    def create(self, source: str, name: str, count: int = 1, zone: str | None = None) -> None:
        """Create replicas of an instance, and wait until all of them follow it.

        :param name: of the replica; several are named NAME-1, NAME-2 ...
        :param zone: availability zone; None: the request names none
        :raises LoadFailedError: one failed, or does not follow in time
        """
        found = self._get(source)
        host = self._source_host(found)
        self._begin()
        self._trove.instances.create(
            name,
            replica_of=found.id,
            replica_count=count,
            nics=trove_operations.nics_of(found),
            access=trove_operations.access_like(found),
            availability_zone=zone,
        )
        self._phase('request')
        names = [name] if count == 1 else [f'{name}-{number + 1}' for number in range(count)]
        self._await_following(host, names)
        self._phase('following')

    def reprovision(self, replica: str) -> None:
        """Give a replica a fresh clone, and wait until it has caught up; read from it meanwhile.

        :raises LoadFailedError: it failed or took too long
        """
        found = self._get(replica)
        host = self._replica_host(found)
        path = f'/replication/{found.id}'
        before = self._show(path)['reprovisioned_at']
        with ledger.Reader(lambda: self._client.rows(host) is not None) as reader:
            self._begin()
            self._trove.client.post(f'{path}/reprovision', body={'reprovision': {}})
            self._phase('request')
            self._await_reprovisioned(replica, path, before)
            self._phase('reprovisioned')
        self._record(OUT_OF_SERVICE, round(reader.gap_sec * 1000))

    def read(self, replica: Sequence[str], transactions: int, threads: int, size_mib: int) -> None:
        """Run a number of point selects, spread evenly over instances, as fast as they answer.

        :param replica: names or ids of the instances
        :param threads: connections to each instance
        :param size_mib: of the data that the plan filled
        :raises LoadFailedError: sysbench failed, or did not end in time
        """
        hosts = [self._replica_host(self._get(name)) for name in replica]
        data = operations.dataset_of_size(size_mib)
        with tempfile.TemporaryDirectory(prefix='trove-ceph-bench-') as directory:
            runs: list[sysbench.Run] = []
            try:
                for host in hosts:
                    address = self._client.address_of(host)
                    load = sysbench.Sysbench(address, workloads.get('read'), data)
                    runs.append(
                        load.start(
                            threads,
                            int(self._timeout_sec),
                            Path(directory) / host,
                            transactions // len(hosts),
                        )
                    )
                began = sysbench.start_together(runs)
                time.sleep(max(0.0, began - time.monotonic()))
                self._begin()
                self._await_end(runs)
            finally:
                for run in runs:
                    run.stop()
        self._phase('read')
        self._record(TPS, round(transactions / (time.monotonic() - began)))

    def commit(self, source: str, rows: int, connections: int) -> None:
        """Commit rows one by one, over several connections at once.

        :raises pymysql.MySQLError: a commit failed
        """
        host = self._source_host(self._get(source))
        with contextlib.ExitStack() as stack:
            opened = [
                stack.enter_context(self._client.connection(host)) for _ in range(connections)
            ]
            self._begin()
            with futures.ThreadPoolExecutor(connections) as pool:
                share = rows // connections
                for done in [pool.submit(_commit_rows, one, share) for one in opened]:
                    done.result()
        self._phase('committed')

    def semi_sync(self, source: str, state: str) -> None:
        """Turn semi-synchronous replication of a source on or off; wait until it is in effect.

        :param state: ``on`` or ``off``
        :raises LoadFailedError: it is not in effect in time
        """
        found = self._get(source)
        host = self._source_host(found)
        body = {'replication_policy': {'semi_sync': state == 'on'}}
        self._trove.client.put(f'/replication_policies/{found.id}', body=body)
        deadline = self._start_wait(self._timeout_sec)
        while (present := self._semi_sync_state(host)) != state:
            if not deadline.pause(_STATE_POLL_SEC):
                raise exceptions.LoadFailedError(
                    f'{source}: semi-synchronous replication is still {present} after '
                    f'{self._timeout_sec:.0f} s'
                )

    def _semi_sync_state(self, host: str) -> str:
        with self._client.connection(host) as connection, connection.cursor() as cursor:
            cursor.execute(_SEMI_SYNC)
            return 'on' if 'ON' in {value for _, value in cursor.fetchall()} else 'off'

    def _await_following(self, source_host: str, names: Sequence[str]) -> None:
        """Wait until each replica has a row that was committed after the replica had answered."""
        deadline = self._start_wait(self._timeout_sec)
        missing, needed = list(names), dict[str, int]()
        while deadline.left_sec:
            listed = self._list(missing)
            hosts = {one.name: trove_operations.hosts_of(one) for one in listed}
            until = self._start_wait(trove_operations.listing_poll_sec(listed))
            while True:
                missing = [
                    name
                    for name in missing
                    if not self._follows(source_host, name, hosts[name], needed)
                ]
                if not missing:
                    return
                if not until.pause(_POLL_SEC):
                    break
        raise exceptions.LoadFailedError(
            f'{", ".join(missing)}: not replicating after {self._timeout_sec:.0f} s'
        )

    def _follows(
        self, source_host: str, name: str, hosts: Sequence[str], needed: dict[str, int]
    ) -> bool:
        """Return whether a replica has its row; commit the row when the replica first answers.

        :param needed: the number of rows that each replica must have
        """
        for host in hosts:
            rows = self._client.rows(host)
            if rows is not None and name in needed:
                return rows >= needed[name]
            if rows is not None and (before := self._client.commit(source_host)) is not None:
                needed[name] = before + 1
        return False

    def _await_reprovisioned(self, replica: str, path: str, before: str | None) -> None:
        deadline = self._start_wait(self._timeout_sec)
        while True:
            shown = self._show(path)
            if shown['state'] in _AT_REST:
                if shown['reprovisioned_at'] != before:
                    return
                raise exceptions.LoadFailedError(
                    f'{replica} was not re-provisioned: {shown["error"]}'
                )
            if not deadline.pause(_STATE_POLL_SEC):
                raise exceptions.LoadFailedError(
                    f'{replica} is still {shown["state"]} after {self._timeout_sec:.0f} s'
                )

    def _await_end(self, runs: Sequence[sysbench.Run]) -> None:
        deadline = self._start_wait(self._timeout_sec)
        for run in runs:
            if not run.wait(deadline.left_sec):
                raise exceptions.LoadFailedError(
                    f'sysbench still runs after {self._timeout_sec:.0f} s'
                )
            if run.failed:
                raise run.failure()

    def _show(self, path: str) -> Mapping[str, Any]:
        return self._trove.client.get(path)[1]['replication']

    def _source_host(self, source: Any) -> str:
        return self._first(source, self._client.commit, 'commit to')

    def _replica_host(self, replica: Any) -> str:
        return self._first(replica, self._client.rows, 'read from')

    def _first(self, instance: Any, use: Callable[[str], int | None], verb: str) -> str:
        hosts = trove_operations.hosts_of(instance)
        for host in hosts:
            if use(host) is not None:
                return host
        raise exceptions.LoadFailedError(
            f'the client cannot {verb} {instance.name} at {", ".join(hosts) or "any address"}'
        )

    def _list(self, names: Sequence[str]) -> list[Any]:
        """Return the instances of these names, none of which has failed."""
        # Listing does not call the guest agents.
        listed = cloud.list_all(self._trove.instances)
        found = [cloud.pick(listed, name) for name in names]
        for one in found:
            trove_operations.raise_if_failed(self._trove, one)
        return found

    def _get(self, instance: str) -> Any:
        return self._trove.instances.get(cloud.find_one(self._trove.instances, instance).id)


def _commit_rows(connection: Any, rows: int) -> None:
    with connection.cursor() as cursor:
        for _ in range(rows):
            cursor.execute(_COMMIT)


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError('expected a number of at least 1')
    return count


_VERBS: Mapping[str, tuple[tuple[str, ...], str]] = {
    'create': (('source', 'name'), 'create replicas; wait until they have a new row'),
    'reprovision': (('replica',), 'give a replica a fresh clone, and read from it meanwhile'),
    'read': (('replica',), 'run a number of point selects, spread over instances'),
    'commit': (('source',), 'commit rows one by one, over several connections'),
    'semi-sync': (('source', 'state'), 'turn semi-synchronous replication on or off'),
}
#: Options by verb: name, type, default and help.
_OPTIONS: Mapping[str, Sequence[tuple[str, Callable[[str], Any], Any, str]]] = {
    'create': (
        ('count', _count, 1, 'number of replicas (%(default)s)'),
        ('zone', str, None, 'availability zone to request (default: none)'),
    ),
    'read': (
        ('transactions', _count, 20000, 'number of selects in all (%(default)s)'),
        ('threads', _count, 8, 'connections to each instance (%(default)s)'),
    ),
    'commit': (
        ('rows', _count, 2000, 'number of rows in all (%(default)s)'),
        ('connections', _count, 1, 'connections at once (%(default)s)'),
    ),
}
_MORE: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ('read', 'replica'): {'nargs': '+'},
    ('semi-sync', 'state'): {'choices': ('on', 'off')},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verbs and their arguments to a parser."""
    parser.add_argument(
        '--timeout',
        type=float,
        default=1800,
        metavar='SECONDS',
        help='limit of each wait (%(default)s)',
    )
    verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
    for verb, (names, text) in _VERBS.items():
        command = verbs.add_parser(verb, help=text, description=text)
        for name in names:
            command.add_argument(name, metavar=name.upper(), **_MORE.get((verb, name), {}))
        options = _OPTIONS.get(verb, ())
        for name, kind, default, help_text in options:
            command.add_argument(
                f'--{name}', type=kind, default=default, metavar=name.upper(), help=help_text
            )
        command.set_defaults(parameters=(*names, *(name for name, *_ in options)))


def main(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> None:
    """Run the parsed verb.

    :raises LoadFailedError: the operation failed, or the cloud refused it
    :raises TargetUnavailableError: there is no such instance
    """
    process_group.exit_on_sigterm()
    parameters = {name: getattr(arguments, name) for name in arguments.parameters}
    if arguments.verb == 'read':
        parameters['size_mib'] = int(environ['BENCH_DATA_MIB'])
    _, trove = cloud.clients()
    found = Operations(
        trove,
        ledger.Client(ledger.address(environ)),
        record=functools.partial(
            operation_output.record_figure, operation_output.directory(environ)
        ),
        timeout_sec=arguments.timeout,
    )
    try:
        getattr(found, arguments.verb.replace('-', '_'))(**parameters)
    except (troveclient.exceptions.ClientException, openstack.exceptions.SDKException) as error:
        raise exceptions.LoadFailedError(f'Trove refused {arguments.verb}: {error}') from error
    except pymysql.MySQLError as error:
        raise exceptions.LoadFailedError(f'MySQL failed {arguments.verb}: {error}') from error
