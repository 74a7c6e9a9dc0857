# SPDX-License-Identifier: Apache-2.0
import threading

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import golden, image_types, tasks
from trove_ceph.storage.tasks import JobState
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.golden import world
from trove_ceph.tests.unit.storage_service import service_world
from trove_ceph.verification import report


class BuildTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = world.World()

    def assert_nothing_left(self):
        self.assertEqual(([], []), (self.world.images(), self.world.directories))

    def test_built_and_inspected_before_it_is_ready(self):
        self.world.build()
        self.assertEqual(golden.State.READY, self.world.state())
        self.assertEqual(world.DATA, self.world.content())
        facts = self.world.storage.describe(world.VOLUME.image)
        self.assertEqual((2**30, ['ready']), (facts.size_bytes, facts.snapshot_names))
        self.assertEqual(world.VOLUME, golden.find_content(facts))
        (inspected,) = self.world.inspected
        self.assertEqual(world.VOLUME.snapshot(golden.State.BUILT), inspected.snapshot)
        self.assertEqual('', inspected.expected_gtid)
        self.assertEqual((True, True), (inspected.exact, inspected.deep))
        self.assertEqual([], self.world.directories)
        self.assertEqual(
            [one.name for one in self.world.operation()], list(dict.fromkeys(self.world.phases))
        )

    def test_one_that_is_ready_is_not_built_again(self):
        self.world.build()
        before = self.world.storage.describe(world.VOLUME.image).image_id
        self.world.build()
        self.assertEqual(before, self.world.storage.describe(world.VOLUME.image).image_id)
        self.assertEqual(1, len(self.world.inspected))

    def test_one_that_is_not_sound_is_removed(self):
        self.world.found = report.Inspection(report.CORRUPT, ('table mysql.user: corrupt',))
        error = self.assertRaises(exceptions.ServerFailedError, self.world.build)
        self.assertIn('found corrupt: table mysql.user: corrupt', str(error))
        self.assert_nothing_left()

    def test_a_failure_leaves_nothing(self):
        for name in ('clear_killed', 'initialise', 'format', 'write', 'inspect'):
            self.world.raises = {name: exceptions.ServerFailedError(name)}
            self.assertRaises(exceptions.ServerFailedError, self.world.build)
            self.assert_nothing_left()

    def test_canceled(self):
        cancel = threading.Event()
        cancel.set()
        self.assertRaises(exceptions.CanceledError, self.world.build, cancel=cancel)
        self.assert_nothing_left()

    def test_canceled_in_any_phase(self):
        for phase in [one.name for one in self.world.operation()][:-1]:
            cancel = threading.Event()

            def note(name, *_, at=phase, cancel=cancel):
                if name == at:
                    cancel.set()

            builder = self.world.builder()
            self.assertRaises(
                exceptions.CanceledError,
                builder.build,
                *(self.world.work, image_types.ImageOptions(), cancel),
                note=note,
            )
            self.assert_nothing_left()

    def test_changes_nothing_without_its_locks(self):
        self.assertRaises(exceptions.CanceledError, self.world.build, is_allowed=lambda: False)
        self.assert_nothing_left()

    def test_one_that_is_retired_is_replaced_when_no_clone_reads_from_it(self):
        self.world.build()
        ready = world.VOLUME.snapshot(golden.State.READY)
        clone = image_types.ImageRef('volumes', 'volume-of-an-instance')
        self.world.storage.clone(ready, clone, image_types.ImageOptions())
        self.world.storage.rename_snapshot(ready, golden.State.RETIRED.value)
        error = self.assertRaises(exceptions.BusyError, self.world.build)
        self.assertIn('volume-of-an-instance', str(error))
        self.assertEqual(golden.State.RETIRED, self.world.state())
        self.world.storage.flatten(clone)
        self.world.build()
        self.assertEqual(golden.State.READY, self.world.state())


class BuildInterruptionTest(interruption.InterruptionTests, base.BaseTestCase):
    def make_world(self):
        return world.World()

    def make_operation(self, world):
        return world.operation()

    def check_done(self, made):
        self.assertEqual(golden.State.READY, made.state())
        self.assertEqual([world.VOLUME.image], made.images())
        self.assertEqual(world.DATA, made.content())

    def check_undone(self, made):
        self.assertEqual([], made.images())


class BuildJobTest(base.BaseTestCase):
    """As a job of the storage service, killed at each request to Ceph."""

    def prepare(self):
        self.services = service_world.World()
        self.world = world.World()
        self.world.storage = self.services.storage
        self.work = self.world.work

    def service(self, name, life=None):
        return self.services.service(name, life, builder=self.world.builder)

    def assert_done(self, service):
        found = service.jobs.find('op')
        self.assertEqual(JobState.DONE, found.state, found)
        self.assertEqual(golden.State.READY, self.world.state())
        self.assertEqual(
            {self.services.image, world.VOLUME.image},
            {one.ref for one in self.services.cluster.images},
        )
        self.assertEqual([], self.services.held_locks())

    def test_done(self):
        self.prepare()
        one = self.service('one')
        one.endpoint.start({}, operation_id='op', work=self.work)
        self.assert_done(one)

    def test_a_service_without_mysql_refuses(self):
        self.prepare()
        one = self.services.service('one')
        one.jobs.start('op', self.work)
        self.assertEqual('NotInspectableError', one.jobs.find('op').error)

    def test_locks(self):
        self.prepare()
        for image in (world.VOLUME.image, self.work.inspection.clone):
            with self.service('other').leases.hold([tasks.image_lock(image)], 'x', wait_sec=0):
                self.assertRaises(
                    exceptions.BusyError, self.service('one').jobs.start, 'op', self.work
                )

    def test_killed_at_each_request(self):
        requests = 0
        while True:
            self.prepare()
            try:
                self.service('one', service_world.Life(requests)).jobs.start('op', self.work)
                break
            except interruption.Kill as killed:
                killed.add_note(f'after {requests} requests')
                self.services.expire_dead_clients()
                other = self.service('other')
                other.jobs.start('op', self.work)
                self.assert_done(other)
                requests += 1
        self.assertGreater(requests, 8)
