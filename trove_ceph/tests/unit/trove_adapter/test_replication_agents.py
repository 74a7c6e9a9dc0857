# SPDX-License-Identifier: Apache-2.0
"""What the control plane accepts from the guest agents of a source and of its replicas."""

import uuid

import fixtures
import oslo_messaging as messaging
from oslotest import base
from trove.common import exception as trove_exceptions

from trove_ceph import exceptions
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replacement.dependencies import StartProgress, StartState
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import guest_rpcapi, replication_agents

SOURCE = '11111111-2222-3333-4444-555555555555'
REPLICA = '99999999-2222-3333-4444-555555555555'
STATUS = {
    'server_uuid': REPLICA,
    'gtid_executed': f'{SOURCE}:1-5',
    'gtid_received': f'{SOURCE}:4-6',
    'is_replica': True,
    'source_host': '192.0.2.1',
    'source_uuid': SOURCE,
    'io_state': 'ON',
    'sql_state': 'OFF',
    'io_error': '',
    'sql_error': 'Could not\nexecute',
    'io_error_number': 0,
    'sql_error_number': 1062,
    'lag_sec': 3,
    'is_read_only': True,
    'uptime_sec': 7,
    'semi_sync_source': False,
    'semi_sync_replica': True,
    'semi_sync_clients': 0,
    'semi_sync_waits': False,
}
CONTEXT = {
    'master': {'host': '192.0.2.1', 'port': 3306},
    'replica_conf': {
        'log_position': {},
        'replication_user': {'name': 'slave_0123456789', 'password': 'Secret-1234'},
    },
}
CERTIFICATES = {
    'cert_container': {'private_key': 'key', 'certificate': 'cert', 'ca': 'ca'},
    'ssl_mode': 'enforced',
}


class Guest(guest_rpcapi.GuestAPI):
    """An agent that answers as a test says."""

    agent_low_timeout, agent_high_timeout = 15, 180

    def __init__(self, instance_id):
        self.id = instance_id
        self.calls = []
        self.answer = None

    def _call(self, method_name, timeout_sec, version, **kwargs):
        self.calls.append((method_name, timeout_sec, kwargs))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def last(self):
        method, _timeout_sec, arguments = self.calls[-1]
        return method, arguments


class AgentsTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.guest = Guest('an-instance')
        self.agents = replication_agents.ReplicationAgents(self.find, self.find_flavor)

    def find(self, instance_id):
        self.assertEqual(self.guest.id, instance_id)
        return self.guest

    def find_flavor(self, flavor_id):
        return {'id': flavor_id, 'ram': 1024, 'vcpus': 1}

    def refused(self, verb, answer, *arguments):
        self.guest.answer = answer
        error = self.assertRaises(
            exceptions.GuestUnavailableError,
            getattr(self.agents, verb),
            self.guest.id,
            *arguments,
        )
        self.assertLess(len(str(error)), 1000)
        return str(error)


