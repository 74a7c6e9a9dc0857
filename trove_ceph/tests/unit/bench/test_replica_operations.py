# SPDX-License-Identifier: Apache-2.0
"""Tests of the operations on replicas that end when clients notice it."""

import contextlib
import inspect
import signal
import types
from unittest import mock

import pymysql
import troveclient.exceptions
from oslotest import base

from trove_ceph import exceptions, waiting
from trove_ceph.tests.unit.bench import fake_ledger
from trove_ceph_bench import arguments, ledger, model, replica_operations, sysbench

SOURCE_HOST, REPLICA_HOST, SECOND_HOST = '192.0.2.1', '192.0.2.2', '192.0.2.3'
ENVIRON = {
    'BENCH_USER': 'app',
    'BENCH_PASSWORD': 'secret',
    'BENCH_DATABASE': 'shop',
    'BENCH_DATA_MIB': '256',
}


def instance(name, host, **more):
    return types.SimpleNamespace(
        id=f'id-{name}',
        name=name,
        status='ACTIVE',
        operating_status='HEALTHY',
        addresses=[{'address': host, 'type': 'private', 'network': 'net-1'}] if host else [],
        **more,
    )


class Cloud:
    """Fake of Trove, whose time passes in the waits of the operations.

    :ivar events: by second: what happens then
    """

    def __init__(self):
        self.now = 0.0
        self.events = []
        self.found = {'id-shop': instance('shop', SOURCE_HOST)}
        self.instances = types.SimpleNamespace(
            list=self._list,
            get=lambda identity: self.found[identity],
            create=self._create,
        )
        self.created = []
        self.lists = 0
        self.shown = []
        self.requests = []
        self.client = types.SimpleNamespace(
            get=self._get,
            post=lambda path, body: self.requests.append((path, body)),
            put=lambda path, body: self.requests.append((path, body)),
        )

    def _list(self):
        self.lists += 1
        return list(self.found.values())

    def add(self, name, host):
        self.found[f'id-{name}'] = instance(name, host)

    def _create(self, name, **parameters):
        self.created.append((name, parameters))
        count = parameters['replica_count']
        for one in [name] if count == 1 else [f'{name}-{n + 1}' for n in range(count)]:
            self.add(one, None)

    def _get(self, path):
        assert path == '/replication/id-copy', path
        shown = self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]
        return None, {'replication': shown}

    def at(self, second, event):
        self.events.append((second, event))

    def sleep(self, seconds):
        self.now += seconds
        for event in [one for one in self.events if one[0] <= self.now]:
            self.events.remove(event)
            event[1]()

    def start_wait(self, timeout_sec):
        return waiting.Deadline(timeout_sec, lambda: self.now, self.sleep)


class OperationsTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.cloud = Cloud()
        self.servers = fake_ledger.Servers()
        self.servers.rows[SOURCE_HOST] = 5
        self.output, self.figures = [], {}
        self.operations = replica_operations.Operations(
            self.cloud,
            ledger.Client(model.Address('app', 'secret', 'shop'), self.servers.connect),
            lambda: self.output.append('begin'),
            self.output.append,
            self.figures.__setitem__,
            timeout_sec=60,
            start_wait=self.cloud.start_wait,
        )

    def appear(self, name, host, rows):
        """Let a replica answer with the rows of its clone."""
        self.cloud.add(name, host)
        self.servers.rows[host] = rows


