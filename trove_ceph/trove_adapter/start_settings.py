# SPDX-License-Identifier: Apache-2.0
"""What the MySQL server of an instance is started with, from Trove's tables and templates."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from trove.configuration import models as configuration_models

from trove_ceph.trove_adapter import replaced_instance
from trove_ceph.trove_adapter.replacement_servers import translated


@dataclasses.dataclass(frozen=True)
class StartSettings:
    """The arguments of the guest agent's calls that start MySQL.

    :param version: of the datastore version, the tag of MySQL's image
    :param contents: of my.cnf, as rendered for the flavor
    :param overrides: the options of the configuration group
    """

    version: str
    contents: str
    overrides: Mapping[str, Any]


def load(action: str, instance_id: str, find_flavor: Callable[[str], Any]) -> StartSettings:
    """Return the present settings of an instance.

    :param action: for the message of an error, such as the replacement
    :param find_flavor: returns the facts of a flavor by its id
    :raises ReplacementCanceledError: the instance is deleted
    :raises ServiceUnavailableError: Trove's database or Nova does not answer
    """
    with translated(f'{action}: reading the configuration of the instance'):
        instance = replaced_instance.load(instance_id)
        flavor = find_flavor(instance.flavor_id)
        contents = instance._render_config(flavor).config_contents
        return StartSettings(instance.datastore_version.version, contents, _overrides(instance))


def _overrides(instance: Any) -> dict[str, Any]:
    """Return the values of the configuration group of an instance."""
    group_id = instance.db_info.configuration_id
    if group_id is None:
        return {}
    group = configuration_models.Configuration(instance.context, group_id)
    return dict(group.get_configuration_overrides())
