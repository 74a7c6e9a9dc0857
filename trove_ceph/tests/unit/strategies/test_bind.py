# SPDX-License-Identifier: Apache-2.0
"""Warm guests become the servers of instances, or are deleted."""

import datetime
import uuid

from oslotest import base

from trove_ceph import exceptions, steps, waiting
from trove_ceph.cinder import resources
from trove_ceph.db.guest_record import GuestState
from trove_ceph.guestagent import waiting_messages
from trove_ceph.strategies.guests import bind
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.db import guest_helpers

NOW = datetime.datetime(2026, 1, 1)


class Cloud:
    """Nova, Neutron, Cinder, the agent and the record of one guest."""

    def __init__(self):
        self.guest = guest_helpers.record(
            'guest',
            NOW,
            GuestState.CLAIMED,
            server_id='server',
            port_id='management',
            instance_id=str(uuid.uuid4()),
        )
        self.volume_id = str(uuid.uuid4())
        self.calls = []
        self.is_hot = False
        self.bound_to = None
        self.attached = []
        # The statuses of the volume after the request to attach it; the last one stays. Nova may
        # need longer than all requests that follow.
        self.attaching = ['reserved', 'attaching', 'in-use']
        self.statuses = ['available']
        # The statuses after the deletion of the server; none: as it was before.
        self.detaching = []
        self.record = GuestState.CLAIMED
        self.reason = None
        self.server = {'name': 'trove-guest-guest'}
        self.deletion_fails = False
        self.fence_error = None
        self.now = 0.0

    def deps(self):
        return bind.BindDependencies(
            agents=self,
            servers=self,
            ports=self,
            store=self,
            volumes=self,
            fence=self._fence,
            start_wait=lambda seconds: waiting.Deadline(seconds, lambda: self.now, self._sleep),
        )

    def request(self):
        return bind.BindRequest(
            is_hot=self.is_hot,
            instance_id=self.guest.instance_id,
            name='db1',
            volume_id=self.volume_id,
            port_ids=('first', 'second'),
            files={'/etc/trove/conf.d/guest_info.conf': '[DEFAULT]'},
            metadata={'trove_instance_id': self.guest.instance_id},
            tags=('trove_instance',),
        )

    def binding(self):
        return bind.Binding(self.deps(), self.guest, self.request())

    def _sleep(self, seconds):
        self.now += seconds

    def _fence(self, volume_id, confirm=None):
        self.calls.append(f'fence {volume_id}')
        if self.server is not None:
            raise AssertionError('Nova may still open the image for this server')
        if self.fence_error is not None:
            raise self.fence_error

    # The agent.

    def bind(self, guest, binding):
        self.calls.append('bind')
        if self.attached:
            raise AssertionError('something was attached before the guest had the identity')
        self.bound_to = binding

    # Neutron.

    def find_interface(self, port_id):
        return waiting_messages.Interface(
            mac=f'fa:16:3e:00:00:{len(port_id):02x}',
            mtu=1400,
            addresses=('192.0.2.5/24',),
            gateway=None,
        )

    # Nova.

    def attach_volume(self, server_id, volume_id):
        self.calls.append('attach_volume')
        self.attached.append(volume_id)
        self.statuses = list(self.attaching)

    def attach_port(self, server_id, port_id):
        self.calls.append(f'attach_port {port_id}')
        self.attached.append(port_id)

    def describe(self, server_id, name, metadata, tags):
        self.server = {'name': name, 'metadata': dict(metadata), 'tags': list(tags)}

    def delete(self, server_id):
        if self.deletion_fails:
            raise exceptions.ServiceUnavailableError('Nova is down')
        self.server = None
        self.attached = []
        if self.detaching:
            self.statuses = list(self.detaching)

    # Cinder.

    def find_volume(self, volume_id):
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status is None:
            return None
        return resources.Volume(volume_id, 'v', status, 1, 'host@b#p', 'project', 'nvme', {})

    # The store.

    def mark_bound(self, guest_id, instance_id):
        if self.record is GuestState.RETIRED:
            raise exceptions.InvalidTransitionError('retired')
        self.record = GuestState.BOUND

    def retire(self, guest_id, reason):
        self.record, self.reason = GuestState.RETIRED, reason


class BindTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.cloud = Cloud()

    def assert_discarded(self):
        self.assertIs(GuestState.RETIRED, self.cloud.record)
        self.assertIn(self.cloud.guest.instance_id, self.cloud.reason)
        # The server of a guest that has nothing of the instance is deleted in the background.
        if 'attach_volume' in self.cloud.calls:
            self.assertIsNone(self.cloud.server)
            self.assertEqual(f'fence {self.cloud.volume_id}', self.cloud.calls[-1])
        self.assertEqual([], self.cloud.attached)

    def test_guest_becomes_the_server_of_the_instance(self):
        self.cloud.binding().run()
        self.assertIs(GuestState.BOUND, self.cloud.record)
        self.assertEqual([self.cloud.volume_id, 'first', 'second'], self.cloud.attached)
        self.assertEqual(
            {
                'name': 'db1',
                'metadata': {'trove_instance_id': self.cloud.guest.instance_id},
                'tags': ['trove_instance'],
            },
            self.cloud.server,
        )
        binding = self.cloud.bound_to
        self.assertEqual(self.cloud.guest.instance_id, binding.instance_id)
        self.assertEqual(self.cloud.volume_id, binding.volume_id)
        self.assertEqual({'/etc/trove/conf.d/guest_info.conf': '[DEFAULT]'}, binding.files)
        self.assertEqual(2, len(binding.interfaces))
        self.assertEqual('db1', binding.hostname)

    def test_host_names(self):
        for name, expected in (
            ('Orders DB_1', 'orders-db-1'),
            ('-a.b-', 'a-b'),
            ('x' * 200, 'x' * 63),
            (f'{"x" * 62}-y', 'x' * 62),
            ('база', None),
        ):
            self.assertEqual(expected, bind.hostname_of(name))

    def test_nothing_is_attached_before_the_guest_has_the_identity(self):
        self.cloud.binding().run()
        self.assertEqual('bind', self.cloud.calls[0])

    def test_ports_do_not_wait_for_the_volume(self):
        self.cloud.attach_port = self._attach_early
        self.cloud.binding().run()
        self.assertEqual(['in-use'], self.cloud.statuses)

    def _attach_early(self, server_id, port_id):
        self.assertEqual('reserved', self.cloud.statuses[0])

    def test_success_fences_nothing(self):
        self.cloud.binding().run()
        self.assertNotIn(f'fence {self.cloud.volume_id}', self.cloud.calls)

    def test_failure_before_or_after_any_step_deletes_the_guest(self):
        for after in (False, True):
            for number in range(len(Cloud().binding().steps())):
                self.cloud = Cloud()
                operation = self.cloud.binding().steps()
                operation[number] = interruption.interrupted(
                    operation[number], interruption.Failure, after
                )
                self.assertRaises(interruption.Failure, steps.run, 'binding', operation)
                self.assert_discarded()

    def test_volume_that_nova_does_not_attach(self):
        for statuses, expected in (
            (['reserved', 'available'], 'found available'),
            (['attaching', 'error'], 'found error'),
            ([None], 'found None'),
            (['reserved'], 'found reserved'),
        ):
            self.cloud = Cloud()
            self.cloud.attaching = statuses
            error = self.assertRaises(exceptions.ServiceUnavailableError, self.cloud.binding().run)
            self.assertIn(expected, str(error))
            self.assert_discarded()

    def test_guest_that_refuses_keeps_nobody_waiting(self):
        self.cloud.bind = self.refuse
        self.cloud.deletion_fails = True
        error = self.assertRaises(exceptions.GuestUnavailableError, self.cloud.binding().run)
        self.assertNotIsInstance(error, exceptions.NotFencedError)
        self.assert_discarded()
        self.assertEqual([], self.cloud.calls)

    def refuse(self, _guest, _binding):
        raise exceptions.GuestUnavailableError('no answer')

    def test_process_that_may_outlive_its_server(self):
        """As on a host that is down: Nova reports the server as deleted at once."""
        self.cloud.attaching = ['available']
        error = self.assertRaises(exceptions.ServiceUnavailableError, self.cloud.binding().run)
        self.assertNotIsInstance(error, exceptions.NotFencedError)
        self.assert_discarded()

    def test_next_server_gets_a_volume_that_is_free(self):
        """Nova refuses to boot a server with a volume that Cinder still detaches."""
        self.cloud.attach_port = lambda *_: self.refuse(None, None)
        self.cloud.detaching = ['in-use', 'detaching', 'available', 'unread']
        self.assertRaises(exceptions.GuestUnavailableError, self.cloud.binding().run)
        self.assertEqual(['unread'], self.cloud.statuses)

    def test_volume_that_is_not_free_in_time(self):
        """Nova decides."""
        self.cloud.attach_port = lambda *_: self.refuse(None, None)
        self.cloud.detaching = ['detaching']
        error = self.assertRaises(exceptions.GuestUnavailableError, self.cloud.binding().run)
        self.assertEqual('no answer', str(error))
        self.assert_discarded()

    def test_volume_that_cannot_be_fenced(self):
        for fence_error in (
            exceptions.NotFencedError('no proof'),
            exceptions.ServiceUnavailableError('no storage service'),
        ):
            self.cloud = Cloud()
            self.cloud.attaching = ['available']
            self.cloud.fence_error = fence_error
            error = self.assertRaises(exceptions.NotFencedError, self.cloud.binding().run)
            self.assertIn('may still write', str(error))
            self.assert_discarded()

    def test_server_that_cannot_be_deleted(self):
        self.cloud.attaching = ['available']
        self.cloud.deletion_fails = True
        error = self.assertRaises(exceptions.NotFencedError, self.cloud.binding().run)
        self.assertIs(GuestState.RETIRED, self.cloud.record)
        self.assertIn('Nova is down', error.__cause__.__notes__[0])


