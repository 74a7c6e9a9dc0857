# SPDX-License-Identifier: Apache-2.0
"""What the server of an instance is in Nova: its name, metadata, tags and files, as Trove's are.

Trove finds the servers of its instances by their tags.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from trove.instance import models


@dataclasses.dataclass(frozen=True)
class ServerDescription:
    """What Nova shows of the server of an instance."""

    name: str
    metadata: Mapping[str, str]
    tags: tuple[str, ...]


def describe(instance: Any) -> ServerDescription:
    """Return what Nova shows of the server of an instance.

    :param instance: of Trove's taskmanager
    """
    metadata = {
        'trove_project_id': instance.tenant_id,
        'trove_user_id': instance.context.user_id,
        'trove_instance_id': instance.id,
    }
    tags = ['trove_instance', f'trove_{instance.datastore_version.manager}']
    tags += [f'{key}_{value}' for key, value in metadata.items()]
    return ServerDescription(instance.name, metadata, tuple(tags))


def files(instance: Any, port_ids: Sequence[str]) -> Mapping[str, str]:
    """Return the configuration files of the guest of an instance, by path.

    :param port_ids: of the server; the management port is the last
    """
    version = instance.datastore_version
    networks = [{'port-id': port_id} for port_id in port_ids]
    found: Mapping[str, str] = instance.get_injected_files(
        version.manager, version.version, networks=networks
    )
    return found


def user_data(manager: str, contents: Mapping[str, str]) -> str:
    """Return the cloud-config that writes files, with what the operator adds to it.

    :param manager: of the datastore version
    :param contents: of the files, by path
    """
    # These methods use Trove's configuration, and nothing of an instance.
    cloud_config: str = models.BaseInstance.prepare_cloud_config(None, contents)
    own = models.BaseInstance.prepare_userdata(None, manager)
    if not own:
        return cloud_config
    combined: str = models.BaseInstance.combine_cloudinit_userdata(cloud_config, own)
    return combined
