# SPDX-License-Identifier: Apache-2.0
import threading

import fixtures
import oslo_messaging as messaging
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import backend, image_types, names, tasks
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
        error = self.assertRaises(exceptions.SilentOwnerError, request, *arguments)
        self.assertIn(f'{self.image}: its client {OWNER} holds the exclusive lock', str(error))


class CheckTest(SilentOwnersTestCase):
    def test_a_silent_owner_keeps_its_lock(self):
        self.assert_busy(self.owners.check, self.image)

    def test_an_owner_that_answers_is_asked_by_librbd(self):
        self.locked.watchers.add(OWNER)
        self.owners.check(self.image)

    def test_an_owner_whose_watch_has_not_expired_yet(self):
        self.locked.watchers.add(OWNER)
        self.world.cluster.paused.add(OWNER)
        self.assert_busy(self.owners.check, self.image)

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

    def test_a_client_that_flattened_the_image_does_not_come_back(self):
        self.world.storage.set_image_metadata(self.image, {backend.FLATTENER_KEY: OWNER})
        self.owners.check(self.image)

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
        log = self.useFixture(fixtures.FakeLogger(silent_owners.__name__))
        for _ in range(3):
            self.owners.check(self.image)
        self.assertEqual(1, log.output.count('counts as dead'))

    def test_an_owner_that_nobody_asked_for_may_have_been_back(self):
        self.assert_busy(self.owners.check, self.image)
        self.world.now += silent_owners.FORGET_SEC + 1
        self.assert_busy(self.owners.check, self.image)
        # Clean-up once an hour gets its turn.
        self.world.now += 3600
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
        error = self.assertRaises(exceptions.SilentOwnerError, self.owners.check, self.image)
        self.assertIn('192.0.2.8:0/8', str(error))


class VerbsTest(SilentOwnersTestCase):
    def request(self, verb, snapshot, **arguments):
        try:
            return getattr(self.service.endpoint, verb)({}, snapshot=snapshot, **arguments)
        except messaging.ExpectedException as expected:
            raise expected.exc_info[1] from None

    def test_no_verb_for_snapshots_takes_its_lock(self):
        new = self.image.snapshot('t')
        self.assert_busy(self.request, 'create_snapshot', new)
        self.assert_busy(self.request, 'remove_snapshot', self.snapshot)
        self.assertEqual(['s'], self.world.storage.describe(self.image).snapshot_names)
        self.assertEqual([], self.world.held_locks())
        self.locked.watchers.add(OWNER)
        self.request('create_snapshot', new)

    def test_a_request_that_changes_nothing_needs_no_lock(self):
        """Clean-up and repeated requests expect these answers."""
        missing = self.image.snapshot('t')
        self.assertRaises(exceptions.NotFoundError, self.request, 'remove_snapshot', missing)
        self.assertRaises(
            exceptions.AlreadyExistsError, self.request, 'create_snapshot', self.snapshot
        )

    def test_a_new_name_needs_no_lock(self):
        self.request('rename_snapshot', self.snapshot, name='t')
        self.assertEqual(['t'], self.world.storage.describe(self.image).snapshot_names)


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
        self.assertEqual((JobState.FAILED, 'SilentOwnerError'), (found.state, found.error))
        self.assertEqual(self.snapshot, self.world.storage.describe(self.clone).parent)
        self.locked.watchers.add(OWNER)
        self.assertEqual(JobState.DONE, self.flatten().state)

    def test_the_owner_of_the_clone_keeps_its_lock(self):
        self.locked.lock_owner = None
        self.lock(self.clone)
        found = self.flatten()
        self.assertEqual((JobState.FAILED, 'SilentOwnerError'), (found.state, found.error))

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
                self.assertTrue(stop.wait(60))
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