class OperationsTest(OperationsTestCase):
    def test_creation_ends_when_a_new_row_is_there(self):
        self.cloud.at(10, lambda: self.appear('copy', REPLICA_HOST, 6))
        # It answers, but does not follow yet.
        self.cloud.at(20, lambda: self.servers.rows.update({REPLICA_HOST: 7}))
        self.operations.create('shop', 'copy')
        self.assertEqual(['begin', 'request', 'following'], self.output)
        self.assertEqual(20, round(self.cloud.now))
        # One row to find the source's address, and one to follow.
        self.assertEqual(7, self.servers.rows[SOURCE_HOST])
        self.assertEqual(
            [
                (
                    'copy',
                    {
                        'replica_of': 'id-shop',
                        'replica_count': 1,
                        'nics': [{'net-id': 'net-1'}],
                        'access': {'is_public': False},
                        'availability_zone': None,
                    },
                )
            ],
            self.cloud.created,
        )

    def test_creation_waits_for_all_replicas(self):
        self.cloud.at(10, lambda: self.appear('copy-1', REPLICA_HOST, 6))
        self.cloud.at(14, lambda: self.servers.rows.update({REPLICA_HOST: 7}))
        self.cloud.at(30, lambda: self.appear('copy-2', SECOND_HOST, 6))
        self.cloud.at(36, lambda: self.servers.rows.update({SECOND_HOST: 8}))
        self.operations.create('shop', 'copy', count=2, zone='nova')
        self.assertEqual(36, round(self.cloud.now))
        self.assertEqual('nova', self.cloud.created[0][1]['availability_zone'])

    def test_replicas_with_public_addresses_are_listed_rarely(self):
        """Each listing has the cloud work, which may share its processors with the replicas."""

        def appear(name, host):
            self.appear(name, host, 6)
            self.cloud.found[f'id-{name}'].addresses[0]['type'] = 'public'

        self.cloud.at(5, lambda: appear('copy-1', REPLICA_HOST))
        self.cloud.at(9, lambda: appear('copy-2', SECOND_HOST))
        # Both have their row in the end.
        self.cloud.at(50, lambda: self.servers.rows.update({REPLICA_HOST: 8, SECOND_HOST: 8}))
        self.operations.create('shop', 'copy', count=2)
        self.assertEqual(50, round(self.cloud.now))
        # Once for the source, each 2 s until both have addresses, and then each 15 s.
        self.assertEqual(1 + 6 + 2, self.cloud.lists)

    def test_failed_replica_ends_the_wait(self):
        def fail():
            vars(self.cloud.found['id-copy']).update(
                status='ERROR', operating_status='', fault={'message': 'no host'}
            )

        self.cloud.at(4, fail)
        error = self.assertRaises(
            exceptions.LoadFailedError, self.operations.create, 'shop', 'copy'
        )
        self.assertIn('instance id-copy is ERROR', str(error))
        self.assertIn('no host', str(error))

    def test_replica_that_never_follows(self):
        self.cloud.at(10, lambda: self.appear('copy', REPLICA_HOST, 6))
        error = self.assertRaises(
            exceptions.LoadFailedError, self.operations.create, 'shop', 'copy'
        )
        self.assertIn('copy: not replicating after 60 s', str(error))

    def test_source_that_takes_no_commit(self):
        del self.servers.rows[SOURCE_HOST]
        error = self.assertRaises(
            exceptions.LoadFailedError, self.operations.create, 'shop', 'copy'
        )
        self.assertIn(f'cannot commit to shop at {SOURCE_HOST}', str(error))
        self.assertEqual([], self.cloud.created)

    def reprovision(self, *shown):
        self.appear('copy', REPLICA_HOST, 5)
        self.cloud.shown = list(shown)
        self.operations.reprovision('copy')

    def test_reprovisioning_ends_when_the_replica_follows_again(self):
        self.reprovision(
            {'state': 'following', 'reprovisioned_at': None, 'error': None},
            {'state': 'requested', 'reprovisioned_at': None, 'error': None},
            {'state': 'catching_up', 'reprovisioned_at': None, 'error': None},
            {'state': 'following', 'reprovisioned_at': '2026-01-01', 'error': None},
        )
        self.assertEqual(['begin', 'request', 'reprovisioned'], self.output)
        self.assertEqual(4, self.cloud.now)
        self.assertEqual([replica_operations.OUT_OF_SERVICE], list(self.figures))
        self.assertEqual(
            [('/replication/id-copy/reprovision', {'reprovision': {}})], self.cloud.requests
        )

    def test_reprovisioning_that_went_back_to_the_old_volume(self):
        error = self.assertRaises(
            exceptions.LoadFailedError,
            self.reprovision,
            {'state': 'following', 'reprovisioned_at': None, 'error': None},
            {'state': 'following', 'reprovisioned_at': None, 'error': 'no space'},
        )
        self.assertIn('copy was not re-provisioned: no space', str(error))
        self.assertEqual({}, self.figures)

    def test_reprovisioning_that_does_not_end(self):
        error = self.assertRaises(
            exceptions.LoadFailedError,
            self.reprovision,
            {'state': 'following', 'reprovisioned_at': None, 'error': None},
            {'state': 'cloning', 'reprovisioned_at': None, 'error': None},
        )
        self.assertIn('copy is still cloning after 60 s', str(error))

    def test_commits_are_spread_over_connections(self):
        self.operations.commit('shop', rows=12, connections=3)
        # One more found the address.
        self.assertEqual(5 + 1 + 12, self.servers.rows[SOURCE_HOST])
        self.assertEqual(['begin', 'committed'], self.output)

    def test_failed_commit_is_an_error(self):
        self.servers.dies_after = 8
        self.assertRaises(
            pymysql.MySQLError, self.operations.commit, 'shop', rows=12, connections=3
        )
        self.assertNotIn('committed', self.output)

    def test_semi_sync_waits_until_the_source_uses_it(self):
        states = ['off', 'off', 'on']
        self.operations._semi_sync_state = lambda host: states.pop(0)
        self.operations.semi_sync('shop', 'on')
        self.assertEqual(
            [('/replication_policies/id-shop', {'replication_policy': {'semi_sync': True}})],
            self.cloud.requests,
        )
        self.assertEqual([], states)

    def test_semi_sync_that_is_never_in_effect(self):
        self.operations._semi_sync_state = lambda host: 'off'
        error = self.assertRaises(
            exceptions.LoadFailedError, self.operations.semi_sync, 'shop', 'on'
        )
        self.assertIn('shop: semi-synchronous replication is still off after 60 s', str(error))


