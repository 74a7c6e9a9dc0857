# SPDX-License-Identifier: Apache-2.0
"""What the guest manager does for sources and replicas, besides what it delegates."""

import types
from unittest import mock

import fixtures
import testtools
from oslotest import base

# Registers the option ssl_mode.
from trove.cmd import guest as _trove_guest  # noqa: F401
from trove.common import cfg
from trove.guestagent.datastore.mysql import service as mysql_service

from trove_ceph import exceptions
from trove_ceph.conf import guest as guest_conf
from trove_ceph.guestagent import accounts, manager, read_only, replication
from trove_ceph.tests.unit.guestagent import replication_world
from trove_ceph.tests.unit.trove_adapter import contract

CONF = cfg.CONF
CONTEXT = {
    'master': {'host': '192.0.2.1', 'port': 3306},
    'replica_conf': {'replication_user': {'name': 'slave_0123456789', 'password': 'Secret-1'}},
}
CERTIFICATES = {'cert_container': 'the files', 'ssl_mode': 'enforced'}
DATA = '/var/lib/mysql/data'
COMMAND = f'--datadir={DATA}'
OF_THE_SERVER = ('9.7.4', '[mysqld]', {'max_connections': 7})


def _context():
    """Return the context of a request, and the list of what is notified of its end."""
    sent = []
    end = types.SimpleNamespace(
        server_type='api',
        payload={},
        notify_end=lambda: sent.append('end'),
        notify_exc_info=lambda message, _traceback: sent.append(message),
    )
    return types.SimpleNamespace(notification=end), sent


