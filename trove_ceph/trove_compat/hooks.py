# SPDX-License-Identifier: Apache-2.0
"""The private parts of Trove on which each service stands.

They are what this package overrides or calls with these arguments. The contract tests know more of
them; these are looked at when a service starts, since a distribution may change its Trove.
"""

import dataclasses
import inspect
import pkgutil


@dataclasses.dataclass(frozen=True)
class Hook:
    """A function, method, property or class of Trove.

    :param path: its module and its name, such as ``trove.backup.models:Backup.create``
    :param parameters: those that are given by name, or that an override receives
    """

    path: str
    parameters: tuple[str, ...] = ()

    def find_problem(self) -> str | None:
        """Return what is missing in the installed Trove; None: nothing."""
        try:
            found = pkgutil.resolve_name(self.path)
        except (ImportError, AttributeError) as error:
            return f'{self._name}: {error}'
        if not self.parameters:
            return None
        accepted = inspect.signature(inspect.unwrap(found)).parameters
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in accepted.values()):
            return None
        missing = [name for name in self.parameters if name not in accepted]
        return f'{self._name} has no parameter {", ".join(missing)}' if missing else None

    @property
    def _name(self) -> str:
        return self.path.replace(':', '.')


@dataclasses.dataclass(frozen=True)
class Service:
    """A service that runs code of this package in Trove's place.

    :param name: of its program
    :param without: how to run Trove's own code instead
    """

    name: str
    without: str
    hooks: tuple[Hook, ...]


_MANAGER = 'trove.taskmanager.manager:Manager'
_TASKS = 'trove.taskmanager.models:FreshInstanceTasks'
_INSTANCE = 'trove.instance.models:BaseInstance'
_GROUP = 'trove.common.server_group:ServerGroup'
_CONDUCTOR = 'trove.conductor.manager:Manager'
_CONDUCTOR_SERIALIZER = 'trove.common.rpc.conductor_host_serializer:ConductorHostSerializer'
#: What :mod:`strict_rpc` replaces, and with what.
_STRICT_RPC = (
    Hook('trove.rpc:get_server', ('target', 'endpoints', 'key', 'serializer', 'secure_serializer')),
    Hook(
        'trove.rpc:get_client', ('target', 'key', 'version_cap', 'serializer', 'secure_serializer')
    ),
    Hook('trove.common.crypto_utils:decrypt_data', ('data', 'key')),
    Hook('trove.common.crypto_utils:decode_data', ('data',)),
    Hook('trove.common.notification:DBaaSAPINotification'),
)
_SERIALIZER = 'trove.common.rpc.secure_serializer:SecureSerializer'
_STRICT_SERIALIZER = (
    *_STRICT_RPC,
    Hook(f'{_SERIALIZER}._deserialize_context', ('ctxt',)),
    Hook(f'{_SERIALIZER}._deserialize_entity', ('ctxt', 'entity')),
)

