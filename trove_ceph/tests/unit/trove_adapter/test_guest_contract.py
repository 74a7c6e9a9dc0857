# SPDX-License-Identifier: Apache-2.0
"""The private parts of Trove's guest agent that our guest manager relies on.

They are used in ``guestagent``, which runs in the guest and imports nothing of the control plane.
"""

import inspect
from unittest import mock

import docker
import testtools
from trove import rpc
from trove.cmd import guest as trove_guest
from trove.common import cfg as trove_cfg
from trove.common import constants, stream_codecs, utils
from trove.common import exception as trove_exception
from trove.common.rpc import secure_serializer
from trove.common.rpc import serializer as trove_serializer
from trove.guestagent import dbaas
from trove.guestagent.common import configuration, operating_system
from trove.guestagent.datastore import service as base_service
from trove.guestagent.datastore.mysql import manager as mysql_manager
from trove.guestagent.datastore.mysql import service as mysql_service
from trove.guestagent.datastore.mysql_common import manager as common_manager
from trove.guestagent.datastore.mysql_common import service as common_service
from trove.guestagent.strategies import replication as replication_strategy
from trove.guestagent.strategies.replication import mysql_base, mysql_gtid
from trove.guestagent.utils import docker as docker_util
from trove.guestagent.utils import mysql as mysql_util
from trove.instance import models as instance_models

from trove_ceph.guestagent import (
    manager,
    read_only,
    replication,
    server,
    server_config,
    waiting_messages,
)
from trove_ceph.tests.unit.trove_adapter import contract
from trove_ceph.trove_compat import mysql_tls, strict_rpc

CONF = trove_cfg.CONF


class ManagerTest(contract.ContractTestCase):
    """Of ``manager``: what Trove calls, and what is overridden."""

    def test_signatures(self):
        stock = mysql_manager.Manager
        self.assert_signatures(
            (
                stock.do_prepare,
                'context, packages, databases, memory_mb, users, device_path, mount_point, '
                'backup_info, config_contents, root_password, overrides, cluster_config, snapshot, '
                'ds_version=None',
            ),
            (
                common_manager.MySqlManager.__init__,
                "mysql_app, mysql_app_status, mysql_admin, manager_name='mysql'",
            ),
            (
                stock.mount_volume,
                'context, device_path=None, mount_point=None, write_to_fstab=False',
            ),
            (stock.unmount_volume, 'context, device_path=None, mount_point=None'),
            (stock.resize_fs, 'context, device_path=None, mount_point=None, online=False'),
            (stock.get_start_db_params, 'data_dir'),
            (stock.get_service_status, ''),
            (stock.upgrade, 'context, upgrade_info'),
            (stock.attach_replica, 'context, replica_info, slave_config, **kwargs'),
            (mysql_service.MySqlAdmin.__init__, 'app'),
            (mysql_service.MySqlAdmin.is_root_enabled, ''),
            (base_service.BaseDbStatus.__init__, 'docker_client'),
            (base_service.BaseDbStatus.report_root, 'context'),
        )

    def test_accounts(self):
        """Of ``accounts``: which of its methods Trove's manager calls."""
        stock, admin = mysql_manager.Manager, mysql_service.MySqlAdmin
        for verb, name, parameters in (
            (stock.enable_root, 'enable_root', 'root_password=None'),
            (stock.enable_root_with_password, 'enable_root', 'root_password=None'),
            (stock.disable_root, 'disable_root', ''),
            (stock.create_user, 'create_users', 'users'),
            (stock.change_passwords, 'change_passwords', 'users'),
            (stock.update_attributes, 'update_attributes', 'username, hostname, user_attrs'),
        ):
            self.assert_uses(verb, name)
            self.assert_signatures((getattr(admin, name), parameters))

    def test_start_on_a_volume_that_has_a_database(self):
        """As Trove's rebuild, which is replaced."""
        stock = mysql_manager.Manager
        self.assert_signatures(
            (base_service.BaseDbStatus.begin_install, ''),
            (base_service.BaseDbStatus.set_ready, ''),
            (
                base_service.BaseDbStatus.end_install,
                'error_occurred=False, post_processing=False',
            ),
            (docker_util.get_container_logs, "client, name='database', tail=50"),
        )
        self.assert_uses(
            stock.rebuild,
            *('begin_install', 'set_data_dir', 'reset_configuration', 'update_overrides'),
            *('get_start_db_params', 'start_db', 'prepare_error', 'end_install'),
        )

    @testtools.skipIf(contract.IS_TROVE_25, 'Trove 25 has no certificates')
    def test_certificates(self):
        """Of ``trove_compat.mysql_tls``."""
        stock = mysql_manager.Manager
        self.assert_signatures(
            (stock.ssl_mode_at_least, 'current_mode, required_mode'),
            (stock._read_ssl_files, ''),
            (
                stock.enable_ssl_certificate,
                'mode, cert_container, apply_overrides=True, is_startup=False',
            ),
        )
        self.assert_uses(
            stock.rebuild,
            *('ssl_mode_at_least', '_read_ssl_files', 'enable_ssl_certificate'),
        )
        self.assertEqual('basic', mysql_tls.ssl.MODE_BASIC)
        self.assertIn('ssl_mode', CONF)

    def test_overrides_take_what_trove_passes(self):
        for name in ('mount_volume', 'unmount_volume', 'resize_fs', 'rebuild'):
            stock = inspect.signature(getattr(mysql_manager.Manager, name))
            self.assertEqual(stock, inspect.signature(getattr(manager.Manager, name)), name)

    def test_status_that_is_reported(self):
        self.assert_uses(mysql_manager.Manager.update_status, 'get_service_status', 'set_status')

    def test_state_that_is_read(self):
        for name in ('is_installed', 'is_running'):
            self.assertIsInstance(getattr(base_service.BaseDbStatus, name), property)

    def test_options(self):
        self.assertIn('guest_id', CONF)
        for name in ('mount_point', 'device_path', 'database_service_uid'):
            self.assertIn(name, CONF.mysql)
        self.assert_options(volume_format_timeout=120)