class BindHotTest(base.BaseTestCase):
    """The guest has the volume already; if it cannot be bound, the instance gets another one."""

    def make(self):
        self.cloud = Cloud()
        self.cloud.is_hot = True

    def test_only_ports_are_attached(self):
        self.make()
        self.cloud.binding().run()
        self.assertIs(GuestState.BOUND, self.cloud.record)
        self.assertEqual(['first', 'second'], self.cloud.attached)
        self.assertEqual(self.cloud.volume_id, self.cloud.bound_to.volume_id)

    def test_failure_before_or_after_any_step_deletes_the_guest(self):
        for after in (False, True):
            self.make()
            for number in range(len(self.cloud.binding().steps())):
                self.make()
                operation = self.cloud.binding().steps()
                operation[number] = interruption.interrupted(
                    operation[number], interruption.Failure, after
                )
                self.assertRaises(interruption.Failure, steps.run, 'binding', operation)
                self.assertIs(GuestState.RETIRED, self.cloud.record)
                # It could serve beside another server, which gets the ports, but not the volume.
                self.assertIsNone(self.cloud.server)
                self.assertEqual([], self.cloud.attached)
                self.assertNotIn(f'fence {self.cloud.volume_id}', self.cloud.calls)

    def test_ports_of_a_server_that_cannot_be_deleted(self):
        """The next server waits for them in Nova; nothing can write to its volume."""
        self.make()
        self.cloud.deletion_fails = True
        self.cloud.describe = self.refuse
        error = self.assertRaises(exceptions.ServiceUnavailableError, self.cloud.binding().run)
        self.assertNotIsInstance(error, exceptions.NotFencedError)
        self.assertIs(GuestState.RETIRED, self.cloud.record)

    def refuse(self, *_arguments):
        raise exceptions.ServiceUnavailableError('Nova refuses')
