# SPDX-License-Identifier: Apache-2.0
"""The files that say which guest this is: those of a waiting guest, replaced by an instance's.

Each start of the agent, such as after a crash or a reboot, reads one of these states:

waiting
    ``waiting_guest_key`` is set; the agent waits.
interrupted
    ``binding_instance_id`` is set instead, in the same file: the files of the instance may be
    incomplete. The agent neither waits nor serves; the taskmanager, which got no answer, deletes
    the server.
bound
    Neither is set; the files of the instance are complete. The agent serves once it finds the data
    volume. The volume of a warm guest is attached only after the taskmanager got the answer, so
    one whose answer was lost does not serve either. A hot one has a volume, and is deleted then.
"""

import configparser
import dataclasses
import glob
import os

from oslo_config import cfg

from trove_ceph import exceptions
from trove_ceph.guestagent import network_interface
from trove_ceph.guestagent.waiting_messages import Binding
from trove_ceph.host import file_replacement

#: Beside the file of the waiting guest.
BOUND_FILE = 'bound-guest.conf'
HOSTNAME_PATH = '/etc/hostname'
#: A guest serves also under its former name. cloud-init sets another one at a later boot only if
#: the metadata of the server have another one than at the first boot.
SET_HOSTNAME = ('sh', '-c', f'hostname --file {HOSTNAME_PATH} || true')
_GROUP = 'trove_ceph'


@dataclasses.dataclass(frozen=True)
class WaitingIdentity:
    """The files of a waiting guest.

    :param info_path: sets ``guest_id`` and the RPC key
    :param waiting_path: sets ``waiting_guest_key``, and nothing that an instance needs
    """

    info_path: str
    waiting_path: str


def is_waiting(conf: cfg.ConfigOpts) -> bool:
    """Return whether the configuration is that of a waiting guest.

    :raises GuestNotBoundError: the guest was interrupted while it became an instance
    """
    interrupted = conf.trove_ceph.binding_instance_id
    if interrupted:
        raise exceptions.GuestNotBoundError(
            f'This guest was interrupted while it became instance {interrupted}: it neither waits '
            'nor serves; delete its server'
        )
    return bool(conf.trove_ceph.waiting_guest_key)


def find(conf: cfg.ConfigOpts) -> WaitingIdentity:
    """Return the files of this waiting guest.

    :raises GuestNotBoundError: its identity is not in files
    """
    return WaitingIdentity(
        _file_of(conf, 'DEFAULT', 'guest_id'), _file_of(conf, _GROUP, 'waiting_guest_key')
    )


def plan(identity: WaitingIdentity, binding: Binding) -> file_replacement.Replacement:
    """Return the replacement of the files of a waiting guest by those of an instance.

    :raises GuestNotBoundError: the files are not those of the instance
    """
    _check(identity, binding)
    bound_path = os.path.join(os.path.dirname(identity.waiting_path), BOUND_FILE)
    files = [
        file_replacement.File(path, content, owner_of=identity.info_path)
        for path, content in binding.files.items()
    ]
    files.append(
        file_replacement.File(
            bound_path,
            f'[{_GROUP}]\ndata_volume_id = {binding.volume_id}\n',
            owner_of=identity.info_path,
        )
    )
    configured = [one for one in binding.interfaces if one.addresses]
    files += [
        file_replacement.File(
            network_interface.path_of(interface), network_interface.render(interface, index)
        )
        for index, interface in enumerate(configured)
    ]
    commands = (network_interface.RELOAD,) if configured else ()
    if binding.hostname is not None:
        files.append(file_replacement.File(HOSTNAME_PATH, f'{binding.hostname}\n'))
        commands = (*commands, SET_HOSTNAME)
    marker = f'[{_GROUP}]\nbinding_instance_id = {binding.instance_id}\n'
    return file_replacement.Replacement(identity.waiting_path, marker, tuple(files), commands)


def _file_of(conf: cfg.ConfigOpts, section: str, name: str) -> str:
    """Return the configuration file that decides an option: the last one that sets it.

    ``get_location`` of oslo.config returns the last file that has the section.
    """
    found = None
    for path in _configuration_files(conf):
        with open(path, encoding='utf-8') as file:
            if _value(file.read(), section, name) is not None:
                found = path
    if found is None:
        raise exceptions.GuestNotBoundError(f'{name}: must be set in a configuration file')
    return found


def _configuration_files(conf: cfg.ConfigOpts) -> list[str]:
    files = list(conf.config_file or [])
    for directory in conf.config_dirs:
        files += sorted(glob.glob(os.path.join(directory, '*.conf')))
    return [os.path.realpath(path) for path in files]


def _check(identity: WaitingIdentity, binding: Binding) -> None:
    if identity.waiting_path in binding.files:
        raise exceptions.GuestNotBoundError(
            f'{identity.waiting_path}: is removed by the binding, but is among the files'
        )
    found = _value(binding.files.get(identity.info_path, ''), 'DEFAULT', 'guest_id')
    if found != binding.instance_id:
        raise exceptions.GuestNotBoundError(
            f'{identity.info_path}: the file of the binding has guest_id {found}, expected '
            f'{binding.instance_id}'
        )


def _value(content: str, section: str, name: str) -> str | None:
    """Return an option of the content of a configuration file; None: it is not set."""
    parser = configparser.ConfigParser(
        interpolation=None, strict=False, default_section='', allow_no_value=True
    )
    try:
        parser.read_string(content)
    except configparser.Error:
        # The error quotes the content, which has secrets.
        return None
    return parser.get(section, name, fallback=None)
