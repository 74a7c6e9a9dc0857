# SPDX-License-Identifier: Apache-2.0
"""Trove's conductor, for ``[DEFAULT] conductor_manager``: a guest reports on itself alone.

Trove's own believes the instance id in a message, and calls the class of a notification that a
guest names.
"""

from typing import Any

from trove.common import context as trove_context
from trove.conductor import manager

from trove_ceph import exceptions
from trove_ceph.conductor import serializer
from trove_ceph.trove_compat import check, hooks, strict_rpc


class Manager(manager.Manager):
    """Trove's manager, which refuses what a guest sends in the name of another one.

    Each method raises :exc:`UntrustedMessageError` then, and changes nothing.
    """

    def __init__(self) -> None:
        check.check(hooks.CONDUCTOR)
        strict_rpc.use(serializer.ConductorSerializer)
        super().__init__()

    def heartbeat(self, context, instance_id, payload, sent=None):
        """Store the state that a guest reports of its server."""
        _check_sender(context, instance_id)
        super().heartbeat(context, instance_id, payload, sent)

    def update_backup(self, context, instance_id, backup_id, sent=None, **backup_fields):
        """Store what a guest reports of a backup that it takes."""
        _check_sender(context, instance_id)
        super().update_backup(context, instance_id, backup_id, sent, **backup_fields)

    def report_root(self, context, instance_id, user=None):
        """Store that root was enabled."""
        _check_sender(context, instance_id)
        super().report_root(context, instance_id, user)

    def notify_end(self, context, serialized_notification, notification_args):
        """Send the notification of an operation that a guest has completed."""
        _check_notification(context, serialized_notification, notification_args)
        super().notify_end(context, serialized_notification, notification_args)

    def notify_exc_info(self, context, serialized_notification, message, exception):
        """Send the notification of an operation that has failed in a guest."""
        _check_notification(context, serialized_notification, {})
        super().notify_exc_info(context, serialized_notification, message, exception)


def _check_notification(
    context: trove_context.TroveContext, serialized: dict[str, Any], arguments: dict[str, Any]
) -> None:
    strict_rpc.check_notification(serialized)
    for values in (serialized, arguments):
        _check_sender(context, values.get('instance_id') or context.instance_id)


def _check_sender(context: trove_context.TroveContext, instance_id: Any) -> None:
    # Without enable_secure_rpc_messaging nothing tells the sender.
    if context.instance_id not in (None, instance_id):
        raise exceptions.UntrustedMessageError(
            f'Guest {context.instance_id} has sent a message about instance {instance_id}, which '
            'is refused'
        )