class ReplicationAgentsTest(AgentsTestCase):
    def test_status(self):
        self.guest.answer = STATUS
        self.assertEqual(
            ReplicationStatus(
                server_uuid=REPLICA,
                gtid_executed=GtidSet.parse(f'{SOURCE}:1-5'),
                gtid_received=GtidSet.parse(f'{SOURCE}:4-6'),
                is_replica=True,
                source_host='192.0.2.1',
                source_uuid=SOURCE,
                io_state=ThreadState.ON,
                sql_state=ThreadState.OFF,
                sql_error='Could not execute',
                sql_error_number=1062,
                lag_sec=3.0,
                is_read_only=True,
                uptime_sec=7.0,
                semi_sync_replica=True,
                semi_sync_waits=False,
            ),
            self.agents.status(self.guest.id),
        )

    def test_agent_of_an_earlier_release(self):
        newer = ('semi_sync_waits', 'uptime_sec')
        self.guest.answer = {name: value for name, value in STATUS.items() if name not in newer}
        found = self.agents.status(self.guest.id)
        self.assertEqual((None, None), (found.semi_sync_waits, found.uptime_sec))
        self.agents.status(self.guest.id, 5)
        expected = [('get_replication_status', limit_sec, {}) for limit_sec in (15, 5)]
        self.assertEqual(expected, self.guest.calls)

    def test_replicating_is_to_receive_and_to_apply(self):
        for io_state, sql_state, expected in (
            ('ON', 'ON', True),
            ('CONNECTING', 'ON', False),
            ('ON', 'OFF', False),
            ('OFF', 'OFF', False),
        ):
            self.guest.answer = STATUS | {'io_state': io_state, 'sql_state': sql_state}
            self.assertEqual(expected, self.agents.status(self.guest.id).is_replicating)

    def test_status_that_is_not_valid(self):
        for name, value in (
            ('server_uuid', 'x' * 100_000),
            ('gtid_executed', 'DROP TABLE'),
            ('gtid_received', f'{SOURCE}:1,' * 100_000),
            ('is_replica', 1),
            ('io_state', 'YES'),
            ('io_state', ['ON']),
            ('io_error', None),
            ('sql_error_number', True),
            ('lag_sec', -1),
            ('lag_sec', float('nan')),
            ('lag_sec', '3'),
            ('uptime_sec', -1),
            ('semi_sync_clients', 'many'),
            ('semi_sync_waits', None),
        ):
            self.assertIn(name, self.refused('status', STATUS | {name: value}))
        self.assertIn('expected a mapping', self.refused('status', []))

    def test_unknown_lag(self):
        self.guest.answer = STATUS | {'lag_sec': None}
        self.assertIsNone(self.agents.status(self.guest.id).lag_sec)

    def test_texts_of_a_guest_are_short_lines(self):
        self.guest.answer = STATUS | {'io_error': 'a\x1b[31m\n' + 'x' * 10_000}
        error = self.agents.status(self.guest.id).io_error
        self.assertEqual('a [31m x', error[:8])
        self.assertEqual(guest_rpcapi.MAX_ERROR_CHARACTERS, len(error))

    def test_only_known_fields_of_a_context_are_passed_on(self):
        self.guest.answer = CONTEXT | {'dataset': {'snapshot_href': 'evil'}}
        self.assertEqual(CONTEXT, self.agents.replica_context(self.guest.id, 'a-replica'))
        self.assertEqual(('get_replica_context', {'replica_id': 'a-replica'}), self.guest.last())
        self.guest.answer = CONTEXT | CERTIFICATES
        self.assertEqual(CONTEXT | CERTIFICATES, self.agents.replica_context(self.guest.id))

    def test_context_that_is_not_valid(self):
        user = CONTEXT['replica_conf']['replication_user']
        for name, changed in (
            ('host', {'master': {'host': "x', MASTER_LOG", 'port': 3306}}),
            ('port', {'master': {'host': '192.0.2.1', 'port': 70000}}),
            ('name', {'replica_conf': {'replication_user': user | {'name': 'root'}}}),
            ('replication_user', {'replica_conf': {}}),
            ('ssl_mode', CERTIFICATES | {'ssl_mode': 'none'}),
            ('ca', CERTIFICATES | {'cert_container': {'private_key': '', 'certificate': ''}}),
        ):
            self.assertIn(name, self.refused('replica_context', CONTEXT | changed))

    def test_password_that_is_not_valid_is_not_shown(self):
        user = {'name': 'slave_0123456789', 'password': "secret'"}
        error = self.refused(
            'replica_context', CONTEXT | {'replica_conf': {'replication_user': user}}
        )
        self.assertNotIn('secret', error)

    def test_agent_that_does_not_answer(self):
        for verb, arguments in (
            ('status', ()),
            ('attach', (CONTEXT,)),
            ('detach', ()),
            ('enable_as_source', ()),
            ('demote_source', ()),
            ('make_read_only', (True,)),
            ('release_volume', ()),
        ):
            self.refused(verb, trove_exceptions.GuestTimeout(), *arguments)

    def test_an_agent_that_is_silent_is_not_one_that_fails(self):
        for answer, is_silent in (
            (trove_exceptions.GuestTimeout(), True),
            (trove_exceptions.GuestError(original_message='MySQL does not run'), False),
        ):
            self.guest.answer = answer
            error = self.assertRaises(
                exceptions.GuestUnavailableError, self.agents.status, self.guest.id
            )
            self.assertEqual(is_silent, isinstance(error, exceptions.GuestSilentError))

    def test_verbs(self):
        for verb, arguments, method, expected in (
            ('drop_replication_users', ({'b', 'a'},), '', {'keep_replica_ids': ['a', 'b']}),
            ('make_read_only', (True,), '', {'read_only': True}),
            ('stop_receiving', (), '', {}),
            ('detach', (True,), 'detach_replica', {'for_failover': True}),
            ('enable_as_source', (), 'enable_as_master', {'replica_source_config': ''}),
            ('demote_source', (), 'demote_replication_master', {}),
            ('release_volume', (), '', {}),
            (
                'set_semi_sync',
                (True, False, 5000),
                '',
                {'as_source': True, 'as_replica': False, 'timeout_ms': 5000},
            ),
            (
                'attach',
                (CONTEXT,),
                'attach_replica',
                {'replica_info': CONTEXT, 'slave_config': '', 'restart': False},
            ),
        ):
            getattr(self.agents, verb)(self.guest.id, *arguments)
            self.assertEqual((method or verb, expected), self.guest.last())

    def test_wait_is_bounded(self):
        self.guest.answer = 1
        executed = GtidSet.parse(f'{SOURCE}:1-5')
        self.assertIs(True, self.agents.wait_for_gtid(self.guest.id, executed, 600))
        self.assertEqual(
            [('wait_for_gtid', 45, {'gtid_set': f'{SOURCE}:1-5', 'wait_sec': 30})],
            self.guest.calls,
        )


