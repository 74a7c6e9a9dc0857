# SPDX-License-Identifier: Apache-2.0
"""The configuration of a waiting guest: that of an instance of no project, with keys of its own.

Trove renders the files of an instance only for a row in its table. The files here are the same; the
contract tests compare them.
"""

import hashlib
import json
import os
import types
from collections.abc import Mapping
from typing import Any

from trove.common import cfg
from trove.instance import models

from trove_ceph import exceptions
from trove_ceph.trove_adapter import server_description
from trove_ceph.trove_adapter.guest_keys import GuestKeys
from trove_ceph.trove_compat import guest_files

CONF = cfg.CONF

#: Its presence makes the agent wait.
WAITING_GUEST_FILE = '/etc/trove/conf.d/waiting-guest.conf'
#: Stand for what differs between two guests of a pool.
_NO_GUEST = 'guest'
_NO_KEYS = GuestKeys('rpc', 'signing')


def why_refused() -> str | None:
    """Return which option of Trove refuses warm guests to all instances, and why; None: none."""
    if not CONF.management_networks:
        return '[DEFAULT] management_networks: is empty; warm guests wait in the management network'
    if CONF.volume_rootdisk_support:
        return '[DEFAULT] volume_rootdisk_support: is on; warm guests boot from the image only'
    if CONF.network.network_isolation:
        return (
            '[network] network_isolation: is on, and is by default; docker has another '
            'configuration then, which it reads only when it starts'
        )
    return None


def check_allowed() -> None:
    """Check that instances may have warm guests.

    :raises GuestsNotAllowedError: an option of Trove refuses them
    """
    if reason := why_refused():
        raise exceptions.GuestsNotAllowedError(reason)


def user_data(guest_id: str, keys: GuestKeys, version: Any) -> str:
    """Return the cloud-config of a guest, as Trove writes that of an instance.

    :param version: a :class:`trove.datastore.models.DatastoreVersion`
    """
    contents = files(guest_id, keys, version)
    return server_description.user_data(version.manager, contents)


def files(guest_id: str, keys: GuestKeys, version: Any) -> Mapping[str, str]:
    """Return the contents of the configuration files of a guest, by path."""
    location = CONF.injected_config_location
    guest_info = CONF.guest_info
    if '/' not in guest_info:
        guest_info = os.path.join(location, guest_info)
    found = {
        guest_info: _guest_info(guest_id, keys, version),
        WAITING_GUEST_FILE: f'[trove_ceph]\nwaiting_guest_key={keys.signing}\n',
    }
    if os.path.isfile(CONF.guest_config):
        with open(CONF.guest_config) as content:
            found[os.path.join(location, 'trove-guestagent.conf')] = content.read()
    if CONF.controller_address:
        found['/etc/trove/controller.conf'] = f'CONTROLLER={CONF.controller_address}'
    if docker := _docker():
        found['/etc/docker/daemon.json'] = json.dumps(docker)
    return found


def digest(version: Any, **others: Any) -> str:
    """Return what tells two configurations apart, except for what is a guest's own.

    :param others: what else a guest must have, such as its network
    """
    facts = {'user_data': user_data(_NO_GUEST, _NO_KEYS, version), **others}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _guest_info(guest_id: str, keys: GuestKeys, version: Any) -> str:
    instance = types.SimpleNamespace(ds_version=version)
    settings = {
        'guest_id': guest_id,
        'datastore_manager': version.manager,
        'datastore_version': version.version,
        'tenant_id': '',
        'datastore_registry_ext': models.BaseInstance.datastore_registry_ext.fget(instance),
        'replication_strategy': models.BaseInstance.datastore_repl_strategy.fget(instance),
        **guest_files.guest_info_of_tls(),
        'network_isolation': CONF.network.network_isolation,
        'instance_rpc_encr_key': keys.rpc,
    }
    return '\n'.join(['[DEFAULT]', *(f'{name}={value}' for name, value in settings.items()), ''])


def _docker() -> dict[str, Any]:
    found: dict[str, Any] = {}
    if CONF.docker_bridge_network_ip:
        found['bip'] = CONF.docker_bridge_network_ip
    if CONF.docker_insecure_registries:
        found['insecure-registries'] = CONF.docker_insecure_registries
    return found