class ManagerReplicationTest(base.BaseTestCase):
    """``self.done`` records all actions in order."""

    def setUp(self):
        super().setUp()
        guest_conf.register(CONF)
        self.option('datastore_manager', 'mysql')
        self.option('datastore_version', '9.7.4')
        self.option('guest_id', 'an-instance')
        self.useFixture(fixtures.MonkeyPatch('docker.from_env', mock.Mock()))
        self.done = done = mock.Mock()
        done.volume.mount_point = '/var/lib/mysql'
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.host.data_volume.DataVolume', lambda *_arguments: done.volume
            )
        )
        for module, name in (('restored_server', 'Restored'), ('moved_server', 'Moved')):
            self.useFixture(
                fixtures.MonkeyPatch(
                    f'trove_ceph.guestagent.{module}.{name}Server',
                    lambda _app, _data, name=name, **options: mock.Mock(
                        start=lambda *given: done.start(name, *given, **options)
                    ),
                )
            )
        self.manager = manager.Manager()
        self.manager.app = done.app
        self.manager.status = done.status
        self.manager._replication = done.replication
        self.manager._trimmer, self.manager._watch = done.trimmer, done.watch
        self.manager.adm = mock.Mock()
        self.manager.adm.is_root_enabled.return_value = False
        self.manager.enable_ssl_certificate = done.enable_ssl_certificate
        self.manager._read_ssl_files = lambda: 'the files'
        done.app.find_error.return_value = None
        done.replication.is_done.return_value = False
        self.pending = []
        self.manager._background_start._run_in_background = self.pending.append

    def option(self, name, value):
        CONF.set_override(name, value)
        self.addCleanup(CONF.clear_override, name)

    def actions(self, *excepted):
        """Return the names of the actions, without those on the volume's queue."""
        names = [name for name, _arguments, _options in self.done.mock_calls]
        return [name for name in names if name not in ('volume.configure_queue', *excepted)]

    def start_replica(self, request_id='a-request', context=CONTEXT):
        answer = self.manager.start_replica(None, request_id, *OF_THE_SERVER, context)
        while self.pending:
            self.pending.pop()()
        return answer['state']

    def test_strategy_is_ours_whatever_the_instance_was_created_with(self):
        self.assertIsInstance(manager.Manager().replication, replication.CloneReplication)

    @testtools.skipIf(contract.IS_TROVE_25, 'Trove 25 has no certificates')
    def test_replica_is_prepared_in_one_start(self):
        self.manager.adm.is_root_enabled.return_value = True
        self.manager.do_prepare(
            'context',
            packages=None,
            databases=None,
            memory_mb=1024,
            users=None,
            device_path='/dev/vdb',
            mount_point='/var/lib/mysql',
            backup_info={'id': 'b', 'storage_driver': 'cinder'},
            config_contents='[mysqld]',
            root_password=None,
            overrides={},
            cluster_config=None,
            snapshot=CONTEXT | CERTIFICATES,
            ds_version='9.7.4',
        )
        started = mock.call.start('Restored', '9.7.4', COMMAND, is_replica=True)
        self.assertIn(started, self.done.mock_calls)
        followed = mock.call.replication.connect_to_master(self.manager.app, CONTEXT | CERTIFICATES)
        self.assertEqual(followed, self.done.mock_calls[-1])
        self.assertEqual(
            [
                'enable_ssl_certificate',
                'app.configuration_manager.apply_system_override',
                'start',
                'replication.connect_to_master',
            ],
            self.actions()[-4:],
        )
        # Trove's record of root is that of the source, which may have disabled it.
        self.done.status.report_root.assert_not_called()
        # Its users require TLS as those of the source; to alter them would be errant.
        self.done.enable_ssl_certificate.assert_called_once_with(
            'enforced', 'the files', apply_overrides=False, is_startup=True
        )

    def test_replica_on_a_fresh_clone(self):
        self.assertEqual('starting', self.start_replica())
        self.assertEqual(
            [
                'app.stop_db',
                'volume.prepare_replacement',
                'status.begin_install',
                'app.set_data_dir',
                'app.configuration_manager.reset_configuration',
                'app.update_overrides',
                'volume.mark_clone',
                'app.configuration_manager.apply_system_override',
                'start',
                'replication.connect_to_master',
                'status.end_install',
                'replication.set_request',
            ],
            self.actions('replication.is_done'),
        )
        self.assertEqual('serving', self.start_replica())

    def test_replica_that_does_not_follow(self):
        self.done.replication.connect_to_master.side_effect = RuntimeError('purged')
        self.start_replica()
        answer = self.manager.start_replica(None, 'a-request', *OF_THE_SERVER, CONTEXT)
        self.assertEqual({'state': 'failed', 'error': 'purged'}, answer)
        self.done.replication.set_request.assert_not_called()
        self.done.replication.connect_to_master.side_effect = None
        self.assertEqual('starting', self.start_replica())
        self.assertEqual('serving', self.start_replica())

    def test_server_that_serves_has_not_been_started_for_the_request(self):
        """Docker starts it on the clone when the machine starts."""
        self.done.status.is_installed = self.done.app.accepts_clients.return_value = True
        self.assertEqual('starting', self.start_replica())

    def test_agent_that_was_restarted_since(self):
        self.done.status.is_installed = self.done.app.accepts_clients.return_value = True
        self.done.replication.is_done.return_value = True
        self.assertEqual('serving', self.start_replica())
        self.done.start.assert_not_called()

    def test_return_to_the_old_volume(self):
        self.start_replica()
        self.done.reset_mock()
        self.manager.start_moved_server(None, 'a-request', *OF_THE_SERVER)
        self.pending.pop()()
        self.assertEqual(
            [
                'volume.prepare_replacement',
                'replication.prepare_start',
                'start',
                'replication.follow_under_own_identity',
            ],
            [
                name
                for name in self.actions()
                if name.startswith(('volume', 'start', 'replication')) and 'status' not in name
            ],
        )
        self.assertEqual('Moved', self.done.start.call_args.args[0])

    def test_released_volume(self):
        for _ in range(2):
            self.done.reset_mock()
            self.manager.release_volume(None)
            self.assertEqual(
                ['app.stop_db', 'trimmer.pause', 'watch.pause', 'volume.ensure_unmounted'],
                self.actions(),
            )

    def test_released_volume_is_started_on_again(self):
        forgotten = []
        self.manager._background_start.forget = lambda: forgotten.append(True)
        self.manager.release_volume(None)
        self.assertEqual([True], forgotten)

    def test_attached_without_a_word_of_the_password(self):
        logged = self.useFixture(fixtures.FakeLogger())
        self.manager.attach_replica(None, CONTEXT, '', restart=False)
        self.done.replication.enable_as_slave.assert_called_once_with(self.manager.app, CONTEXT, '')
        self.assertNotIn('Secret-1', logged.output)

    def test_replica_refuses_passwords_before_trove_logs_them(self):
        users = [{'_name': 'ann', '_host': '%', '_password': 'Secret-1'}]
        calls = (
            ('enable_root', ()),
            ('enable_root_with_password', ('Secret-1',)),
            ('disable_root', ()),
            ('create_user', (users,)),
            ('change_passwords', (users,)),
            ('update_attributes', ('ann', '%', {'password': 'Secret-1'})),
        )
        # Trove's API notifies of the start of these.
        notified = {'create_user', 'change_passwords', 'update_attributes'}
        stock = {
            name: self.useFixture(fixtures.MockPatchObject(mysql_service.MySqlAdmin, name)).mock
            for name in (
                *('enable_root', 'disable_root'),
                *('create_users', 'change_passwords', 'update_attributes'),
            )
        }
        app = replication_world.App()
        self.manager.adm = accounts.Accounts(app)
        for name, given in calls:
            context, sent = _context()
            getattr(self.manager, name)(context, *given)
            self.assertEqual(['end'] if name in notified else [], sent, name)
        self.assertEqual([2, 1, 1, 1, 1], [one.call_count for one in stock.values()])
        read_only.configure_replica(app)
        for name, given in calls:
            context, sent = _context()
            error = self.assertRaises(
                exceptions.UnsafeSettingsError, getattr(self.manager, name), context, *given
            )
            self.assertIn('on its source', str(error))
            self.assertEqual([str(error)] if name in notified else [], sent, name)
        # A source that refuses writes, too: Trove would log the statement, with the password.
        app.configuration_manager.remove_system_override(read_only.REPLICA_CHANGE_ID)
        read_only.refuse_writes(app)
        for name, given in calls:
            context, _sent = _context()
            error = self.assertRaises(
                exceptions.UnsafeSettingsError, getattr(self.manager, name), context, *given
            )
            self.assertIn('one of its replicas is being promoted', str(error))
        self.assertEqual([2, 1, 1, 1, 1], [one.call_count for one in stock.values()])

    def test_a_configuration_leaves_out_what_keeps_a_replica_from_writing(self):
        given = {'event_scheduler': 'ON', 'read_only': 'OFF', 'max_connections': 7}
        self.manager.apply_overrides(None, given)
        self.done.app.configuration_manager.has_system_override.return_value = False
        self.manager.apply_overrides(None, given)
        applied = [call.args[0] for call in self.done.app.apply_overrides.mock_calls]
        self.assertEqual([{'max_connections': 7}, given], applied)

    @testtools.skipIf(contract.IS_TROVE_25, 'Trove 25 has no certificates')
    def test_context_has_the_certificates_of_the_source(self):
        self.done.replication.get_replica_context.return_value = dict(CONTEXT)
        self.assertEqual(CONTEXT, self.manager.get_replica_context(None))
        self.option('ssl_mode', 'enforced')
        self.assertEqual(
            CONTEXT | CERTIFICATES, self.manager.get_replica_context(None, replica_id='a-replica')
        )
        self.done.replication.get_replica_context.assert_called_with(
            self.manager.app, self.manager.adm, 'a-replica'
        )

    def test_status_closes_its_connection(self):
        self.manager.app = replication_world.App()
        self.assertFalse(self.manager.get_replication_status(None)['is_replica'])
        self.assertEqual(1, self.manager.app.closed)

    def test_replication_is_resumed_while_the_server_runs(self):
        self.assertIn('resume_replication', [name for name, _ in manager.Manager._periodic_tasks])
        for is_installed, is_running in ((True, False), (False, True)):
            self.manager.status = mock.Mock(is_installed=is_installed, is_running=is_running)
            self.manager.resume_replication(None)
        self.done.replication.resume.assert_not_called()
        self.manager.status = mock.Mock(is_installed=True, is_running=True)
        self.manager.resume_replication(None)
        self.done.replication.resume.assert_called_once_with(self.manager.app)