class ServerTest(contract.ContractTestCase):
    """Of ``server`` and ``restored_server``: Trove's application object."""

    def test_signatures(self):
        stock = mysql_service.MySqlApp
        self.assert_signatures(
            (stock.__init__, 'status, docker_client'),
            (stock.get_backup_image, ''),
            (
                base_service.BaseDbApp.get_backup_image,
                '' if contract.IS_TROVE_25 else 'ds_version=None',
            ),
            (stock._image_has_tag, 'image'),
            (stock.start_db, 'update_db=False, ds_version=None, command=None, extra_volumes=None'),
            (stock.stop_db, 'update_db=False'),
            (stock.upgrade, 'upgrade_info'),
            (stock.exists_replication_source_overrides, ''),
            (stock.get_engine, ''),
            (stock.set_data_dir, 'value'),
            (stock.update_overrides, 'overrides'),
            (stock.save_password, 'user, password'),
            (stock.get_auth_password, "file='os_admin.cnf'"),
            (stock.get_client_auth_file, "file='os_admin.cnf'"),
            (utils.generate_random_password, 'password_length=None'),
            (
                operating_system.ensure_directory,
                'dir_path, user=None, group=None, force=True, **kwargs',
            ),
            (operating_system.exists, 'path, is_directory=False, as_root=False'),
            (operating_system.remove, 'path, force=False, recursive=True, **kwargs'),
            (trove_cfg.get_configuration_property, 'property_name'),
        )

    def test_engine_connects_by_the_socket(self):
        """Its URL tells the socket and the password."""
        self.assert_uses(mysql_service.MySqlApp.get_engine, 'get_auth_password', 'create_engine')
        self.assertEqual('os_admin', common_service.ADMIN_USER_NAME)

    def test_status_and_health_of_the_container(self):
        stock = base_service.BaseDbStatus
        self.assert_signatures((stock.get_actual_db_status, ''))
        for waits in (stock.wait_for_status, stock._end_install):
            self.assert_uses(waits, 'get_actual_db_status')
        self.assert_uses(mysql_service.MySqlApp.start_db, 'HEALTHCHECK', '_extra_envs')
        self.assertIn('test', mysql_service.MySqlApp.HEALTHCHECK)
        client = mock.Mock()
        client.containers.get.return_value.status = 'exited'
        self.assertEqual('exited', docker_util.get_container_status(client))
        client.containers.get.side_effect = docker.errors.NotFound('database')
        self.assertEqual('not running', docker_util.get_container_status(client))
        client.containers.get.side_effect = docker.errors.APIError('busy')
        self.assertEqual('unknown', docker_util.get_container_status(client))

    def test_connections_are_local(self):
        self.assertTrue(
            common_service.CONNECTION_STR_FORMAT.endswith(
                f'{constants.MYSQL_HOST_SOCKET_PATH}/mysqld.sock'
            )
        )

    def test_pool_is_kept_for_the_account_that_was_found_first(self):
        self.assert_uses(mysql_service.MySqlApp.get_engine, 'ENGINE')
        self.assertTrue(issubclass(trove_exception.UnprocessableEntity, trove_exception.TroveError))

    def test_root_needs_no_sudo(self):
        """An agent that is root runs Trove's commands as they are."""
        with mock.patch('os.geteuid', return_value=0):
            output, _ = utils.execute('echo', 'done', run_as_root=True, root_helper='no-such-sudo')
        self.assertEqual('done', output.strip())
        read = inspect.signature(operating_system.read_file).parameters
        self.assertEqual(['path', 'codec', 'as_root', 'decode'], list(read))

    def test_client_of_the_server(self):
        self.assertTrue(hasattr(mysql_util.SqlClient, '__enter__'))
        self.assert_signatures((mysql_util.SqlClient.__init__, 'engine, use_flush=False'))

    def test_flush_of_the_client_is_not_logged(self):
        """Without LOCAL, the list of users would be a transaction of a replica's own."""
        engine = mock.Mock()
        with mysql_util.SqlClient(engine, use_flush=True):
            pass
        (sent,) = engine.connect.return_value.execute.call_args.args
        self.assertEqual('FLUSH LOCAL PRIVILEGES', str(sent))

    def test_property_that_is_overridden(self):
        for kind in (mysql_service.MySqlApp, server.MySqlServer):
            self.assertIsInstance(kind.configuration_manager, property)


