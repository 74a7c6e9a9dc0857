# SPDX-License-Identifier: Apache-2.0
"""The options of Trove, Cinder and Nova that the operations rely on, read from their files."""

import dataclasses
import enum
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oslo_config import cfg

from trove_ceph.doctor.finding import Level

_MANAGER = 'trove_ceph.taskmanager.manager.Manager'
_CONDUCTOR = 'trove_ceph.conductor.manager.Manager'
_CINDER_CLIENT = 'trove_ceph.trove_adapter.cinder_client.cinder_client'
_RBD_DRIVER = 'cinder.volume.drivers.rbd.RBDDriver'
#: Trove's keys for messages have published defaults, which everyone knows.
_PUBLIC_KEY = 'bzH6y0SGmjuoY0FNSTptrhgieGXNDX6PIhvz'
PUBLIC_KEY_OF_KEYS = 'emYjgHFqfXNB1NGehAFIUeoyw4V4XwWHEaKP'


class Service(enum.StrEnum):
    """A service, or several that read the same files."""

    TROVE = 'trove-taskmanager'
    TROVE_API = 'trove-api'
    TROVE_CONDUCTOR = 'trove-conductor'
    CINDER = 'cinder-volume'
    NOVA = 'nova-compute'


@dataclasses.dataclass(frozen=True)
class Requirement:
    """What an option must be.

    :param option: with the type and the default of the service
    :param group: None: in the group of each back end of Cinder
    :param expected: the value, and what fails with another one
    :param readers: all services that read the option, each in its own file, and are restarted after
        a change; empty: only the one whose files are examined
    :param only_while: when the option may be changed; empty: always
    """

    service: Service
    group: str | None
    option: cfg.Opt
    holds: Callable[[Any], bool]
    expected: str
    level: Level = Level.ERROR
    readers: tuple[str, ...] = ()
    only_while: str = ''

    @property
    def all_readers(self) -> tuple[str, ...]:
        """The services whose files need the change, and which need a restart."""
        return self.readers or (self.service,)


#: The services of Trove that create instances, and those that read their keys.
_CREATORS = (Service.TROVE_API, Service.TROVE)
_ALL_OF_TROVE = (Service.TROVE_API, Service.TROVE_CONDUCTOR, Service.TROVE)
_ALL_OF_CINDER = ('cinder-api', 'cinder-scheduler', 'cinder-backup', Service.CINDER)


def _is(wanted: Any) -> Callable[[Any], bool]:
    return lambda value: value == wanted


def _is_not(refused: Any) -> Callable[[Any], bool]:
    return lambda value: value != refused


def _holds_templates(value: str) -> bool:
    return any(Path(value, 'mysql').glob('*/config.template'))


