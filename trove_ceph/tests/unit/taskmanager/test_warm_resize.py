# SPDX-License-Identifier: Apache-2.0
"""When the flavor of an instance is changed on a warm guest, and when Trove changes it."""

import dataclasses
import types

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementKind, ReplacementState
from trove_ceph.strategies.replacement.dependencies import InstanceFacts, ServerNeeds
from trove_ceph.taskmanager import warm_resize
from trove_ceph.tests.unit.db import replacement_helpers

FACTS = InstanceFacts(
    'instance', 'project', 'db1', 'volume', 'old-server', 'small', 'version', 'RESIZING', 'HEALTHY'
)


class WarmResizeTest(replacement_helpers.ReplacementStoreTestCase):
    """The test case acts as Trove, Nova and the warm guests."""

    def setUp(self):
        super().setUp()
        self.trove.add('instance', replacement_helpers.RESIZING)
        self.facts = FACTS
        self.guest = types.SimpleNamespace(guest_id='guest')
        self.errors = {}
        self.is_in_group = False
        self.claims, self.retired = [], []
        self.deps = types.SimpleNamespace(
            store=self.store,
            instances=types.SimpleNamespace(find=lambda _id: self.facts),
            servers=types.SimpleNamespace(
                find_needs=self.find_needs, is_in_group=lambda _record: self.is_in_group
            ),
            guests=types.SimpleNamespace(claim=self.claim, retire=self.retire),
        )

    def find_needs(self, record):
        self.fail_at('find_needs')
        return ServerNeeds('east', 'image')

    def claim(self, record, not_on):
        self.fail_at('claim')
        self.claims.append((record.flavor_id, record.image_id, record.availability_zone, not_on))
        return self.guest

    def retire(self, guest_id, reason):
        self.retired.append(guest_id)

    def fail_at(self, verb):
        if verb in self.errors:
            raise self.errors[verb]

    def run_request(self):
        return warm_resize.request(self.deps, 'instance', 'large', 1024)

    def assert_left_to_trove(self):
        self.assertIsNone(self.run_request())
        self.assertEqual([], self.store.list())
        self.assertEqual(replacement_helpers.RESIZING, self.trove.task('instance'))

    def test_requests_a_resize_with_a_claimed_guest(self):
        record = self.run_request()
        self.assertEqual([('large', 'image', 'east', None)], self.claims)
        self.assertEqual(
            (ReplacementKind.RESIZE, ReplacementState.REQUESTED, 'large', 'small', 1024),
            (
                *(record.kind, record.state, record.flavor_id),
                *(record.former_flavor_id, record.ram_growth_mib),
            ),
        )
        self.assertEqual(record, self.store.find_open('instance'))
        # The first attempt notes what the new server needs, with the ports.
        self.assertIsNone(record.image_id)
        self.assertEqual([], self.retired)

    def test_sources_and_replicas(self):
        self.facts = dataclasses.replace(FACTS, source_id='a-source')
        self.assertIsNotNone(self.run_request())

    def rebuild(self, image_id='image', **values):
        self.trove.set('instance', task_id=replacement_helpers.BUILDING)
        facts = {'task': 'BUILDING', 'agent_seen_at': self.store.now()}
        self.facts = dataclasses.replace(FACTS, **facts | values)
        return warm_resize.request_rebuild(self.deps, 'instance', image_id)

    def test_requests_a_rebuild_with_a_claimed_guest(self):
        record = self.rebuild()
        self.assertEqual([('small', 'image', 'east', None)], self.claims)
        self.assertEqual(
            (ReplacementKind.REBUILD, 'small', 'rebuild on guest image image'),
            (record.kind, record.flavor_id, record.reason),
        )
        # Trove's API deletes no instance with the task BUILDING.
        self.assertEqual(replacement_helpers.MIGRATING, self.trove.task('instance'))

    def test_rebuild_on_an_image_that_no_guest_has(self):
        self.assertIsNone(self.rebuild('another'))
        self.assertEqual(([], []), (self.claims, self.store.list()))

    def test_rebuild_of_a_server_that_does_not_work(self):
        """Trove's rebuild repairs it, without its agent."""
        for values in ({'agent_seen_at': None}, {'service_status': 'FAILED'}):
            self.assertIsNone(self.rebuild(**values))
            self.assertEqual(([], []), (self.claims, self.store.list()))

    def test_no_guest(self):
        self.guest = None
        self.assert_left_to_trove()

    def test_instance_in_a_server_group(self):
        """A guest is in no group; Nova resizes and rebuilds a server within its group."""
        self.is_in_group = True
        self.assert_left_to_trove()
        self.assertIsNone(self.rebuild())
        self.assertEqual([], self.claims)

    def test_cloud_that_does_not_answer(self):
        for verb in ('find_needs', 'claim'):
            self.errors = {verb: exceptions.ServiceUnavailableError('Nova is down')}
            self.assert_left_to_trove()

    def test_instance_that_cannot_be_replaced(self):
        self.facts = None
        self.assert_left_to_trove()
        self.facts = dataclasses.replace(FACTS, source_change='is being promoted')
        self.assert_left_to_trove()
        self.assertEqual([], self.claims)

    def test_refused_request_gives_the_guest_up(self):
        self.trove.set('instance', task_id=replacement_helpers.DELETING)
        self.assertIsNone(self.run_request())
        self.assertEqual(['guest'], self.retired)
