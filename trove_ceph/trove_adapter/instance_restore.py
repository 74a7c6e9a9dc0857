# SPDX-License-Identifier: Apache-2.0
"""Create an instance from a backup as Trove does, but with a volume that exists already."""

from collections.abc import Mapping
from typing import Any

from trove.common import cfg, server_group
from trove.taskmanager import models

CONF = cfg.CONF

_ARGUMENTS = (
    *('flavor', 'image_id', 'databases', 'users', 'datastore_manager', 'packages', 'volume_size'),
    *('backup_id', 'availability_zone', 'root_password', 'nics', 'overrides', 'cluster_config'),
    *('volume_type', 'modules', 'access', 'ds_version'),
)


class _Restored(models.FreshInstanceTasks):
    def _create_volume(self, volume_size, volume_type, datastore_manager, *arguments, **options):
        if self.volume_id is None:
            return super()._create_volume(
                volume_size, volume_type, datastore_manager, *arguments, **options
            )
        return self._build_volume(self.volume_client.volumes.get(self.volume_id), datastore_manager)


def create(context: Any, instance_id: str, arguments: Mapping[str, Any]) -> None:
    """Create an instance with the volume that Trove's tables name, and wait until it is usable.

    If they name none, Cinder creates the volume from the backup's snapshot, as in Trove.

    :param arguments: of the call to Trove's manager, by their names
    """
    hints = server_group.ServerGroup.build_scheduler_hint(
        context, arguments.get('locality'), instance_id
    )
    instance = _Restored.load(context, instance_id)
    instance.create_instance(
        **{name: arguments.get(name) for name in _ARGUMENTS}, snapshot=None, scheduler_hints=hints
    )
    instance.wait_for_instance(CONF.restore_usage_timeout, arguments['flavor'])