REQUIREMENTS = (
    Requirement(
        Service.TROVE,
        'DEFAULT',
        cfg.StrOpt('taskmanager_manager', default='trove.taskmanager.manager.Manager'),
        _is(_MANAGER),
        f'{_MANAGER}, or no operation of trove_ceph is run',
    ),
    Requirement(
        Service.TROVE_CONDUCTOR,
        'DEFAULT',
        cfg.StrOpt('conductor_manager', default='trove.conductor.manager.Manager'),
        _is(_CONDUCTOR),
        f'{_CONDUCTOR}, or root on any guest can run code in trove-conductor',
    ),
    Requirement(
        Service.TROVE,
        'DEFAULT',
        cfg.StrOpt('storage_strategy', default='swift'),
        _is('cinder'),
        'cinder, or backups without --storage-driver are copied by the guest',
        Level.WARNING,
        readers=_CREATORS,
    ),
    Requirement(
        Service.TROVE,
        'DEFAULT',
        cfg.BoolOpt('trove_volume_support', default=False),
        _is(True),
        'true, or databases are not on volumes of Ceph',
        readers=_CREATORS,
    ),
    Requirement(
        Service.TROVE,
        'DEFAULT',
        cfg.StrOpt('template_path', default='/etc/trove/templates/'),
        _holds_templates,
        'a directory on this host with mysql/VERSION/config.template',
        readers=_CREATORS,
    ),
    Requirement(
        Service.TROVE,
        'DEFAULT',
        cfg.BoolOpt('use_nova_server_config_drive', default=False),
        _is(True),
        'true, or guests do not get their configuration before their network',
        Level.WARNING,
    ),
    Requirement(
        Service.TROVE,
        'DEFAULT',
        cfg.BoolOpt('enable_secure_rpc_messaging', default=True),
        _is(True),
        'true, or passwords of databases are readable on the bus, and requests can be forged. '
        'Instances that were created without it have no key: replace them by restores',
        readers=_ALL_OF_TROVE,
    ),
    Requirement(
        Service.TROVE,
        'DEFAULT',
        cfg.StrOpt('taskmanager_rpc_encr_key', default=_PUBLIC_KEY, secret=True),
        _is_not(_PUBLIC_KEY),
        "a random value, the same for all of Trove's services: with the published default "
        'everyone can write requests',
        Level.WARNING,
        readers=_ALL_OF_TROVE,
    ),
    Requirement(
        Service.TROVE,
        'DEFAULT',
        cfg.StrOpt('inst_rpc_key_encr_key', default=PUBLIC_KEY_OF_KEYS, secret=True),
        _is_not(PUBLIC_KEY_OF_KEYS),
        "a random value, the same for all of Trove's services. The keys of instances are stored "
        'under it: after a change no agent is reached until the keys are encrypted under the new '
        'value, too',
        Level.WARNING,
        readers=_ALL_OF_TROVE,
        only_while='they are stopped, follow "trove-ceph-manage instance-keys --help"',
    ),
    Requirement(
        Service.TROVE,
        'network',
        cfg.BoolOpt('network_isolation', default=True),
        _is(False),
        'false, or guests pull the image of the database from a registry',
        Level.WARNING,
        readers=_CREATORS,
    ),
    Requirement(
        Service.TROVE,
        'mysql',
        cfg.BoolOpt('volume_support', default=True),
        _is(True),
        'true, or databases are not on volumes of Ceph',
        readers=_CREATORS,
    ),
    Requirement(
        Service.TROVE,
        'trove_ceph_backup',
        cfg.StrOpt('tiers_file', default='/etc/trove-ceph/tiers.yaml'),
        os.path.isfile,
        'a file on this host',
        readers=_CREATORS,
    ),
    Requirement(
        Service.TROVE_API,
        'DEFAULT',
        cfg.StrOpt(
            'remote_cinder_client',
            default='trove.common.clients_admin.cinder_client_trove_admin',
        ),
        _is(_CINDER_CLIENT),
        f'{_CINDER_CLIENT}, or what only the vault holds cannot be restored',
        Level.WARNING,
    ),
    Requirement(
        Service.CINDER,
        'DEFAULT',
        cfg.StrOpt('volume_name_template', default='volume-%s'),
        _is('volume-%s'),
        'volume-%s: the images of volumes are found by it',
        readers=_ALL_OF_CINDER,
        only_while='there is no volume',
    ),
    Requirement(
        Service.CINDER,
        'DEFAULT',
        cfg.StrOpt('snapshot_name_template', default='snapshot-%s'),
        _is('snapshot-%s'),
        'snapshot-%s: snapshots are adopted under it',
        readers=_ALL_OF_CINDER,
        only_while='there is no snapshot',
    ),
    Requirement(
        Service.CINDER,
        None,
        cfg.StrOpt('volume_driver', default='cinder.volume.drivers.lvm.LVMVolumeDriver'),
        _is(_RBD_DRIVER),
        f'{_RBD_DRIVER}; trove_ceph leaves databases on other back ends to Trove',
        Level.WARNING,
        only_while='the back end has no volume',
    ),
    Requirement(
        Service.CINDER,
        None,
        cfg.BoolOpt('report_discard_supported', default=False),
        _is(True),
        'true, or space that a database frees stays allocated',
        Level.WARNING,
    ),
    Requirement(
        Service.CINDER,
        None,
        cfg.BoolOpt('rbd_flatten_volume_from_snapshot', default=False),
        _is(False),
        'false, or Trove restores by copying the whole volume',
        Level.WARNING,
    ),
    Requirement(
        Service.CINDER,
        None,
        cfg.BoolOpt('enable_deferred_deletion', default=False),
        _is(False),
        'false, or cinder-volume empties the trash that trove_ceph keeps',
        Level.WARNING,
    ),
    Requirement(
        Service.NOVA,
        'service_user',
        cfg.BoolOpt('send_service_user_token', default=False),
        _is(True),
        'true, or Cinder refuses to detach volumes (CVE-2023-2088)',
        readers=('nova-api', Service.NOVA),
    ),
)
_BACKENDS = cfg.ListOpt('enabled_backends', default=[])
#: The group with the values for back ends that lack an option (cinder/volume/configuration.py).
_SHARED_GROUP = 'backend_defaults'


@dataclasses.dataclass(frozen=True)
class Value:
    """The value of an option.

    :param group: the section in which it stands, or would stand
    """

    requirement: Requirement
    group: str
    value: Any


@dataclasses.dataclass(frozen=True)
class Settings:
    """The values, and why those of other services could not be read."""

    values: tuple[Value, ...]
    unread: Mapping[Service, str]


def read(config_files: Mapping[Service, Sequence[str]]) -> Settings:
    """Read the options; a file that cannot be used leaves out its service only."""
    values: list[Value] = []
    unread: dict[Service, str] = {}
    for service in Service:
        files = list(config_files.get(service, ()))
        missing = [file for file in files if not os.path.isfile(file)]
        if missing or not files:
            unread[service] = f'{", ".join(missing) or "no file"} is not on this host'
            continue
        try:
            conf = _load(files)
            values += _read(service, conf)
        except cfg.Error as error:
            unread[service] = f'{", ".join(files)}: {error}'
            continue
        if service is Service.CINDER and not conf.enabled_backends:
            unread[service] = f'{", ".join(files)}: no enabled_backends, so no back end is examined'
    return Settings(tuple(values), unread)


def _load(files: list[str]) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    conf.register_opt(_BACKENDS)
    conf(args=[], default_config_files=files, default_config_dirs=[])
    return conf


def _read(service: Service, conf: cfg.ConfigOpts) -> list[Value]:
    found = []
    for one in REQUIREMENTS:
        if one.service is not service:
            continue
        if one.group is not None:
            found.append(Value(one, one.group, _value(conf, one.group, one.option)))
            continue
        for group in filter(None, conf.enabled_backends):
            found.append(Value(one, group, _value_of_backend(conf, group, one.option)))
    return found


def _value_of_backend(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> Any:
    """Return the value of a back end as Cinder finds it: its own, or else the shared one."""
    conf.register_opt(option, group=group)
    conf.set_default(option.name, None, group=group)
    own = conf[group][option.name]
    return _value(conf, _SHARED_GROUP, option) if own is None else own


def _value(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> Any:
    if group == 'DEFAULT':
        conf.register_opt(option)
        return conf[option.name]
    conf.register_opt(option, group=group)
    return conf[group][option.name]
