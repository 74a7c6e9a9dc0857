# SPDX-License-Identifier: Apache-2.0
"""How the guest manager starts MySQL on a volume: restored, rebuilt or moved."""

import functools
from unittest import mock

import fixtures
import testtools
from trove.common import cfg
from trove.guestagent.datastore.mysql_common import manager as common_manager

from trove_ceph import exceptions
from trove_ceph.guestagent import read_only, semi_sync
from trove_ceph.tests.unit.guestagent import manager_world
from trove_ceph.tests.unit.trove_adapter import contract

CONF = cfg.CONF


def stock_do_prepare(done):
    """Return a function with the signature of Trove's method."""
    own = common_manager.MySqlManager.do_prepare

    @functools.wraps(own)
    def prepare(_self, *arguments, **options):
        done(*arguments, **options)

    return prepare


class ManagerStartTest(manager_world.ManagerTestCase):
    def prepare(self, **facts):
        """Prepare as Trove's base class does, and return the actions in order."""
        values = {
            'packages': None,
            'databases': None,
            'memory_mb': 1024,
            'users': None,
            'device_path': '/dev/vdb',
            'mount_point': '/var/lib/mysql',
            'backup_info': {'id': 'b', 'storage_driver': 'cinder'},
            'config_contents': '[mysqld]',
            'root_password': None,
            'overrides': {'max_connections': 7},
            'cluster_config': None,
            'snapshot': None,
        }
        done = mock.Mock()
        self.manager.app = self.manager.adm.mysql_app = done.app
        self.manager.status = done.status
        self.manager._replication = done.replication
        self.volume.mark_clone = done.mark_clone
        self.manager.adm.is_root_enabled = lambda: facts.pop('root', False)
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.guestagent.restored_server.RestoredServer',
                lambda _app, data_dir, is_replica: mock.Mock(
                    start=lambda *given: done.start(data_dir, *given, is_replica)
                ),
            )
        )
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.guestagent.datastore.mysql_common.manager.MySqlManager.do_prepare',
                stock_do_prepare(done.stock),
            )
        )
        given = {name: facts.get(name, value) for name, value in values.items()}
        self.manager.do_prepare('context', *given.values(), ds_version='9.7.4')
        return done.mock_calls

    def test_restored_server_is_started_once(self):
        self.assertEqual(
            [
                mock.call.app.stop_db(),
                mock.call.app.set_data_dir('/var/lib/mysql/data'),
                mock.call.app.configuration_manager.reset_configuration('[mysqld]'),
                mock.call.app.update_overrides({'max_connections': 7}),
                mock.call.mark_clone(),
                mock.call.start(
                    '/var/lib/mysql/data', '9.7.4', '--datadir=/var/lib/mysql/data', False
                ),
            ],
            self.prepare(),
        )

    def test_restored_server_whose_tenant_had_root(self):
        self.assertEqual(mock.call.status.report_root('context'), self.prepare(root=True)[-1])

    def test_other_instances_are_prepared_by_trove(self):
        for backup_info in (None, {'id': 'b', 'storage_driver': 'swift'}):
            ((name, arguments, options),) = self.prepare(backup_info=backup_info)
            self.assertEqual(('stock', 'context'), (name, arguments[0]))
            self.assertEqual(13, len(arguments))
            self.assertEqual({'ds_version': '9.7.4'}, options)

    def start_on_volume(self, method, *arguments, error=None, is_running_there=False):
        """Start on a moved volume; return the answer, and the actions in order."""
        done = mock.Mock()
        self.volume.mount_point = '/var/lib/mysql'
        self.manager.app = done.app
        self.manager.status = done.status
        self.manager.status.is_installed = is_running_there
        done.app.accepts_clients.return_value = is_running_there
        done.app.find_error.return_value = '[ERROR] unknown variable x'
        done.start.side_effect = error
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.guestagent.moved_server.MovedServer',
                lambda _app, data_dir: mock.Mock(start=lambda *given: done.start(data_dir, *given)),
            )
        )
        self.manager._replication = done.replication
        pending = []
        self.manager._background_start._run_in_background = pending.append
        try:
            answer = getattr(self.manager, method)('context', *arguments)
        except RuntimeError as raised:
            return raised, done.mock_calls
        for function in pending:
            function()
        return answer, done.mock_calls

    STARTED = (
        mock.call.status.begin_install(),
        mock.call.app.set_data_dir('/var/lib/mysql/data'),
        mock.call.app.configuration_manager.reset_configuration('[mysqld]'),
        mock.call.app.update_overrides({'max_connections': 7}),
        mock.call.replication.prepare_start(mock.ANY, '/var/lib/mysql/data'),
        mock.call.start('/var/lib/mysql/data', '9.7.4', '--datadir=/var/lib/mysql/data'),
    )
    FOLLOWS = mock.call.replication.follow_under_own_identity(mock.ANY)
    OF_THE_SERVER = ('9.7.4', '[mysqld]', {'max_connections': 7})

    #: Until it is known whether the instance is a replica.
    REFUSES_WRITES = mock.call.app.configuration_manager.apply_system_override(
        {'mysqld': read_only.REPLICA_OPTIONS}, read_only.REPLICA_CHANGE_ID
    )

    def test_rebuilt_server(self):
        _answer, done = self.start_on_volume('rebuild', *self.OF_THE_SERVER)
        ended = mock.call.status.end_install(error_occurred=False)
        # Whether it is a source is known to the taskmanager.
        self.assertEqual([self.REFUSES_WRITES, *self.STARTED, self.FOLLOWS, ended], done)

    def test_rebuilt_server_that_does_not_start(self):
        error, done = self.start_on_volume('rebuild', *self.OF_THE_SERVER, error=RuntimeError())
        self.assertIsInstance(error, RuntimeError)
        ended = mock.call.status.end_install(error_occurred=True)
        # It may serve later, and is reported then.
        reported = mock.call.status.set_ready()
        self.assertEqual([self.REFUSES_WRITES, *self.STARTED, ended, reported], done)

    def start_moved(self, *roles, request='a-replacement', **options):
        """Request the start.

        :param roles: the arguments that a source or a replica has besides
        """
        self.checked = checked = []

        def check(server_id):
            checked.append(server_id)
            if server_id != self.own_server:
                raise exceptions.GuestUnavailableError('this is another server')
            return server_id

        self.useFixture(fixtures.MonkeyPatch('trove_ceph.guestagent.machine_identity.check', check))
        arguments = (request, *self.OF_THE_SERVER, 'a-server', *roles)
        return self.start_on_volume('start_moved_server', *arguments, **options)

    #: The server of the agent, and an answer of it.
    own_server = 'a-server'

    @staticmethod
    def answer(state, error=''):
        return {'state': state, 'error': error, 'server_id': 'a-server'}

    def test_moved_server(self):
        answer, done = self.start_moved()
        self.assertEqual(self.answer('starting'), answer)
        ended = mock.call.status.end_install(error_occurred=False)
        self.assertEqual([*self.STARTED, self.FOLLOWS, ended], done)
        answer, done = self.start_moved()
        self.assertEqual((self.answer('serving'), []), (answer, done))

    def test_moved_replica(self):
        """The options with which it refuses writes were on the root disk of the old server."""
        _answer, done = self.start_moved(True)
        ended = mock.call.status.end_install(error_occurred=False)
        self.assertEqual([self.REFUSES_WRITES, *self.STARTED, self.FOLLOWS, ended], done)

    def test_moved_servers_with_semi_synchronous_replication(self):
        for as_source in (True, False):
            roles = {'as_source': as_source, 'as_replica': not as_source, 'timeout_ms': 500}
            _answer, done = self.start_moved(False, roles, request=f'moved-{as_source}')
            states = ('ON', 'OFF') if as_source else ('OFF', 'ON')
            configuration = mock.call.app.configuration_manager
            self.assertEqual(
                [
                    configuration.replace_system_override(
                        {
                            'mysqld': {
                                'loose_rpl_semi_sync_source_enabled': states[0],
                                'loose_rpl_semi_sync_replica_enabled': states[1],
                                'loose_rpl_semi_sync_source_timeout': 500,
                            }
                        },
                        semi_sync.CHANGE_ID,
                    ),
                ],
                done[:1],
            )
            self.assertEqual([*self.STARTED], done[1 : 1 + len(self.STARTED)])

    def test_moved_server_that_is_another_one(self):
        """The old server's agent has the topic and the key of the instance too."""
        self.own_server = 'the-old-server'
        self.assertRaises(exceptions.GuestUnavailableError, self.start_moved)
        self.assertEqual(['a-server'], self.checked)
        self.assertEqual([], self.manager.app.mock_calls)

    def test_moved_server_that_does_not_start(self):
        """From then on, the agent reports its status, which the tenant may repair."""
        _answer, done = self.start_moved(error=RuntimeError('Failed to start mysql'))
        self.assertEqual(
            [
                *self.STARTED,
                mock.call.status.end_install(error_occurred=True),
                mock.call.status.set_ready(),
                mock.call.app.find_error(),
            ],
            done,
        )
        answer, done = self.start_moved()
        error = 'Failed to start mysql: [ERROR] unknown variable x'
        self.assertEqual((self.answer('failed', error), []), (answer, done))
        _answer, done = self.start_moved()
        self.assertEqual(mock.call.status.end_install(error_occurred=False), done[-1])

    def test_moved_server_after_a_restart_of_the_agent(self):
        answer, done = self.start_moved(is_running_there=True)
        self.assertEqual(self.answer('serving'), answer)
        self.assertEqual([mock.call.app.accepts_clients()], done)

    @testtools.skipIf(contract.IS_TROVE_25, 'Trove 25 has no certificates')
    def test_certificates_of_a_moved_server(self):
        CONF.set_override('ssl_mode', 'basic')
        self.addCleanup(CONF.clear_override, 'ssl_mode')
        enabled = mock.Mock()
        self.manager._read_ssl_files = lambda: 'the files'
        self.manager.enable_ssl_certificate = enabled
        self.start_on_volume('rebuild', *self.OF_THE_SERVER)
        enabled.assert_called_once_with(
            'basic', 'the files', apply_overrides=False, is_startup=True
        )
