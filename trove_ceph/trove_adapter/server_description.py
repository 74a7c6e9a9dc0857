# SPDX-License-Identifier: Apache-2.0
"""What the server of an instance is in Nova: name, metadata, tags and user data, as Trove's are.

Trove 26 finds the servers of its instances by their tags. Trove 25 gives them none; those that are
given here are found after an upgrade.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from trove.instance import models

_LONGEST_TAG = 60


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
    # Nova refuses longer ones, such as that of a user of LDAP.
    short = tuple(tag for tag in tags if len(tag) <= _LONGEST_TAG)
    return ServerDescription(instance.name, metadata, short)


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
