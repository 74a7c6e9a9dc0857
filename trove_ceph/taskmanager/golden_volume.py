# SPDX-License-Identifier: Apache-2.0
"""Give a new instance a clone of a golden volume, if one fits."""

from collections.abc import Callable, Mapping
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from trove_ceph import operation_events
from trove_ceph.mysql import fixed_options, my_cnf
from trove_ceph.strategies.backup import dependencies
from trove_ceph.strategies.restore import golden_volume
from trove_ceph.trove_adapter import instance_creation

LOG = logging.getLogger(__name__)


def create(
    conf: cfg.ConfigOpts,
    get_deps: Callable[[], dependencies.BackupDependencies],
    context: Any,
    instance_id: str,
    arguments: Mapping[str, Any],
) -> bool:
    """Create the volume of a new instance from a golden volume; return whether it has one.

    Without one, and after any failure, the instance can be created in the ordinary way.

    :param get_deps: returns the dependencies of backups
    :param arguments: of Trove's create_instance, for neither a restore nor a replica
    """
    sizes_gib = conf.trove_ceph_golden.sizes_gib
    if not sizes_gib or _needs_ordinary_volume(arguments):
        return False
    try:
        return _create(conf, get_deps(), context, instance_id, arguments, sizes_gib)
    except Exception as error:
        # Whatever it is, the guest can format a volume and initialise MySQL.
        LOG.warning('Instance %s: no golden volume is used: %s', instance_id, error)
        return False


def _needs_ordinary_volume(arguments: Mapping[str, Any]) -> bool:
    # Trove's guest agent sets no root password on a volume with data.
    return bool(
        not arguments['volume_size']
        or arguments.get('root_password')
        or arguments.get('cluster_config')
    )


def _create(
    conf: cfg.ConfigOpts,
    deps: dependencies.BackupDependencies,
    context: Any,
    instance_id: str,
    arguments: Mapping[str, Any],
    sizes_gib: list[int],
) -> bool:
    instance = deps.trove.find_instance(instance_id)
    if instance is None or instance.volume_id or not instance.has_our_guest_agent:
        return False
    request = golden_volume.GoldenRequest(
        instance_id,
        # The server that the guest runs; the name of the version may be another one.
        arguments.get('ds_version') or instance.version,
        arguments['volume_type'] or conf.cinder_volume_type,
        arguments['volume_size'],
    )
    source = golden_volume.find_source(deps, request, sizes_gib)
    if source is None or not _has_settings_of_golden_volumes(context, instance_id, arguments):
        return False
    with operation_events.reported(
        operation_events.Operation.GOLDEN_CLONE, instance_id=instance_id
    ):
        golden_volume.clone_volume(deps, request, source)
    LOG.info('Instance %s: its volume is a clone of the %s', instance_id, source.volume)
    return True


def _has_settings_of_golden_volumes(
    context: Any, instance_id: str, arguments: Mapping[str, Any]
) -> bool:
    text = instance_creation.render_config(context, instance_id, arguments['flavor'])
    differing = fixed_options.find_differing(
        my_cnf.server_options(text), arguments.get('overrides') or {}
    )
    if differing:
        LOG.info(
            'Instance %s: no golden volume is used, since golden volumes are initialised with '
            'other values of %s',
            *(instance_id, ', '.join(differing)),
        )
    return not differing
