# SPDX-License-Identifier: Apache-2.0
import threading
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.guestagent import interface_wait
from trove_ceph.tests.unit.guestagent import manager_world

INTERFACES = (mock.sentinel.interface,)
_TIMEOUT_SEC = 30


class WaitTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.guestagent.interface_wait._begun', None))
        self.are_ready = threading.Event()
        self.addCleanup(self.are_ready.set)
        self.error = None
        self.wait_until_ready = self.useFixture(
            fixtures.MockPatch(
                'trove_ceph.guestagent.network_interface.wait_until_ready',
                side_effect=self.attach,
            )
        ).mock

    def attach(self, interfaces, deadline):
        self.are_ready.wait(_TIMEOUT_SEC)
        if self.error:
            raise self.error

    def run_in_thread(self, function):
        """Call a function; return an event that is set once it has returned."""
        has_returned = threading.Event()

        def run():
            function()
            has_returned.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.addCleanup(thread.join, _TIMEOUT_SEC)
        return has_returned


class WaitTest(WaitTestCase):
    def test_it_waits_in_the_background_until_it_is_finished(self):
        interface_wait.begin(INTERFACES, 7)

        has_finished = self.run_in_thread(interface_wait.finish)
        self.assertFalse(has_finished.wait(0.2))
        self.are_ready.set()
        self.assertTrue(has_finished.wait(_TIMEOUT_SEC))

        interfaces, deadline = self.wait_until_ready.call_args.args
        self.assertEqual(INTERFACES, interfaces)
        self.assertTrue(0 < deadline.left_sec <= 7)
        self.assertIn('The interfaces were ready after', self.log.output)

    def test_finished_repeatedly(self):
        interface_wait.begin(INTERFACES, 7)
        self.are_ready.set()

        interface_wait.finish()
        interface_wait.finish()

        self.wait_until_ready.assert_called_once()

    def test_an_agent_that_is_restarted_does_not_wait(self):
        interface_wait.finish()

        self.wait_until_ready.assert_not_called()
        self.assertEqual('', self.log.output)

    def test_an_error_is_that_of_the_agent(self):
        for error in (exceptions.InterfaceNotReadyError('No interface'), OSError('No /sys')):
            self.error = error
            self.are_ready.set()
            interface_wait.begin(INTERFACES, 7)

            self.assertIs(error, self.assertRaises(type(error), interface_wait.finish))

        self.assertNotIn('ready', self.log.output)


class ManagerTest(WaitTestCase, manager_world.ManagerTestCase):
    """Trove's agent has a guest manager, and then listens."""

    def test_there_is_no_manager_until_the_interfaces_are_ready(self):
        interface_wait.begin(INTERFACES, 7)

        is_made = self.run_in_thread(type(self.manager))
        self.assertFalse(is_made.wait(0.2))
        self.are_ready.set()
        self.assertTrue(is_made.wait(_TIMEOUT_SEC))

    def test_there_is_no_manager_without_an_interface(self):
        self.error = exceptions.InterfaceNotReadyError('No interface')
        self.are_ready.set()
        interface_wait.begin(INTERFACES, 7)

        self.assertRaises(exceptions.InterfaceNotReadyError, type(self.manager))
