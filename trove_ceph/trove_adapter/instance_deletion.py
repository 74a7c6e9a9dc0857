# SPDX-License-Identifier: Apache-2.0
"""Delete an instance as Trove does, except for its volume."""

from typing import Any

from trove.common import exception as trove_exceptions
from trove.taskmanager import models


class _NoVolumes:
    """A Cinder client without volumes.

    Trove's deletion would find the volume by its name and delete it in spite of its clones.
    """

    @property
    def volumes(self) -> '_NoVolumes':
        return self

    def list(self, **_options: Any) -> list[Any]:
        return []


class _Built(models.BuiltInstanceTasks):
    volume_client = _NoVolumes()


class _Fresh(models.FreshInstanceTasks):
    volume_client = _NoVolumes()


def delete_but_volume(context: Any, instance_id: str) -> None:
    """Delete an instance with its Nova server, ports and groups, but not its volume."""
    try:
        instance = _Built.load(context, instance_id)
    except trove_exceptions.UnprocessableEntity:
        instance = _Fresh.load(context, instance_id)
    instance.delete_async()
