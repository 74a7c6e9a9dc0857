# SPDX-License-Identifier: Apache-2.0
"""Tests of the operations that end with a client's first commit."""

import contextlib
import signal
import types
from unittest import mock

import troveclient.exceptions
from oslotest import base

from trove_ceph import exceptions, waiting
from trove_ceph.tests.unit.bench import fake_ledger
from trove_ceph_bench import arguments, first_commit, ledger, model, trove_operations

PRIVATE = {'address': '192.0.2.1', 'type': 'private', 'network': 'net-1'}
PUBLIC = {'address': '198.51.100.1', 'type': 'public'}
NEW = '198.51.100.2'
SOURCE = {
    'id': 'i-1',
    'name': 'shop',
    'status': 'ACTIVE',
    'operating_status': 'HEALTHY',
    'flavor': {'id': 'small'},
    'volume': {'size': 2, 'type': 'nvme'},
    'datastore': {'type': 'mysql', 'version': '9.7.4'},
    'addresses': [PRIVATE, PUBLIC],
}
ENVIRON = {'BENCH_USER': 'app', 'BENCH_PASSWORD': 'secret', 'BENCH_DATABASE': 'shop'}


class Cloud:
    """Fake of Trove, whose time passes in the waits of the operations.

    :ivar events: by second: what happens then
    """

    def __init__(self, servers):
        self.now = 0.0
        self.events = []
        self.servers = servers
        self.instances = types.SimpleNamespace(
            list=self._list,
            get=lambda identity: self.found[identity],
            create=self._create,
        )
        self.flavors = types.SimpleNamespace(
            list=lambda: [types.SimpleNamespace(id='other', name='db.unpooled')]
        )
        self.backups = types.SimpleNamespace(
            list=lambda: [types.SimpleNamespace(id='b-1', name='last', instance_id='i-1')]
        )
        self.found = {'i-1': types.SimpleNamespace(**SOURCE)}
        self.created = []
        self.lists = 0

    def _list(self):
        self.lists += 1
        return list(self.found.values())

    def _create(self, name, **parameters):
        self.created.append(parameters)
        new = {'id': 'i-2', 'name': name, 'status': 'BUILD', 'operating_status': ''}
        self.found['i-2'] = types.SimpleNamespace(**new)
        return self.found['i-2']

    def at(self, second, event):
        self.events.append((second, event))

    def sleep(self, seconds):
        self.now += seconds
        for event in [one for one in self.events if one[0] <= self.now]:
            self.events.remove(event)
            event[1]()

    def start_wait(self, timeout_sec):
        return waiting.Deadline(timeout_sec, lambda: self.now, self.sleep)


class Process:
    """Fake of the command that waits for a failover."""

    def __init__(self, status=None):
        self.status = status
        self.terminated = False

    def poll(self):
        return self.status

    def terminate(self):
        self.terminated = True


class OperationsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.servers = fake_ledger.Servers()
        self.cloud = Cloud(self.servers)
        self.process = Process()
        self.output, self.figures = [], {}
        self.operations = first_commit.Operations(
            self.cloud,
            ledger.Client(model.Address('app', 'secret', 'shop'), self.servers.connect),
            lambda: self.output.append('begin'),
            self.output.append,
            self.figures.__setitem__,
            self.kill,
            self.fail_over,
            timeout_sec=60,
            start_wait=self.cloud.start_wait,
        )

    def kill(self, instance_id):
        self.output.append(f'kill {instance_id}')
        self.acknowledged = self.servers.kill(PUBLIC['address'])

    def fail_over(self, instance_id):
        self.output.append(f'failover {instance_id}')
        return self.process

    def appear(self, host=NEW, rows=0):
        """Give the new instance its public address, where it serves."""
        self.cloud.found['i-2'].addresses = [PRIVATE, {'address': host, 'type': 'public'}]
        self.servers.rows[host] = rows

    def test_create_ends_with_the_first_commit(self):
        self.cloud.at(30, self.appear)
        self.operations.create('new', 'shop')
        self.assertEqual(['begin', 'request', 'first-commit'], self.output)
        self.assertEqual(1, self.servers.rows[NEW])
        # The private address is not that of the tenant's clients.
        self.assertEqual({NEW}, {login['host'] for login in self.servers.logins})
        self.assertLess(self.cloud.now, 30 + trove_operations.INSTANCE_POLL_SEC)
        (parameters,) = self.cloud.created
        self.assertEqual(
            {
                'flavor_id': 'small',
                'volume': {'size': 2, 'type': 'nvme'},
                'datastore': 'mysql',
                'datastore_version': '9.7.4',
                'nics': [{'net-id': 'net-1'}],
                'access': {'is_public': True},
                'availability_zone': None,
                'databases': [{'name': 'shop'}],
                'users': [{'name': 'app', 'password': 'secret', 'databases': [{'name': 'shop'}]}],
            },
            parameters,
        )

    def test_create_in_a_zone_at_a_private_address(self):
        self.cloud.found['i-1'].addresses = [PRIVATE]

        def serve():
            self.cloud.found['i-2'].addresses = [PRIVATE]
            self.servers.rows[PRIVATE['address']] = 0

        self.cloud.at(1, serve)
        self.operations.create('new', 'shop', 'nova')
        (parameters,) = self.cloud.created
        self.assertEqual('nova', parameters['availability_zone'])
        self.assertEqual({'is_public': False}, parameters['access'])

    def test_create_with_another_flavor(self):
        self.cloud.at(1, self.appear)
        self.operations.create('new', 'shop', flavor='db.unpooled')
        (parameters,) = self.cloud.created
        self.assertEqual('other', parameters['flavor_id'])

    def test_a_flavor_that_does_not_exist(self):
        self.assertRaises(
            exceptions.TargetUnavailableError,
            *(self.operations.create, 'new', 'shop', None, 'db.none'),
        )
        self.assertEqual(([], []), (self.output, self.cloud.created))

    def test_failed_instance_is_an_error(self):
        self.cloud.at(3, lambda: vars(self.cloud.found['i-2']).update(status='ERROR'))
        error = self.assertRaises(exceptions.LoadFailedError, self.operations.create, 'new', 'shop')
        self.assertIn('instance i-2 is ERROR: no reason given', str(error))

    def test_wait_is_bounded(self):
        error = self.assertRaises(exceptions.LoadFailedError, self.operations.create, 'new', 'shop')
        self.assertIn('i-2: no commit within 60 s; it is BUILD', str(error))
        self.assertIn('last error of the client: none', str(error))

    def test_server_that_never_answers_is_told(self):
        self.cloud.at(1, self.appear)
        self.cloud.at(1, lambda: self.servers.kill(NEW))
        error = self.assertRaises(exceptions.LoadFailedError, self.operations.create, 'new', 'shop')
        self.assertIn("Can't connect to MySQL server", str(error))

    def test_cloud_is_asked_seldom_when_the_address_is_known(self):
        self.cloud.at(1, self.appear)
        self.cloud.at(1, lambda: self.servers.kill(NEW))
        self.cloud.at(48, self.appear)
        self.operations.create('new', 'shop')
        # For the instance to resemble, at 0 and 2 s, and then each 15 s.
        self.assertEqual(1 + 2 + 3, self.cloud.lists)
        self.assertEqual(48, round(self.cloud.now))

    def test_restore(self):
        self.cloud.at(5, lambda: self.appear(rows=12))
        self.operations.restore('last', 'copy')
        self.assertEqual(['begin', 'request', 'first-commit'], self.output)
        (parameters,) = self.cloud.created
        self.assertEqual({'backupRef': 'b-1'}, parameters['restorePoint'])
        self.assertEqual({'is_public': True}, parameters['access'])
        self.assertNotIn('users', parameters)

    def serve_victim(self):
        self.servers.rows[PUBLIC['address']] = 0

    def return_with(self, lost):
        """Let the killed server return at its address, without some rows.

        It has a row too that was committed, but not acknowledged.
        """
        numbers = self.acknowledged[: len(self.acknowledged) - lost]
        numbers.append(self.acknowledged[-1] + 1)
        self.servers.rows[PUBLIC['address']] = len(numbers)
        self.servers.numbers[PUBLIC['address']] = numbers

    def test_failover_loses_nothing(self):
        self.serve_victim()
        self.cloud.at(20, lambda: self.return_with(lost=0))
        self.operations.fail_over('shop')
        self.assertEqual(['kill i-1', 'begin', 'failover i-1', 'first-commit'], self.output)
        self.assertGreaterEqual(len(self.acknowledged), first_commit.LEAD_ROWS)
        self.assertEqual({first_commit.LOST: 0}, self.figures)
        self.assertTrue(self.process.terminated)

    def test_lost_commits_fail_a_failover(self):
        self.serve_victim()
        self.cloud.at(20, lambda: self.return_with(lost=3))
        error = self.assertRaises(exceptions.LoadFailedError, self.operations.fail_over, 'shop')
        self.assertIn('acknowledged commits are lost', str(error))
        self.assertEqual({first_commit.LOST: 3}, self.figures)

    def test_failed_failover_is_an_error(self):
        self.serve_victim()
        self.process.status = 1
        error = self.assertRaises(exceptions.LoadFailedError, self.operations.fail_over, 'shop')
        self.assertIn('the failover failed: exit status 1', str(error))

    def test_server_that_was_not_killed_is_an_error(self):
        self.serve_victim()
        self.operations._kill = lambda instance_id: None
        error = self.assertRaises(exceptions.LoadFailedError, self.operations.fail_over, 'shop')
        self.assertIn('still served its client', str(error))

    def test_instance_without_the_client_is_an_error(self):
        error = self.assertRaises(exceptions.LoadFailedError, self.operations.fail_over, 'shop')
        self.assertIn('i-1: no commit at 198.51.100.1; create it with', str(error))
        self.assertEqual([], self.output)

    def test_recovery_reports_lost_commits(self):
        self.serve_victim()
        self.cloud.at(40, lambda: self.appear(rows=1))
        self.operations.recover('shop', 'last', 'recovered')
        self.assertEqual(['kill i-1', 'begin', 'request', 'first-commit'], self.output)
        self.assertEqual({first_commit.LOST: len(self.acknowledged)}, self.figures)


