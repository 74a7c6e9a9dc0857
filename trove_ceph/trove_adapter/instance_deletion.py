# SPDX-License-Identifier: Apache-2.0
"""Deleting an instance as Trove does, except for its volume."""

from typing import Any

from trove.common import exception as trove_exceptions
from trove.taskmanager import models


class _NoVolumes:
    """Cinder as Trove's deletion shall see it: it looks there for a volume by the instance's name
    and asks for its deletion, whatever reads from it.
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
    """Delete an instance with its server, ports and groups, and leave its volume where it is."""
    try:
        instance = _Built.load(context, instance_id)
    except trove_exceptions.UnprocessableEntity:
        instance = _Fresh.load(context, instance_id)
    instance.delete_async()