TASKMANAGER = Service(
    'trove-taskmanager',
    'set [DEFAULT] taskmanager_manager to trove.taskmanager.manager.Manager',
    (
        Hook(f'{_MANAGER}.create_instance', ('context', 'instance_id', 'slave_of_id', 'backup_id')),
        Hook(f'{_MANAGER}.create_backup', ('context', 'backup_info', 'instance_id')),
        Hook(f'{_MANAGER}.delete_backup', ('context', 'backup_id')),
        Hook(f'{_MANAGER}.delete_instance', ('context', 'instance_id')),
        Hook(f'{_MANAGER}.resize_flavor', ('context', 'instance_id', 'old_flavor', 'new_flavor')),
        Hook(f'{_MANAGER}.promote_to_replica_source', ('context', 'instance_id')),
        Hook(f'{_MANAGER}.eject_replica_source', ('context', 'instance_id')),
        Hook(f'{_MANAGER}.detach_replica', ('context', 'instance_id')),
        Hook(
            f'{_TASKS}.create_instance',
            ('flavor', 'image_id', 'volume_type', 'snapshot', 'scheduler_hints', 'ds_version'),
        ),
        Hook(f'{_TASKS}._create_volume', ('volume_size', 'volume_type', 'datastore_manager')),
        Hook(f'{_TASKS}._build_volume'),
        Hook(f'{_TASKS}._create_port', ('network_info', 'security_groups', 'is_mgmt', 'is_public')),
        Hook(
            f'{_TASKS}._create_server',
            ('block_device_mapping_v2', 'availability_zone', 'nics', 'files', 'scheduler_hints'),
        ),
        Hook(f'{_TASKS}._guest_prepare', ('flavor_ram', 'volume_info', 'backup_info')),
        Hook(f'{_TASKS}.wait_for_instance', ('timeout', 'flavor')),
        Hook(f'{_TASKS}._service_is_active'),
        Hook(f'{_TASKS}._render_config'),
        Hook(f'{_TASKS}._render_replica_config'),
        Hook('trove.taskmanager.models:BuiltInstanceTasks.delete_async'),
        Hook(f'{_INSTANCE}.get_injected_files', ('datastore_manager', 'datastore_version')),
        Hook(f'{_INSTANCE}.prepare_cloud_config', ('files',)),
        Hook(f'{_INSTANCE}.prepare_userdata', ('datastore_manager',)),
        Hook(f'{_INSTANCE}.combine_cloudinit_userdata'),
        Hook(f'{_INSTANCE}.datastore_registry_ext'),
        Hook(f'{_INSTANCE}.datastore_repl_strategy'),
        Hook('trove.common.template:SingleInstanceConfigTemplate.render'),
        Hook('trove.guestagent.api:API._call', ('method_name', 'timeout_sec', 'version')),
        Hook('trove.guestagent.api:API._cast', ('method_name', 'version')),
        Hook(f'{_GROUP}.build_scheduler_hint'),
        Hook(f'{_GROUP}.convert_to_hint'),
        *_STRICT_SERIALIZER,
    ),
)

CONDUCTOR = Service(
    'trove-conductor',
    'set [DEFAULT] conductor_manager to trove.conductor.manager.Manager',
    (
        Hook(f'{_CONDUCTOR}.heartbeat', ('context', 'instance_id', 'payload', 'sent')),
        Hook(f'{_CONDUCTOR}.update_backup', ('context', 'instance_id', 'backup_id', 'sent')),
        Hook(f'{_CONDUCTOR}.report_root', ('context', 'instance_id', 'user')),
        Hook(
            f'{_CONDUCTOR}.notify_end', ('context', 'serialized_notification', 'notification_args')
        ),
        Hook(
            f'{_CONDUCTOR}.notify_exc_info',
            ('context', 'serialized_notification', 'message', 'exception'),
        ),
        Hook(f'{_CONDUCTOR_SERIALIZER}._deserialize_context', ('ctxt',)),
        Hook(f'{_CONDUCTOR_SERIALIZER}._deserialize_entity', ('ctxt', 'entity')),
        Hook('trove.instance.models:get_instance_encryption_key', ('instance_id',)),
        *_STRICT_RPC,
    ),
)

API = Service(
    'trove-api',
    'uninstall trove-ceph there, whose extensions trove-api loads',
    (
        Hook(
            'trove.common.extensions:ResourceExtension.__init__',
            ('collection', 'controller', 'member_actions'),
        ),
        Hook('trove.common.wsgi:Controller'),
        Hook('trove.common.wsgi:Result.__init__', ('data', 'status')),
        Hook('trove.common.pagination:SimplePaginatedDataView.data'),
        Hook('trove.common.policy:authorize_on_tenant'),
        Hook('trove.common.policy:authorize_on_target'),
        Hook('trove.common.policy:get_enforcer'),
        Hook('trove.common.notification:StartNotification'),
        Hook('trove.backup.models:Backup.create', ('storage_driver',)),
        Hook('trove.backup.models:Backup.delete'),
        *_STRICT_SERIALIZER,
    ),
)