class CommandTest(base.BaseTestCase):
    def call(self, *words, environ=ENVIRON, **method):
        """Run a command line, with a fake of a method."""
        clients = 'trove_ceph_bench.targets.cloud.clients'
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch(clients, return_value=(None, None)))
            for name, fake in method.items():
                stack.enter_context(mock.patch.object(first_commit.Operations, name, fake))
            first_commit.main(arguments.parse(['first-commit', *words]), environ)

    def test_verbs_are_methods_with_their_arguments(self):
        for words, method, expected in (
            (
                ('create', 'new', '--like', 'shop', '--zone', 'nova'),
                'create',
                {'name': 'new', 'like': 'shop', 'flavor': None, 'zone': 'nova'},
            ),
            (
                ('create', 'new', '--like', 'shop', '--flavor', 'db.unpooled'),
                'create',
                {'name': 'new', 'like': 'shop', 'flavor': 'db.unpooled', 'zone': None},
            ),
            (
                ('restore', 'last', 'copy'),
                'restore',
                {'backup': 'last', 'name': 'copy', 'zone': None},
            ),
            (('fail-over', 'shop'), 'fail_over', {'instance': 'shop'}),
            (
                ('recover', 'shop', 'last', 'copy'),
                'recover',
                {'instance': 'shop', 'backup': 'last', 'name': 'copy'},
            ),
        ):
            called = mock.create_autospec(getattr(first_commit.Operations, method))
            self.call(*words, **{method: called})
            self.assertEqual(expected, called.call_args.kwargs)

    def test_sigterm_ends_it_through_its_cleanup_handlers(self):
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.call('fail-over', 'shop', fail_over=mock.Mock())
        handler = signal.getsignal(signal.SIGTERM)
        error = self.assertRaises(SystemExit, handler, signal.SIGTERM, None)
        self.assertEqual(143, error.code)

    def test_reports_a_refusal_of_the_cloud(self):
        refused = mock.Mock(side_effect=troveclient.exceptions.Forbidden('quota'))
        error = self.assertRaises(
            exceptions.LoadFailedError, self.call, 'fail-over', 'shop', fail_over=refused
        )
        self.assertIn('refused fail-over: quota', str(error))

    def test_needs_the_client(self):
        error = self.assertRaises(
            exceptions.LoadFailedError, self.call, 'fail-over', 'shop', environ={}
        )
        self.assertIn('BENCH_USER is not set', str(error))
