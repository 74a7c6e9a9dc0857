# SPDX-License-Identifier: Apache-2.0
import threading

import fixtures
import oslo_messaging as messaging
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import image_types, names, tasks
from trove_ceph.storage.tasks import JobState
from trove_ceph.storage_service import silent_owners
from trove_ceph.tests.unit.storage_service import service_world

OWNER = '192.0.2.7:0/7'
OWN_NAME = names.image_name('vault', '2f0d4a0e-64a9-4fbb-9a5c-d6f9a5d7e3f1')


class SilentOwnersTestCase(base.BaseTestCase):
    """A server has locked the volume ``image``; its host was paused, so its watch has expired."""

    def setUp(self):
        super().setUp()
        self.world = service_world.World()
        self.image = self.world.image
        self.snapshot = self.image.snapshot('s')
        self.service = self.world.service()
        self.owners = self.service.owners
        self.locked = self.lock(self.image)

    def lock(self, image):
        found = self.world.cluster.get(image)
        found.lock_owner = OWNER
        return found

    def assert_busy(self, request, *arguments):
        error = self.assertRaises(exceptions.BusyError, request, *arguments)
        self.assertIn(f'{self.image}: its client {OWNER} holds the exclusive lock', str(error))


class CheckTest(SilentOwnersTestCase):
    def test_a_silent_owner_keeps_its_lock(self):
        self.assert_busy(self.owners.check, self.image)

    def test_an_owner_that_watches_is_asked_by_librbd(self):
        self.locked.watchers.add(OWNER)
        self.owners.check(self.image)

    def test_an_image_without_a_lock(self):
        self.locked.lock_owner = None
        self.owners.check(self.image)

    def test_a_fenced_owner_does_not_come_back(self):
        self.world.storage.blocklist([OWNER], 60)
        self.owners.check(self.image)

    def test_an_image_that_does_not_exist_has_no_owner(self):
        self.owners.check(image_types.ImageRef('volumes', 'other'))

    def test_a_copy_of_the_service_does_not_come_back(self):
        vault = image_types.ImageRef('vault', OWN_NAME)
        self.world.storage.create_image(vault, 4096, image_types.ImageOptions())
        self.lock(vault)
        self.owners.check(vault)

    def test_a_client_that_has_just_opened_the_image_is_not_silent(self):
        """Its watch came after the watchers were listed, and its lock before that was listed."""
        answers = [(), (OWNER,)]

        def find_clients(image):
            return image_types.Clients(frozenset(answers.pop(0)), OWNER)

        self.service.storage.find_clients = find_clients
        self.owners.check(self.image)
        self.assertEqual([], answers)

    def test_waits_for_a_client_that_watches_again(self):
        def sleep(seconds):
            self.locked.watchers.add(OWNER)

        began = self.world.now
        owners = silent_owners.SilentOwners(
            self.world.storage, clock=lambda: self.world.now, sleep=sleep
        )
        owners.check(self.image)
        self.assertEqual(began, self.world.now)

    def test_an_owner_counts_as_dead_in_the_end(self):
        self.assert_busy(self.owners.check, self.image)
        self.world.now += silent_owners.LIMIT_SEC
        self.owners.check(self.image)

    def test_an_owner_that_came_back_in_between_is_waited_for_again(self):
        self.assert_busy(self.owners.check, self.image)
        self.locked.watchers.add(OWNER)
        self.owners.check(self.image)
        self.world.now += silent_owners.LIMIT_SEC
        self.locked.watchers.clear()
        self.assert_busy(self.owners.check, self.image)

    def test_each_owner_has_its_own_time(self):
        self.assert_busy(self.owners.check, self.image)
        self.world.now += silent_owners.LIMIT_SEC
        self.locked.lock_owner = '192.0.2.8:0/8'
        error = self.assertRaises(exceptions.BusyError, self.owners.check, self.image)
        self.assertIn('192.0.2.8:0/8', str(error))


class VerbsTest(SilentOwnersTestCase):
    def request(self, verb, **arguments):
        try:
            return getattr(self.service.endpoint, verb)({}, **arguments)
        except messaging.ExpectedException as expected:
            raise expected.exc_info[1] from None

    def refused(self):
        return (
            ('create_snapshot', {'snapshot': self.image.snapshot('t')}),
            ('rename_snapshot', {'snapshot': self.snapshot, 'name': 't'}),
            ('remove_snapshot', {'snapshot': self.snapshot}),
        )

    def test_no_verb_for_snapshots_takes_its_lock(self):
        for verb, arguments in self.refused():
            self.assert_busy(lambda v=verb, a=arguments: self.request(v, **a))
        self.assertEqual(['s'], self.world.storage.describe(self.image).snapshot_names)
        self.assertEqual([], self.world.held_locks())
        self.locked.watchers.add(OWNER)
        self.request('create_snapshot', snapshot=self.image.snapshot('t'))

    def test_the_trash_takes_it(self):
        self.request('trash', image=self.image)


class FlattenTest(SilentOwnersTestCase):
    def setUp(self):
        super().setUp()
        self.clone = image_types.ImageRef('vault', 'clone')
        self.world.storage.clone(self.snapshot, self.clone, image_types.ImageOptions())
        self.work = tasks.FlattenTask(self.clone)

    def flatten(self):
        self.service.jobs.start('op', self.work)
        return self.service.jobs.find('op')

    def test_the_owner_of_the_parent_keeps_its_lock(self):
        found = self.flatten()
        self.assertEqual((JobState.FAILED, 'BusyError'), (found.state, found.error))
        self.assertEqual(self.snapshot, self.world.storage.describe(self.clone).parent)
        self.locked.watchers.add(OWNER)
        self.assertEqual(JobState.DONE, self.flatten().state)

    def test_the_owner_of_the_clone_keeps_its_lock(self):
        self.locked.lock_owner = None
        self.lock(self.clone)
        found = self.flatten()
        self.assertEqual((JobState.FAILED, 'BusyError'), (found.state, found.error))

    def test_an_image_without_a_parent(self):
        self.world.cluster.get(self.clone).flatten()
        self.assertEqual(JobState.DONE, self.flatten().state)

    def test_an_owner_that_turns_silent_meanwhile_stops_it(self):
        self.locked.watchers.add(OWNER)
        self.use_short_polls()

        def work():
            with self.owners.checked(self.clone, threading.Event()) as stop:
                self.assertFalse(stop.is_set())
                self.locked.watchers.clear()
                while not stop.is_set():
                    pass
                raise exceptions.CanceledError('canceled')

        self.assert_busy(work)

    def test_a_cancel_request_stops_it(self):
        self.locked.watchers.add(OWNER)
        cancel = threading.Event()

        def work():
            with self.owners.checked(self.clone, cancel) as stop:
                self.assertFalse(stop.wait(0.01))
                cancel.set()
                self.assertTrue(stop.is_set())
                self.assertTrue(stop.wait())
                raise exceptions.CanceledError('canceled')

        self.assertRaises(exceptions.CanceledError, work)

    def test_ceph_may_not_answer_meanwhile(self):
        self.locked.watchers.add(OWNER)
        self.use_short_polls()
        asked = threading.Event()

        def find_clients(image):
            asked.set()
            raise exceptions.CephUnreachableError('no answer')

        with self.owners.checked(self.clone, threading.Event()) as stop:
            self.service.storage.find_clients = find_clients
            self.assertTrue(asked.wait(60))
        self.assertFalse(stop.is_set())

    def use_short_polls(self):
        self.useFixture(fixtures.MonkeyPatch(f'{silent_owners.__name__}._POLL_SEC', 0.01))
