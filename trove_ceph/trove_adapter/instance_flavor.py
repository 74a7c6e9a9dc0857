# SPDX-License-Identifier: Apache-2.0
"""Trove's notification of a changed flavor, which metering reads."""

from collections.abc import Mapping
from typing import Any

from oslo_log import log as logging
from trove.common import notification, timeutils
from trove.taskmanager import models

LOG = logging.getLogger(__name__)


def notify_changed(
    context: Any, instance_id: str, old_flavor: Mapping[str, Any], new_flavor: Mapping[str, Any]
) -> None:
    """Notify that an instance has another flavor, as Trove does after its own resize.

    A failure is logged only: the instance is resized.
    """
    try:
        instance = models.BuiltInstanceTasks.load(context, instance_id)
        updated_at = timeutils.isotime(instance.updated)
        notification.TroveInstanceModifyFlavor(
            instance=instance,
            old_instance_size=old_flavor['ram'],
            instance_size=new_flavor['ram'],
            launched_at=updated_at,
            modify_at=updated_at,
            server=instance.server,
        ).notify()
    except Exception as error:
        LOG.warning('Instance %s: no notification of its new flavor: %s', instance_id, error)