class ReplicationTest(contract.ContractTestCase):
    """Of ``replication``, ``read_only`` and the calls of ``manager`` for them."""

    def test_signatures(self):
        stock, base = mysql_gtid.MysqlGTIDReplication, mysql_base.MysqlReplicationBase
        self.assert_signatures(
            (stock.__init__, ''),
            (stock.connect_to_master, 'service, master_info'),
            (base.get_master_ref, 'service, snapshot_info'),
            (base.get_replica_context, 'service, adm'),
            (base.enable_as_slave, 'service, master_info, slave_config'),
            (base.detach_slave, 'service, for_failover'),
            (base.enable_as_master, 'service, master_config'),
            (base.demote_master, 'service'),
            (base.backup_required_for_replication, ''),
        )
        self.assertTrue(issubclass(replication.CloneReplication, stock))

    def test_source_is_described_by_its_address(self):
        self.assert_uses(mysql_base.MysqlReplicationBase.get_master_ref, 'get_my_ipv4', 'get_port')

    def test_calls_of_the_taskmanager(self):
        stock = mysql_manager.Manager
        self.assert_signatures(
            (stock.detach_replica, 'context, for_failover=False'),
            (stock.get_replica_context, 'context'),
            (stock.make_read_only, 'context, read_only'),
            (stock.enable_as_master, 'context, replica_source_config'),
            (stock.demote_replication_master, 'context'),
        )
        for call, used in (
            (stock.detach_replica, 'detach_slave'),
            (stock.enable_as_master, 'enable_as_master'),
            (stock.demote_replication_master, 'demote_master'),
        ):
            self.assert_uses(call, 'replication', used)
        self.assertIsInstance(stock.replication, property)

    def test_strategy_is_loaded_by_its_path(self):
        path = replication.CloneReplication.__module__
        found = replication_strategy.get_strategy_cls('CloneReplication', path)
        self.assertIs(replication.CloneReplication, found)

    def test_overrides_of_a_replica(self):
        """Trove's own name, so that Trove finds them."""
        self.assertEqual('slave-replication', common_service.CNF_SLAVE)
        self.assertEqual('slave-replication', read_only.REPLICA_CHANGE_ID)

    def test_pool_of_connections_is_made_again(self):
        """It has the password that was read first."""
        self.assertTrue(hasattr(common_service, 'ENGINE'))
        self.assert_uses(mysql_service.MySqlApp.get_engine, 'ENGINE')


