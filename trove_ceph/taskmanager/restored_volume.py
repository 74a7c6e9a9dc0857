# SPDX-License-Identifier: Apache-2.0
"""Create the volume of an instance that is restored from a backup."""

from collections.abc import Callable, Mapping
from typing import Any

from oslo_config import cfg

from trove_ceph import operation_events
from trove_ceph.strategies.backup import dependencies, tenant_errors
from trove_ceph.strategies.restore import clone_volume, planning, restore_types
from trove_ceph.trove_adapter import trove_db


def restore(
    conf: cfg.ConfigOpts,
    get_deps: Callable[[], dependencies.BackupDependencies],
    instance_id: str,
    arguments: Mapping[str, Any],
) -> operation_events.Report | None:
    """Create a volume from a backup of ours, if Cinder cannot do so at Trove's request.

    On failure the instance shows the status that Trove shows for a volume that failed.

    :param get_deps: returns the dependencies of backups
    :param arguments: of Trove's create_instance
    :returns: the report of the restore, whose end the caller tells; None: the backup is not ours
    """
    try:
        with tenant_errors.translated_errors(f'instance {instance_id}'):
            return _restore(conf, get_deps(), instance_id, arguments)
    except Exception:
        trove_db.TroveDatabase().fail_volume(instance_id)
        raise


def _restore(
    conf: cfg.ConfigOpts,
    deps: dependencies.BackupDependencies,
    instance_id: str,
    arguments: Mapping[str, Any],
) -> operation_events.Report | None:
    backup_id = arguments['backup_id']
    if deps.records.find(backup_id) is None:
        return None
    report = operation_events.begin(
        operation_events.Operation.RESTORE, instance_id=instance_id, backup_id=backup_id
    )
    with report.guarding():
        _create_volume(conf, deps, instance_id, arguments)
    return report


def _create_volume(
    conf: cfg.ConfigOpts,
    deps: dependencies.BackupDependencies,
    instance_id: str,
    arguments: Mapping[str, Any],
) -> None:
    volume_type = arguments['volume_type'] or conf.cinder_volume_type
    request = restore_types.RestoreRequest(
        instance_id, arguments['backup_id'], volume_type, arguments['volume_size']
    )
    prefer_copy = conf.trove_ceph_backup.restore_from == 'vault'
    plan = planning.plan(deps, request, prefer_copy)
    if not plan.by_cinder:
        clone_volume.clone_volume(deps, request, plan)
