# SPDX-License-Identifier: Apache-2.0
"""Trove's conductor, for ``[DEFAULT] conductor_manager``: a guest reports on itself alone.

Trove's own believes the instance id in a message, calls the class of a notification that a guest
names, and sets whatever column of a backup a guest names. It does not record that a guest reports
while its server has to be restarted.
"""

from typing import Any

from trove.common import context as trove_context
from trove.conductor import manager

from trove_ceph import exceptions
from trove_ceph.conductor import serializer
from trove_ceph.trove_adapter import agent_reports
from trove_ceph.trove_compat import check, hooks, strict_rpc

#: What agents, and the taskmanager, report of a backup. The rest of its row is Trove's.
_BACKUP_FIELDS = {'backup_type', 'checksum', 'location', 'size', 'state', 'success'}
#: Of the snapshots that the taskmanager takes, restores and deletes; a guest has none.
_SNAPSHOT = 'cinder://'
#: Of a text in a message, which is not trusted.
_MAX_TEXT = 100


class Manager(manager.Manager):
    """Trove's manager, which refuses what a guest sends in the name of another one.

    Each method raises :exc:`UntrustedMessageError` then, and changes nothing.
    """

    def __init__(self) -> None:
        check.check(hooks.CONDUCTOR)
        strict_rpc.use(serializer.ConductorSerializer, has_answers=False)
        super().__init__()

    def heartbeat(self, context, instance_id, payload, sent=None):
        """Store the state that a guest reports of its server."""
        _check_sender(context, instance_id)
        super().heartbeat(context, instance_id, payload, sent)
        agent_reports.note(instance_id, sent)

    def update_backup(self, context, instance_id, backup_id, sent=None, **backup_fields):
        """Store what a guest, or the taskmanager, reports of a backup that it takes."""
        _check_sender(context, instance_id)
        if unknown := sorted(set(backup_fields) - _BACKUP_FIELDS):
            raise exceptions.UntrustedMessageError(
                f'{_sender(context)} has sent values that no agent sends of a backup: '
                f'{", ".join(unknown)[:_MAX_TEXT]!r}'
            )
        if context.instance_id and str(backup_fields.get('location')).startswith(_SNAPSHOT):
            raise exceptions.UntrustedMessageError(
                f'{_sender(context)} has sent a snapshot as the location of a backup'
            )
        super().update_backup(context, instance_id, backup_id, sent, **backup_fields)

    def report_root(self, context, instance_id, user=None):
        """Store that root was enabled."""
        _check_sender(context, instance_id)
        super().report_root(context, instance_id, user)

    def notify_end(self, context, serialized_notification, notification_args):
        """Send the notification of an operation that a guest has completed."""
        strict_rpc.check_notification(serialized_notification)
        for values in (serialized_notification, notification_args):
            _set_sender(context, values)
        super().notify_end(context, serialized_notification, notification_args)

    def notify_exc_info(self, context, serialized_notification, message, exception):
        """Send the notification of an operation that has failed in a guest."""
        strict_rpc.check_notification(serialized_notification)
        _set_sender(context, serialized_notification)
        super().notify_exc_info(context, serialized_notification, message, exception)


def _set_sender(context: trove_context.TroveContext, values: dict[str, Any]) -> None:
    """Have a notification be about its sender, whatever it says; an error is shown to tenants."""
    if context.instance_id is not None and 'instance_id' in values:
        values['instance_id'] = context.instance_id


def _sender(context: trove_context.TroveContext) -> str:
    return f'Guest {context.instance_id}' if context.instance_id else 'The taskmanager'


def _check_sender(context: trove_context.TroveContext, instance_id: Any) -> None:
    # None: the taskmanager, or nothing tells the sender without enable_secure_rpc_messaging.
    if context.instance_id not in (None, instance_id):
        raise exceptions.UntrustedMessageError(
            f'{_sender(context)} has sent a message about another instance, '
            f'{str(instance_id)[:_MAX_TEXT]!r}'
        )
