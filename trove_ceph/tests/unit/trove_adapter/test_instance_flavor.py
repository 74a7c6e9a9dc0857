# SPDX-License-Identifier: Apache-2.0
import types

import fixtures
from oslotest import base

from trove_ceph.trove_adapter import instance_flavor


class InstanceFlavorTest(base.BaseTestCase):
    """The test case acts as Trove's instance and notification."""

    def setUp(self):
        super().setUp()
        self.sent = []
        server = types.SimpleNamespace(id='server')
        instance = types.SimpleNamespace(id='instance', updated=None, server=server)
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.taskmanager.models.BuiltInstanceTasks.load', lambda *_: instance
            )
        )
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.common.notification.TroveInstanceModifyFlavor', self.make_notification
            )
        )

    def make_notification(self, **traits):
        return types.SimpleNamespace(notify=lambda: self.sent.append(traits))

    def notify(self):
        instance_flavor.notify_changed('context', 'instance', {'ram': 1024}, {'ram': 2048})

    def test_notifies_as_trove_does(self):
        self.notify()
        (traits,) = self.sent
        self.assertEqual(
            (1024, 2048, 'server'),
            (traits['old_instance_size'], traits['instance_size'], traits['server'].id),
        )

    def test_failure_does_not_fail_the_resize(self):
        log = self.useFixture(fixtures.FakeLogger('trove_ceph'))

        def fail(*_arguments):
            raise ValueError('Nova is down')

        self.useFixture(
            fixtures.MonkeyPatch('trove.taskmanager.models.BuiltInstanceTasks.load', fail)
        )
        self.notify()
        self.assertEqual([], self.sent)
        self.assertIn('no notification of its new flavor: Nova is down', log.output)
