# SPDX-License-Identifier: Apache-2.0
"""Rows of Trove by which the health of all databases is judged; nothing is changed."""

import collections
import datetime
from typing import Any

from trove.common import exception as trove_exceptions
from trove.configuration import models as configuration_models
from trove.datastore import models as datastore_models
from trove.guestagent import models as guest_models
from trove.instance import models as instance_models
from trove.instance.tasks import InstanceTasks

from trove_ceph.db.trove_rows import InstanceRow, SettingRow, VersionRow
from trove_ceph.trove_adapter import trove_db


def list_instances() -> tuple[InstanceRow, ...]:
    """Return the instances that are not deleted."""
    # Of deleted instances, too: Trove leaves the column "deleted" of a heartbeat empty.
    heartbeats = {
        row.instance_id: _plain(row.updated_at) for row in guest_models.AgentHeartBeat.find_all()
    }
    rows = _instances()
    versions = {one: trove_db.version_of(one) for one in {row.datastore_version_id for row in rows}}
    return tuple(
        InstanceRow(
            row.id,
            row.tenant_id,
            _plain(row.created),
            row.task_status == InstanceTasks.NONE,
            versions[row.datastore_version_id].datastore,
            versions[row.datastore_version_id].name,
            versions[row.datastore_version_id].has_our_guest_agent,
            heartbeats.get(row.id),
            row.slave_of_id is not None,
            row.encrypted_key is not None,
        )
        for row in rows
    )


def list_versions() -> tuple[VersionRow, ...]:
    """Return all datastore versions."""
    names = {row.id: row.name for row in datastore_models.DBDatastore.find_all()}
    return tuple(
        _version(names.get(row.datastore_id, row.datastore_id), row)
        for row in datastore_models.DBDatastoreVersion.find_all()
    )


def find_version(datastore: str, version: str) -> VersionRow | None:
    """Return a datastore version that is active; None: there is none.

    :param datastore: name or id
    :param version: name or id
    """
    try:
        found, of_found = datastore_models.get_datastore_version(datastore, version)
    except trove_exceptions.TroveError:
        return None
    return _version(found.name, of_found.db_info)


def list_settings() -> tuple[SettingRow, ...]:
    """Return the parameters of the configuration groups that instances use."""
    users: dict[str, list[str]] = collections.defaultdict(list)
    for row in _instances():
        if row.configuration_id:
            users[row.configuration_id].append(row.id)
    model = configuration_models.DBConfigurationParameter
    return tuple(
        SettingRow(group, row.configuration_key, str(row.configuration_value), tuple(instances))
        for group, instances in users.items()
        for row in model.find_all(configuration_id=group, deleted=False)
    )


def _version(datastore: str, row: Any) -> VersionRow:
    return VersionRow(
        datastore,
        row.name,
        row.version or row.name,
        bool(row.active),
        row.registry_ext or '',
        row.repl_strategy or '',
        row.image_id or '',
        tuple(row.image_tags.split(',')) if row.image_tags else (),
    )


def _instances() -> list[Any]:
    return list(instance_models.DBInstance.find_all(deleted=False))


def _plain(time: datetime.datetime) -> datetime.datetime:
    return time.replace(tzinfo=None)
