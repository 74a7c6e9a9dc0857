# SPDX-License-Identifier: Apache-2.0
"""Hearing from Cinder which volumes changed, so that their limits follow at once.

Cinder sends these when ``[oslo_messaging_notifications] driver`` of its configuration is
``messagingv2``, to each of its ``topics``. Whoever sends to a topic makes its queue, which grows
for ever when nobody reads it, and several readers of one queue take messages from each other. So
the topic is one of our own: several processes of the service share its queue, and each message
reaches one of them. The payload names the volume in ``volume_id`` (_usage_from_volume in
cinder/volume/volume_utils.py); what it says besides may be old by the time it is read, so the
volume itself is asked for. Messages can be lost: a sweep finds what they did not tell.
"""

import re
from collections.abc import Callable
from typing import Any

import oslo_messaging
from oslo_config import cfg

#: All come after what they tell of is in Cinder's database. ``retype`` has no end. A migration
#: makes a temporary volume and thereby sends ``create.end`` for the image that is used afterwards.
EVENTS = ('create.end', 'manage_existing.end', 'resize.end', 'retype', 'attach.end')


class Endpoint:
    """Hands on the volume of each event; returns at once, as the bus waits for it."""

    filter_rule = oslo_messaging.NotificationFilter(
        event_type=rf'^volume\.({"|".join(map(re.escape, EVENTS))})$'
    )

    def __init__(self, changed: Callable[[str], None]):
        self._changed = changed

    def info(
        self,
        context: dict[str, Any],
        publisher_id: str,
        event_type: str,
        payload: dict[str, Any],
        metadata: dict[str, Any],
    ) -> None:
        """Take a notification, with the arguments of oslo.messaging."""
        if volume_id := payload.get('volume_id'):
            self._changed(volume_id)


def listener(
    conf: cfg.ConfigOpts, topics: list[str], exchange: str, changed: Callable[[str], None]
) -> Any:
    """Return a listener, to be started, stopped and waited for.

    The bus is that of ``[oslo_messaging_notifications] transport_url``, or the process's own.

    :param changed: called with the id of each volume that changed, by threads of the listener
    """
    return oslo_messaging.get_notification_listener(
        oslo_messaging.get_notification_transport(conf),
        [oslo_messaging.Target(topic=topic, exchange=exchange) for topic in topics],
        [Endpoint(changed)],
        executor='threading',
    )
