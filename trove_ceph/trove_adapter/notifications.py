# SPDX-License-Identifier: Apache-2.0
"""Notifications of the operations of which Trove sends none, by Trove's notifier.

Trove itself notifies of what its API requests, such as the creation of a backup or a promotion
(trove.common.notification). Nothing is sent unless a driver is configured, as for those of Trove.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
from trove import rpc
from trove.common import notification

from trove_ceph import operation_events
from trove_ceph.operation_events import Event, Operation, Phase
from trove_ceph.trove_adapter import service_context

LOG = logging.getLogger(__name__)

PREFIX = 'trove_ceph'
SERVICE = 'taskmanager'
PHASES = (Phase.START, Phase.END, Phase.ERROR)
_BACKUP = ('backup_id', 'instance_id', 'project_id')
#: The operations of which others are notified, with the fields of each beside those of all.
FIELDS: Mapping[Operation, tuple[str, ...]] = {
    Operation.BACKUP_COPY: (*_BACKUP, 'moved_bytes'),
    Operation.BACKUP_VERIFY: (*_BACKUP, 'verdict'),
    Operation.POLICY_RUN: ('policy_id', 'instance_id', 'backup_name', 'backup_id'),
    Operation.FAILOVER: (
        *('replacement_id', 'instance_id', 'project_id', 'requested_by', 'reason'),
        *('old_host', 'new_host', 'promoted_id'),
    ),
    Operation.REPLICA_REPROVISION: (
        *('request_id', 'instance_id', 'project_id', 'source_id', 'reason'),
    ),
}
#: How many notifications wait for a message bus that does not answer; further ones are dropped.
_MOST_WAITING = 1000


@contextlib.contextmanager
def errors_notified(context: Any) -> Iterator[None]:
    """Have Trove notify of an error of the block; of another end of the request it does itself.

    :param context: of the request
    """
    try:
        yield
    except Exception:
        with notification.EndNotification(context):
            raise


class Notifications:
    """Sends a notification for each event of this process, in a thread of its own.

    A message bus that does not answer delays no operation.

    :param conf: of Trove
    :param get_notifier: returns the notifier
    """

    def __init__(self, conf: cfg.ConfigOpts, get_notifier: Callable[..., Any] = rpc.get_notifier):
        self._conf = conf
        self._get_notifier = get_notifier
        self._waiting: queue.Queue[Event | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name='notifications', daemon=True)
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Start to send, if a driver is configured; harmless when repeated."""
        if self._unsubscribe is None and self._is_configured():
            self._unsubscribe = operation_events.subscribe(self._put)
            self._thread.start()

    def stop(self) -> None:
        """Send what waits, and end."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._waiting.put(None)
            self._thread.join()

    def _is_configured(self) -> bool:
        try:
            drivers = self._conf.oslo_messaging_notifications.driver
        except cfg.NoSuchOptError:
            return False
        return any(one not in ('', 'noop') for one in drivers)

    def _put(self, event: Event) -> None:
        if event.phase not in PHASES or event.operation not in FIELDS:
            return
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            LOG.warning(
                'No notification of %s.%s is sent: %d wait for the message bus already',
                *(event.operation, event.phase, _MOST_WAITING),
            )

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._send(event)
            except Exception as error:
                LOG.warning(
                    'The notification of %s.%s was not sent: %s',
                    *(event.operation, event.phase, error),
                )

    def _send(self, event: Event) -> None:
        notifier = self._get_notifier(service=SERVICE, host=self._conf.host)
        context = service_context.of_project(event.subject.get('project_id'))
        notifier.info(context, event_type(event.operation, event.phase), payload_of(event))


def event_type(operation: Operation, phase: Phase) -> str:
    """Return the type of a notification, such as ``trove_ceph.backup.copy.end``."""
    return f'{PREFIX}.{operation}.{phase}'


def payload_of(event: Event) -> dict[str, Any]:
    """Return the payload of a notification; fields that are not known are null."""
    payload = {name: event.subject.get(name) for name in FIELDS[event.operation]}
    if event.phase is not Phase.START:
        payload['seconds'] = event.seconds
    if event.phase is Phase.ERROR:
        payload |= {'cause': event.cause, 'message': event.message}
    return payload
