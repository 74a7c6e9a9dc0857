# SPDX-License-Identifier: Apache-2.0
"""Kill a copy of the service at each of its requests to Ceph; another copy resumes the job."""

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import copying, image_types, tasks
from trove_ceph.storage.tasks import JobState
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.storage_service import service_world


class KilledJobsTest(base.BaseTestCase):
    def kill_everywhere(self, make_work, check):
        """Run the job once per request, killed at that request; return the number of requests."""
        requests = 0
        while True:
            world = service_world.World()
            work = make_work(world)
            life = service_world.Life(requests)
            try:
                world.service('one', life).jobs.start('op', work)
            except interruption.Kill as killed:
                killed.add_note(f'after {requests} requests')
                world.expire_dead_clients()
                self.check_resumed(world, work)
                check(world)
                requests += 1
            else:
                check(world)
                return requests

    def check_resumed(self, world, work):
        other = world.service('other')
        try:
            before = other.jobs.find('op')
            self.assertIn(before.state, (JobState.INTERRUPTED, JobState.DONE))
        except exceptions.NotFoundError:
            # It was killed before it wrote the record.
            self.assertEqual([], other.jobs.all())
        other.jobs.start('op', work)
        found = other.jobs.find('op')
        self.assertEqual(JobState.DONE, found.state, found)
        self.assertEqual([], world.held_locks())
        self.assertEqual(['op'], [each.operation_id for each in other.jobs.all()])

    def test_full_copy(self):
        def check(world):
            facts = world.storage.describe(world.vault)
            self.assertEqual(['s'], list(copying.complete_copies(facts)))
            source, copy = world.image.snapshot('s'), world.vault.snapshot('s')
            self.assertEqual(world.content(source), world.content(copy))

        requests = self.kill_everywhere(
            lambda world: tasks.CopyTask(world.image.snapshot('s'), world.vault), check
        )
        self.assertGreater(requests, 30)

    def test_increment(self):
        def make_work(world):
            world.service('earlier').jobs.start(
                'earlier', tasks.CopyTask(world.image.snapshot('s'), world.vault)
            )
            world.cluster.entries.clear()
            world.write(b'1x3')
            world.storage.create_snapshot(world.image.snapshot('t'))
            return tasks.CopyTask(world.image.snapshot('t'), world.vault, since='s')

        def check(world):
            facts = world.storage.describe(world.vault)
            self.assertEqual(['s', 't'], list(copying.complete_copies(facts)))
            for name in ('s', 't'):
                source, copy = world.image.snapshot(name), world.vault.snapshot(name)
                self.assertEqual(world.content(source), world.content(copy))

        self.kill_everywhere(make_work, check)

    def test_flatten(self):
        clone = image_types.ImageRef('vault', 'clone')

        def make_work(world):
            world.storage.clone(world.image.snapshot('s'), clone, image_types.ImageOptions())
            return tasks.FlattenTask(clone)

        self.kill_everywhere(
            make_work, lambda world: self.assertIsNone(world.storage.describe(clone).parent)
        )

    def test_verify(self):
        def make_work(world):
            world.service('earlier').jobs.start(
                'earlier', tasks.CopyTask(world.image.snapshot('s'), world.vault)
            )
            world.cluster.entries.clear()
            return tasks.VerifyTask(world.image.snapshot('s'), world.vault.snapshot('s'))

        def check(world):
            facts = world.storage.describe(world.vault)
            self.assertEqual(['s'], list(copying.complete_copies(facts)))

        self.kill_everywhere(make_work, check)

    def test_fence(self):
        def make_work(world):
            world.victim = world.storage.open_writer(world.image)
            world.alive |= world.storage.find_clients(world.image).addresses
            return tasks.FenceTask(world.image)

        def check(world):
            self.assertRaises(exceptions.CephUnreachableError, world.victim.flush)

        self.kill_everywhere(make_work, check)

    def test_a_killed_fence_is_no_proof(self):
        """The job is not done before the fence is proved."""
        requests = 0
        while True:
            world = service_world.World()
            world.storage.open_writer(world.image)
            life = service_world.Life(requests)
            try:
                world.service('one', life).jobs.start('op', tasks.FenceTask(world.image))
                return
            except interruption.Kill:
                requests += 1
            world.now += service_world.DURATION_SEC + 1
            for found in world.service('other').jobs.all():
                if found.state is JobState.DONE:
                    self.assertEqual(frozenset(), world.storage.find_clients(world.image).addresses)

    def test_purge(self):
        def make_work(world):
            trashed = world.storage.trash(world.image)
            return tasks.PurgeTask(trashed.pool, trashed.image_id)

        def check(world):
            self.assertEqual([], world.storage.list_trash('volumes'))

        self.kill_everywhere(make_work, check)