class Run:
    """Fake of a running sysbench."""

    def __init__(self, is_ended=True, failed=False):
        self.is_ended, self.failed = is_ended, failed
        self.stopped = False

    def wait(self, timeout_sec):
        return self.is_ended

    def failure(self):
        return exceptions.LoadFailedError('sysbench exited with 1')

    def stop(self):
        self.stopped = True


class ReadTest(OperationsTestCase):
    def setUp(self):
        super().setUp()
        self.appear('copy-1', REPLICA_HOST, 5)
        self.appear('copy-2', SECOND_HOST, 5)
        self.started, self.runs = [], []

    def read(self, *runs):
        self.runs = list(runs)
        pending = list(runs)

        def start(load, threads, seconds, directory, transactions):
            address = load._address
            self.started.append((address.host, address.user, threads, seconds, transactions))
            return pending.pop(0)

        with (
            mock.patch.object(sysbench.Sysbench, 'start', start),
            mock.patch.object(sysbench, 'start_together', return_value=0),
        ):
            names = [f'copy-{number + 1}' for number in range(len(runs))]
            self.operations.read(names, transactions=1000, threads=4, size_mib=64)

    def test_reads_are_spread_over_replicas(self):
        self.read(Run(), Run())
        self.assertEqual(
            [(REPLICA_HOST, 'app', 4, 60, 500), (SECOND_HOST, 'app', 4, 60, 500)], self.started
        )
        self.assertEqual(['begin', 'read'], self.output)
        self.assertEqual([replica_operations.TPS], list(self.figures))
        self.assertTrue(all(run.stopped for run in self.runs))

    def test_failed_reads(self):
        for run, message in (
            (Run(failed=True), 'sysbench exited with 1'),
            (Run(is_ended=False), 'sysbench still runs after 60 s'),
        ):
            error = self.assertRaises(exceptions.LoadFailedError, self.read, run)
            self.assertIn(message, str(error))
            self.assertTrue(run.stopped)
        self.assertEqual({}, self.figures)


class CommandTest(base.BaseTestCase):
    def run_command(self, *words, environ=ENVIRON, **methods):
        parsed = arguments.parse(['replicas', *words])
        with contextlib.ExitStack() as stack:
            for name, method in methods.items():
                stack.enter_context(mock.patch.object(replica_operations.Operations, name, method))
            stack.enter_context(
                mock.patch('trove_ceph_bench.targets.cloud.clients', return_value=(None, None))
            )
            replica_operations.main(parsed, environ)

    def test_every_verb_has_the_arguments_of_its_function(self):
        for verb, words in (
            ('create', ['shop', 'copy', '--count', '2', '--zone', 'nova']),
            ('reprovision', ['copy']),
            ('read', ['copy-1', 'copy-2', '--transactions', '10', '--threads', '2']),
            ('commit', ['shop', '--rows', '10', '--connections', '2']),
            ('semi-sync', ['shop', 'on']),
        ):
            method = verb.replace('-', '_')
            names = list(
                inspect.signature(getattr(replica_operations.Operations, method)).parameters
            )[1:]
            called = mock.Mock()
            self.run_command(verb, *words, **{method: called})
            self.assertEqual(names, list(called.call_args.kwargs), verb)

    def test_sigterm_ends_it_through_its_cleanup_handlers(self):
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.run_command('reprovision', 'copy', reprovision=mock.Mock())
        handler = signal.getsignal(signal.SIGTERM)
        error = self.assertRaises(SystemExit, handler, signal.SIGTERM, None)
        self.assertEqual(143, error.code)

    def test_reads_the_data_of_the_attempt(self):
        called = mock.Mock()
        self.run_command('read', 'copy-1', 'copy-2', read=called)
        called.assert_called_once_with(
            replica=['copy-1', 'copy-2'], transactions=20000, threads=8, size_mib=256
        )

    def test_counts_start_at_one(self):
        self.assertRaises(
            SystemExit, arguments.parse, ['replicas', 'create', 'a', 'b', '--count=0']
        )

    def test_errors_are_reported(self):
        for failure, message in (
            (pymysql.err.OperationalError(1205, 'x'), 'MySQL failed commit'),
            (troveclient.exceptions.Conflict(409), 'Trove refused commit'),
        ):
            error = self.assertRaises(
                exceptions.LoadFailedError,
                self.run_command,
                'commit',
                'shop',
                commit=mock.Mock(side_effect=failure),
            )
            self.assertIn(message, str(error))
