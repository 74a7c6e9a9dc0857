# SPDX-License-Identifier: Apache-2.0
import queue

import oslo_messaging
from oslo_config import cfg
from oslotest import base

from trove_ceph.tiers.qos import events

TIMEOUT_SEC = 60


class ListenerTestCase(base.BaseTestCase):
    """oslo.messaging with its bus in memory, on which Cinder sends."""

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        self.conf([])
        self.transport = oslo_messaging.get_notification_transport(self.conf, 'fake://')
        self.conf.set_override('transport_url', 'fake://')
        self.changed = queue.SimpleQueue()
        self.listener = events.listener(
            self.conf, ['trove-ceph-qos', 'others'], 'openstack', self.changed.put
        )
        self.listener.start()
        self.addCleanup(self.listener.wait)
        self.addCleanup(self.listener.stop)

    def _send(self, event_type, payload, topic='trove-ceph-qos'):
        notifier = oslo_messaging.Notifier(
            self.transport, 'volume.host@fast', driver='messagingv2', topics=[topic]
        )
        notifier.info({}, event_type, payload)

    def test_reports_changed_volumes(self):
        ignored = ('create.start', 'delete.end', 'resize.start', 'detach.end', 'retype.start')
        for event in ignored:
            self._send(f'volume.{event}', {'volume_id': f'at {event}'})
        self._send('snapshot.create.end', {'volume_id': 'of a snapshot'})
        self._send('volume.retype', {'tenant_id': 'that names no volume'})
        expected = [f'at {event}' for event in events.EVENTS]
        for event in events.EVENTS:
            self._send(f'volume.{event}', {'volume_id': f'at {event}', 'size': 3})
        self.assertEqual(expected, [self.changed.get(timeout=TIMEOUT_SEC) for _ in expected])
        self._send('volume.retype', {'volume_id': 'of another topic'}, topic='others')
        self.assertEqual('of another topic', self.changed.get(timeout=TIMEOUT_SEC))
        self.assertTrue(self.changed.empty())
