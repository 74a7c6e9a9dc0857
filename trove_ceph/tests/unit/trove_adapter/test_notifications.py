# SPDX-License-Identifier: Apache-2.0
"""Notifications, through the notifier of oslo.messaging with its driver for tests."""

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_messaging.notify import _impl_test
from oslotest import base
from trove.common.rpc import serializer

from trove_ceph import exceptions, operation_events
from trove_ceph.operation_events import Event, Operation, Phase
from trove_ceph.trove_adapter import notifications

BACKUP = {'backup_id': 'b', 'instance_id': 'i', 'project_id': 'p'}


class NotificationsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(_impl_test.reset)
        _impl_test.reset()

    def make(self, driver='test'):
        conf = cfg.ConfigOpts()
        conf.register_opt(cfg.HostAddressOpt('host', default='controller'))
        transport = messaging.get_notification_transport(conf, 'fake://')
        conf([])
        conf.set_override(
            'driver', [driver] if driver else [], group='oslo_messaging_notifications'
        )
        notifier = messaging.Notifier(
            transport, serializer=serializer.TroveRequestContextSerializer(None)
        )

        def get_notifier(service, host):
            return notifier.prepare(publisher_id=f'{service}.{host}')

        made = notifications.Notifications(conf, get_notifier)
        made.start()
        made.start()
        return made

    def sent(self, made):
        made.stop()
        return [
            (message['event_type'], message['payload'], message['publisher_id'])
            for _context, message, _priority, _retry in _impl_test.NOTIFICATIONS
        ]

    def test_start_and_end(self):
        made = self.make()
        with operation_events.reported(Operation.BACKUP_COPY, **BACKUP) as report:
            report.add(moved_bytes=2**20)
        start, end = self.sent(made)
        expected = BACKUP | {'moved_bytes': None}
        self.assertEqual(
            ('trove_ceph.backup.copy.start', expected, 'taskmanager.controller'), start
        )
        kind, payload, _ = end
        self.assertEqual('trove_ceph.backup.copy.end', kind)
        self.assertGreaterEqual(payload.pop('seconds'), 0)
        self.assertEqual(BACKUP | {'moved_bytes': 2**20}, payload)

    def test_error(self):
        made = self.make()
        with (
            self.assertRaises(exceptions.NoSpaceError),
            operation_events.reported(Operation.BACKUP_VERIFY, **BACKUP),
        ):
            raise exceptions.NoSpaceError('pool vault: is full')
        kind, payload, _ = self.sent(made)[-1]
        self.assertEqual('trove_ceph.backup.verify.error', kind)
        self.assertEqual('NoSpaceError', payload['cause'])
        self.assertEqual('pool vault: is full', payload['message'])

    def test_what_is_not_notified_of(self):
        made = self.make()
        with operation_events.reported(Operation.BACKUP_TAKE, backup_id='b'):
            pass
        for phase in (Phase.STEP, Phase.RETRY, Phase.INTERRUPTED):
            operation_events.publish(Event(Operation.FAILOVER, phase, {}))
        self.assertEqual([], self.sent(made))

    def test_nothing_without_a_driver(self):
        for driver in (None, 'noop'):
            made = self.make(driver)
            self.assertIsNone(made._unsubscribe)
            with operation_events.reported(Operation.BACKUP_COPY, **BACKUP):
                pass
            self.assertEqual([], self.sent(made))

    def test_a_bus_that_fails_fails_no_operation(self):
        def get_notifier(service, host):
            raise messaging.MessageDeliveryFailure('the bus is down')

        made = self.make()
        made._get_notifier = get_notifier
        with operation_events.reported(Operation.BACKUP_COPY, **BACKUP):
            pass
        self.assertEqual([], self.sent(made))

    def test_a_full_queue_drops_and_does_not_wait(self):
        made = self.make('noop')
        event = Event(Operation.FAILOVER, Phase.START, {})
        for _ in range(notifications._MOST_WAITING + 1):
            made._put(event)
        self.assertEqual(notifications._MOST_WAITING, made._waiting.qsize())