class CallTest(base.BaseTestCase):
    """The call of an agent, with a client of the message bus that acts as the test says."""

    def setUp(self):
        super().setUp()
        self.logged = self.useFixture(fixtures.FakeLogger())
        self.guest = guest_rpcapi.GuestAPI.__new__(guest_rpcapi.GuestAPI)
        self.guest.context, self.guest.id, self.guest.client = 'context', 'an-instance', self
        self.guest.agent_high_timeout = 180
        self.answer = CONTEXT

    def prepare(self, version, timeout):
        self.assertEqual(('1.0', 180), (version, timeout))
        return self

    def call(self, context, method, **arguments):
        self.assertEqual(('context', 'get_replica_context'), (context, method))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def test_answer_is_not_logged(self):
        self.assertEqual(CONTEXT, self.guest.get_replica_context())
        self.assertNotIn('Secret-1234', self.logged.output)

    def test_errors(self):
        for error, reason in (
            (messaging.MessagingTimeout(), 'Timeout'),
            (messaging.RemoteError('Error', 'a reason'), 'a reason'),
            (ConnectionError('no bus'), 'no bus'),
        ):
            self.answer = error
            raised = self.assertRaises(
                exceptions.GuestUnavailableError, self.guest.get_replica_context
            )
            self.assertIn(reason, str(raised))


class StartTest(AgentsTestCase):
    def setUp(self):
        super().setUp()
        trove_database.path()
        self.instance = trove_database.add_instance(f'project-{uuid.uuid4()}', 'volume')
        self.guest.id = self.instance.id
        self.guest.answer = {'state': 'starting', 'error': ''}

    def test_start_of_a_replica(self):
        progress = self.agents.start_replica(self.guest.id, 'a-request', CONTEXT)
        self.assertEqual(StartProgress(StartState.STARTING), progress)
        method, arguments = self.guest.last()
        self.assertEqual('start_replica', method)
        self.assertIn('[mysqld]', arguments.pop('config_contents'))
        self.assertEqual(
            {
                'request_id': 'a-request',
                'ds_version': '9.7',
                'config_overrides': {},
                'replica_info': CONTEXT,
            },
            arguments,
        )

    def test_start_on_the_old_volume(self):
        self.guest.answer = {'state': 'failed', 'error': 'no\nroom'}
        progress = self.agents.start_on_old_volume(self.guest.id, 'a-request')
        self.assertEqual(StartProgress(StartState.FAILED, 'no room'), progress)
        method, arguments = self.guest.last()
        self.assertEqual(('start_moved_server', 'a-request'), (method, arguments['replacement_id']))

    def test_deleted_instance(self):
        self.instance.update(deleted=True)
        self.assertRaises(
            exceptions.ReplacementCanceledError,
            self.agents.start_on_old_volume,
            self.guest.id,
            'a-request',
        )
        self.assertEqual([], self.guest.calls)

    def test_answer_that_is_no_state(self):
        self.refused('start_replica', {'state': 'ready', 'error': ''}, 'a-request', CONTEXT)
