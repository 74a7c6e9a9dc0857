# SPDX-License-Identifier: Apache-2.0
"""Cinder's notifications of changed volumes, so that their limits follow at once.

Cinder sends notifications if ``[oslo_messaging_notifications] driver`` in its configuration is
``messagingv2``, to each of its ``topics``. The sender creates the queue of a topic, which grows
without bound if no consumer reads it, and consumers of one queue take messages from each other. So
use a topic of its own: all processes of the service share its queue, and one of them receives each
message. The payload has the volume's id in ``volume_id`` (_usage_from_volume in
cinder/volume/volume_utils.py). Its other fields may be outdated when it is read, so the reconciler
reads the volume from Cinder. Messages can be lost; a sweep finds those changes.
"""

import re
from collections.abc import Callable
from typing import Any

import oslo_messaging
from oslo_config import cfg

#: Cinder sends each of these after the change is in its database. ``retype`` has no ``.end``. A
#: migration creates a temporary volume, so ``create.end`` announces its new image.
EVENTS = ('create.end', 'manage_existing.end', 'resize.end', 'retype', 'attach.end')


class Endpoint:
    """Pass on the volume of each event; return at once, because the bus waits."""

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
        """Receive a notification, with the arguments of oslo.messaging."""
        if volume_id := payload.get('volume_id'):
            self._changed(volume_id)


def listener(
    conf: cfg.ConfigOpts, topics: list[str], exchange: str, changed: Callable[[str], None]
) -> Any:
    """Return a listener, which the caller starts, stops and waits for.

    The bus is that of ``[oslo_messaging_notifications] transport_url``, or the default transport.

    :param changed: called with the id of each changed volume, in threads of the listener
    """
    return oslo_messaging.get_notification_listener(
        oslo_messaging.get_notification_transport(conf),
        [oslo_messaging.Target(topic=topic, exchange=exchange) for topic in topics],
        [Endpoint(changed)],
        executor='threading',
    )