class ConfigurationManagerTest(contract.ContractTestCase):
    """Of ``server_config``: the layers of my.cnf."""

    def test_signatures(self):
        stock = configuration.ConfigurationManager
        self.assert_signatures(
            (
                stock.__init__,
                'base_config_path, owner, group, codec, requires_root=False, '
                'override_strategy=None',
            ),
            (stock.reset_configuration, 'options, remove_overrides=False'),
            (stock.get_value, 'key, section=None, default=None'),
            (stock.apply_system_override, "options, change_id='common', pre_user=False"),
            (stock.remove_system_override, "change_id='common'"),
            (stock.has_system_override, 'change_id'),
            (configuration.ImportOverrideStrategy.__init__, 'revision_dir, revision_ext'),
            (configuration.ImportOverrideStrategy.get, 'group_name, change_id'),
            (configuration.ImportOverrideStrategy.exists, 'group_name, change_id'),
            (configuration.ImportOverrideStrategy.apply, 'group_name, change_id, options'),
            (configuration.ImportOverrideStrategy.remove, 'group_name, change_id=None'),
            (
                configuration.ImportOverrideStrategy._find_revision_file,
                'group_name, change_id',
            ),
            (configuration.ImportOverrideStrategy._get_last_file_index, 'group_name'),
            (configuration.ImportOverrideStrategy._initialize_import_directory, ''),
        )
        ours = server_config.TunedConfigurationManager.reset_configuration
        self.assert_signatures((ours, 'options, remove_overrides=False'))

    def test_order_of_the_layers(self):
        stock = configuration.ConfigurationManager
        groups = [stock.SYSTEM_PRE_USER_GROUP, stock.USER_GROUP, stock.SYSTEM_POST_USER_GROUP]
        self.assertEqual(sorted(groups), groups)
        self.assert_uses(stock.__init__, '_override_strategy')
        for changes in (stock._apply_override, stock._remove_override):
            self.assert_uses(changes, '_override_strategy', 'refresh_cache')

    def test_files(self):
        self.assertEqual(
            ('/etc/mysql/my.cnf', '/etc/mysql/conf.d', 'cnf'),
            (common_service.MYSQL_CONFIG, common_service.CNF_INCLUDE_DIR, common_service.CNF_EXT),
        )
        self.assertIsInstance(base_service.BaseDbApp.CFG_CODEC, stream_codecs.IniCodec)


class AgentTest(contract.ContractTestCase):
    """Of ``cmd.guest``: the entry point of Trove's guest agent."""

    def test_signatures(self):
        self.assert_signatures(
            (trove_guest.main, ''), (trove_cfg.parse_args, 'argv, default_config_files=None')
        )

    def test_mounted_volume_is_left_alone(self):
        """The agent formats a volume only if it is not mounted."""
        self.assert_uses(trove_guest.main, 'VolumeDevice', 'mount_points', 'format')


class WaitingGuestTest(contract.ContractTestCase):
    """Of ``waiting_guest``: the bus of Trove's agent, and what the agent does at its start."""

    def test_serializers_are_those_of_the_clients_of_an_agent(self):
        # Another test of this process may have replaced it.
        get_client = strict_rpc._stock_get_client
        self.assert_uses(get_client, 'TroveRequestContextSerializer', 'get_rpc_client')
        self.assert_signatures(
            (secure_serializer.SecureSerializer.__init__, 'base, key'),
            (trove_serializer.TroveRequestContextSerializer.__init__, 'base'),
        )
        defaults = inspect.signature(get_client).parameters
        self.assertIs(secure_serializer.SecureSerializer, defaults['secure_serializer'].default)

    def test_topic_and_key(self):
        topic = waiting_messages.topic('%s')
        self.assertIn(topic, trove_guest.main.__code__.co_consts)
        self.assert_uses(trove_guest.main, 'instance_rpc_encr_key', 'guest_id')

    def test_the_transport_is_that_of_the_default_group(self):
        self.assert_uses(rpc.init, 'get_rpc_transport')
        self.assert_signatures((rpc.init, 'conf'))

    def test_what_is_prepared(self):
        self.assert_uses(
            trove_guest.main, 'create_user', 'datastore_registry', 'database_service_uname'
        )
        self.assert_signatures(
            (
                operating_system.create_user,
                'user_name, user_id, group_name=None, group_id=None',
            ),
            (dbaas.datastore_registry, ''),
        )
        self.assertIn('mysql', dbaas.datastore_registry())
        self.assert_uses(mysql_manager.Manager.docker_client.fget, 'from_env')

    def test_a_user_that_exists_is_no_error(self):
        error = trove_exception.ProcessExecutionError(stderr='useradd: already exists')
        path = 'trove.guestagent.common.operating_system.execute_shell_cmd'
        with mock.patch(path, side_effect=error):
            operating_system.create_user('database', '1001')

    def test_the_identity(self):
        """The options of the files that Trove gives a guest."""
        files = inspect.getsource(instance_models.BaseInstance.get_injected_files)
        for name in ('guest_id=%s', 'instance_rpc_encr_key=%s'):
            self.assertIn(name, files)
