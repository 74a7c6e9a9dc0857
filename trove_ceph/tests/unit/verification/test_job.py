# SPDX-License-Identifier: Apache-2.0
"""Inspections as jobs of the storage service, killed at each request to Ceph."""

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import tasks
from trove_ceph.storage.tasks import JobState
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.storage_service import service_world
from trove_ceph.tests.unit.verification import world
from trove_ceph.verification import inspection
from trove_ceph.verification import report as verification


class InspectJobTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.prepare()

    def prepare(self):
        self.services = service_world.World()
        self.inspected = world.World()
        self.inspected.storage = self.services.storage
        self.work = tasks.InspectTask(self.services.image.snapshot('s'), world.CHECK_ID, '9.7.4')

    def service(self, name, life=None):
        def make(storage):
            return inspection.Inspector(
                storage, lambda: self.inspected.sandbox(name), world.SETTINGS
            )

        return self.services.service(name, life, inspector=make)

    def assert_nothing_left(self):
        clones = [one.ref for one in self.services.cluster.images if one.parent]
        self.assertEqual([], clones)
        self.assertEqual([], self.services.held_locks())

    def test_done(self):
        one = self.service('one')
        found = one.endpoint.start({}, operation_id='op', work=self.work)
        found = one.endpoint.find_job({}, operation_id='op')
        self.assertEqual((JobState.DONE, 'removing'), (found.state, found.phase))
        self.assertTrue(found.result.ok)
        self.assert_nothing_left()

    def test_a_finding_is_a_result_and_a_failure_is_an_error(self):
        one = self.service('one')
        self.inspected.raises = {'start': world.corrupt('redo')}
        one.jobs.start('op', self.work)
        self.assertEqual(verification.CORRUPT, one.jobs.find('op').result.verdict)
        self.inspected.raises = {'start': world.refused()}
        one.jobs.start('op2', self.work)
        found = one.jobs.find('op2')
        self.assertEqual((JobState.FAILED, 'NotInspectableError'), (found.state, found.error))
        self.inspected.raises = {}
        one.jobs.start('op2', self.work)
        self.assertEqual(JobState.DONE, one.jobs.find('op2').state)
        self.assert_nothing_left()

    def test_a_service_without_inspector_refuses(self):
        one = self.services.service('one')
        one.jobs.start('op', self.work)
        self.assertEqual('NotInspectableError', one.jobs.find('op').error)

    def test_locks(self):
        other = self.services.service('other')
        locks = [tasks.snapshot_lock(self.work.snapshot)]
        with other.leases.hold(locks, 'a removal', wait_sec=0):
            self.assertRaises(exceptions.BusyError, self.service('one').jobs.start, 'op', self.work)
        self.assertIn(tasks.image_lock(self.work.clone), self.work.locks)
        self.assertEqual((self.work.snapshot.of,), self.work.sources)

    def test_refuses_invalid_parameters(self):
        snapshot = self.work.snapshot
        for invalid in (
            {'check_id': 'x'},
            {'sample_tables': 0},
            {'time_limit_sec': -1},
        ):
            given = {'check_id': world.CHECK_ID, 'version': '9.7.4'} | invalid
            self.assertRaises(ValueError, tasks.InspectTask, snapshot, **given)

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
                found = other.jobs.find('op')
                self.assertEqual(JobState.DONE, found.state, found)
                self.assertTrue(found.result.ok)
                self.assert_nothing_left()
                requests += 1
        self.assertGreater(requests, 8)

    def die_in_the_middle(self, name):
        """Kill a copy of the service while it runs the inspection."""
        life = service_world.Life(None)
        self.inspected.on_open = lambda: setattr(life, 'left', 0)
        try:
            self.assertRaises(
                interruption.Kill, self.service(name, life).jobs.start, 'op', self.work
            )
        finally:
            self.inspected.on_open = None
        self.services.expire_dead_clients()

    def test_given_up_after_three_deaths(self):
        for name in ('one', 'two', 'three'):
            self.die_in_the_middle(name)
        self.assertEqual(JobState.INTERRUPTED, self.service('four').jobs.find('op').state)

        given_up = self.service('four').jobs.start('op', self.work)

        self.assertEqual(
            (JobState.FAILED, 'NotInspectableError', 3),
            (given_up.state, given_up.error, given_up.attempt),
        )
        self.assertIn('the service died in 3 attempts', given_up.message)
        self.assertEqual([], self.services.held_locks())
        # The result stays, for each caller and each copy; another id starts a new inspection.
        self.assertEqual(given_up, self.service('five').jobs.start('op', self.work))
        self.assertEqual(given_up, self.service('five').jobs.find('op'))
        again = self.service('five').jobs.start('op-2', self.work)
        self.assertEqual(JobState.DONE, self.service('five').jobs.find('op-2').state, again)

    def test_deaths_count_only_one_after_the_other(self):
        for name in ('one', 'two'):
            self.die_in_the_middle(name)
        self.inspected.raises = {'start': world.refused()}
        self.service('three').jobs.start('op', self.work)
        self.assertEqual(JobState.FAILED, self.service('three').jobs.find('op').state)
        self.inspected.raises = {}
        self.die_in_the_middle('four')

        self.service('five').jobs.start('op', self.work)

        self.assertEqual(JobState.DONE, self.service('five').jobs.find('op').state)

    def test_other_work_is_never_given_up(self):
        work = tasks.CopyTask(self.work.snapshot, self.services.vault)
        for name in ('one', 'two', 'three', 'four'):
            service = self.services.service(name, threads=service_world.DeferredExecutor())
            service.jobs.start('copy', work)
            self.services.expire_dead_clients()
        service = self.services.service('five')
        service.jobs.start('copy', work)
        self.assertEqual(JobState.DONE, service.jobs.find('copy').state)