_GUEST_MANAGER = 'trove.guestagent.datastore.mysql.manager:Manager'
_SERVER = 'trove.guestagent.datastore.mysql.service:MySqlApp'
_STATUS = 'trove.guestagent.datastore.service:BaseDbStatus'
_FILES = 'trove.guestagent.common.configuration:ConfigurationManager'
_OPTIONS = 'trove.guestagent.common.configuration:ImportOverrideStrategy'

GUEST = Service(
    'trove-ceph-guestagent',
    'start trove-guestagent in the guest image, and register the datastore version without '
    '--registry-ext',
    (
        Hook('trove.cmd.guest:main'),
        Hook(
            f'{_GUEST_MANAGER}.do_prepare',
            (
                *('context', 'mount_point', 'backup_info', 'config_contents', 'overrides'),
                *('snapshot', 'ds_version'),
            ),
        ),
        Hook(
            f'{_GUEST_MANAGER}.mount_volume',
            ('context', 'device_path', 'mount_point', 'write_to_fstab'),
        ),
        Hook(f'{_GUEST_MANAGER}.unmount_volume', ('context', 'device_path', 'mount_point')),
        Hook(f'{_GUEST_MANAGER}.resize_fs', ('context', 'device_path', 'mount_point', 'online')),
        Hook(
            f'{_GUEST_MANAGER}.rebuild',
            ('context', 'ds_version', 'config_contents', 'config_overrides'),
        ),
        Hook(f'{_GUEST_MANAGER}.attach_replica', ('context', 'replica_info', 'slave_config')),
        Hook(f'{_GUEST_MANAGER}.get_replica_context', ('context',)),
        Hook(f'{_GUEST_MANAGER}.make_read_only', ('context', 'read_only')),
        Hook(f'{_GUEST_MANAGER}.apply_overrides', ('context', 'overrides')),
        Hook(f'{_GUEST_MANAGER}.get_start_db_params'),
        Hook(f'{_GUEST_MANAGER}.get_service_status'),
        Hook(f'{_GUEST_MANAGER}.upgrade', ('context', 'upgrade_info')),
        Hook(f'{_GUEST_MANAGER}.replication'),
        Hook(f'{_SERVER}.start_db', ('ds_version', 'command')),
        Hook(f'{_SERVER}.stop_db'),
        Hook(f'{_SERVER}.upgrade', ('upgrade_info',)),
        Hook(f'{_SERVER}.set_data_dir'),
        Hook(f'{_SERVER}.update_overrides'),
        Hook(f'{_SERVER}.get_engine'),
        Hook(f'{_SERVER}.save_password'),
        Hook(f'{_SERVER}.get_client_auth_file'),
        Hook(f'{_SERVER}.HEALTHCHECK'),
        Hook(f'{_SERVER}._extra_envs'),
        Hook(f'{_STATUS}.begin_install'),
        Hook(f'{_STATUS}.end_install', ('error_occurred',)),
        Hook(f'{_STATUS}.get_actual_db_status'),
        Hook(f'{_FILES}.__init__', ('requires_root', 'override_strategy')),
        Hook(f'{_FILES}.reset_configuration', ('options', 'remove_overrides')),
        Hook(f'{_FILES}.apply_system_override'),
        Hook(f'{_FILES}.parse_configuration'),
        Hook(f'{_OPTIONS}.apply', ('group_name', 'change_id', 'options')),
        Hook(f'{_OPTIONS}.remove', ('group_name', 'change_id')),
        Hook(f'{_OPTIONS}._find_revision_file', ('group_name', 'change_id')),
        Hook(f'{_OPTIONS}._get_last_file_index', ('group_name',)),
        Hook(f'{_OPTIONS}._initialize_import_directory'),
        *_STRICT_SERIALIZER,
    ),
)

SERVICES = (TASKMANAGER, API, CONDUCTOR, GUEST)
