# SPDX-License-Identifier: Apache-2.0
"""The configuration files of the guest of an instance, as Trove 25 or Trove 26 writes them."""

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from trove.common import cfg, constants
from trove.instance import models

CONF = cfg.CONF


def files(instance: Any, port_ids: Sequence[str]) -> Mapping[str, str]:
    """Return the configuration files of the guest of an instance, by path.

    :param instance: of Trove's taskmanager
    :param port_ids: of the server; the management port is the last
    """
    version = instance.datastore_version
    arguments = (version.manager, version.version)
    if 'networks' in inspect.signature(instance.get_injected_files).parameters:
        networks = [{'port-id': port_id} for port_id in port_ids]
        return dict(instance.get_injected_files(*arguments, networks=networks))
    # Trove 25 leaves the file about the tenant's port to its taskmanager.
    if not CONF.network.network_isolation or len(port_ids) < 2:
        return dict(instance.get_injected_files(*arguments))
    found = dict(instance.get_injected_files(*arguments, disable_bridge=True))
    found[constants.ETH1_CONFIG_PATH] = json.dumps(instance._get_user_nic_info(port_ids[0]))
    return found


def guest_info_of_tls() -> dict[str, None]:
    """Return the options of guest_info.conf for an instance without certificates of its own.

    Trove 25 has no certificates, and no option for them.
    """
    return {'ssl_mode': None} if 'ssl_mode' in models.DBInstance._data_fields else {}
