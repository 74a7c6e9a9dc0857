# SPDX-License-Identifier: Apache-2.0
import dataclasses
import threading
from unittest import mock

import fixtures
from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.verification import world
from trove_ceph.verification import deadline, inspection, server
from trove_ceph.verification import report as verification

OPTIONS = image_types.ImageOptions()


class InspectionTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = world.World()

    def inspect(self, note=lambda *_: None, cancel=None, is_allowed=lambda: True, **changes):
        work = dataclasses.replace(self.world.work, **changes)
        return self.world.inspector().inspect(work, OPTIONS, cancel, is_allowed, note)

    def assert_nothing_left(self):
        self.assertEqual([], self.world.clones())
        self.assertEqual([], self.world.open_clones())

    def assert_found(self, verdict, reason, **changes):
        found = self.inspect(**changes)
        self.assertEqual((verdict, (reason,), False), (found.verdict, found.reasons, found.ok))
        self.assert_nothing_left()
        return found

    def test_sound(self):
        found = self.inspect()

        self.assertTrue(found.ok)
        self.assertEqual(world.POSITION, found.gtid_executed)
        self.assertEqual(('9.7.4', '9.7.3'), (found.mysql_version, found.data_version))
        self.assertEqual(1.5, found.recovery_sec)
        # The server's own, and two of five.
        self.assertEqual((3, 6, 510), (found.tables_checked, found.tables, found.bytes))
        self.assertEqual(
            [step.name for step in inspection.make_steps(mock.Mock(spec=inspection.Context))],
            list(found.seconds),
        )
        self.assert_nothing_left()

    def test_the_server_is_prepared_in_the_thread_that_stays(self):
        """The kernel kills a confined program with the thread that started it."""
        threads = []
        self.world.raises = {'serve': lambda: threads.append(threading.current_thread())}
        self.assertTrue(self.inspect().ok)
        self.assertEqual([threading.current_thread()], threads)

    def test_the_sample_differs_between_backups_and_not_between_runs(self):
        samples = []
        for check_id in (world.CHECK_ID, world.CHECK_ID, '00000000-0000-4000-8000-000000000001'):
            self.world.checked.clear()
            self.inspect(check_id=check_id)
            samples.append(tuple(self.world.checked))
        self.assertEqual(samples[0], samples[1])
        self.assertNotEqual(samples[0], samples[2])

    def test_the_clone_is_limited(self):
        limits = []

        def note(phase, *_):
            if phase == 'recovering':
                limits.append(self.world.storage.describe(self.world.work.clone).qos)

        self.inspect(note)
        self.assertEqual([image_types.Qos(bytes_per_sec=5 * units.Mi)], limits)

    def test_sizes_of_samples(self):
        self.assertEqual(6, self.inspect(deep=True).tables_checked)
        self.assertEqual(2, self.inspect(sample_tables=1).tables_checked)
        self.assertEqual(6, self.inspect(sample_tables=50).tables_checked)

    def test_a_sample_has_a_byte_limit_however_large_the_tables(self):
        small, middle, large, huge = (
            server.Table('shop', name, size)
            for name, size in (('a', 40), ('b', 150), ('c', 700), ('d', 10**15))
        )
        self.world.tables = [world.TABLES[0], huge, small, large, middle]

        found = self.inspect(sample_tables=4)

        # A share of 125 each, plus what smaller tables leave.
        self.assertEqual([world.TABLES[0], small, middle], self.world.checked)
        self.assertEqual({'c': 155, 'd': 155}, self.world.read_in_part)
        self.assertEqual((3, 2, 5), (found.tables_checked, found.tables_in_part, found.tables))
        self.assertIn('3 of 5 tables checked and 2 in part', str(found))
        self.assertTrue(found.ok)

    def test_deep_checks_large_tables_too(self):
        self.world.tables = [world.TABLES[0], server.Table('shop', 'd', 10**15)]
        found = self.inspect(deep=True)
        self.assertEqual((2, 0), (found.tables_checked, found.tables_in_part))

    def test_damage_in_the_sampled_part_of_a_large_table(self):
        self.world.tables = [server.Table('shop', 'd', 10**15)]
        self.world.raises = {'read_ends shop.d': world.corrupt('a page')}
        self.assert_found(verification.CORRUPT, 'a page')

    def test_position(self):
        source = world.SOURCE
        for expected, exact in ((world.POSITION, True), (f'{source}:1-200', False)):
            self.assertTrue(self.inspect(expected_gtid=expected, exact=exact).ok)
        self.assert_found(
            verification.INCOMPLETE,
            f'lacks the transactions {source}:304-310',
            expected_gtid=f'{source}:1-310',
        )
        self.assert_found(
            verification.CORRUPT,
            f'has the transactions {source}:201-303, expected none',
            expected_gtid=f'{source}:1-200',
            exact=True,
        )

    def test_transactions_of_the_server_itself_give_no_verdict(self):
        position = f'{world.POSITION}:304'
        self.world.raises = {'check mysql.user': lambda: setattr(self.world, 'position', position)}
        error = self.assertRaises(exceptions.UnexpectedTransactionsError, self.inspect)
        self.assertIn(f'gtid_executed is {position}', str(error))
        self.assert_nothing_left()

    def test_a_finding_ends_the_inspection_and_is_its_result(self):
        for name, position in (
            ('open', None),
            ('serve', None),
            ('start', None),
            ('check mysql.user', world.POSITION),
        ):
            self.world.raises = {name: world.corrupt(name)}
            found = self.assert_found(verification.CORRUPT, name, deep=True)
            self.assertEqual(position, found.gtid_executed)
        self.assertEqual([], self.world.checked)

    def test_a_failure_to_inspect_is_an_error(self):
        for name in ('open', 'serve', 'start', 'check mysql.user'):
            self.world.raises = {name: world.refused()}
            self.assertRaises(exceptions.NotInspectableError, self.inspect)
            self.assert_nothing_left()

    def test_canceled_at_each_phase(self):
        for step in inspection.make_steps(mock.Mock(spec=inspection.Context))[:5]:
            cancel = threading.Event()

            def note(phase, *_, at=step.name, cancel=cancel):
                if phase == at:
                    cancel.set()

            self.assertRaises(exceptions.CanceledError, self.inspect, note, cancel)
            self.assert_nothing_left()

    def test_progress_in_bytes_of_tables(self):
        notes = []
        self.inspect(lambda *note: notes.append(note), deep=True)
        checking = [note[1:] for note in notes if note[0] == 'checking']
        self.assertEqual([(0, 0), (0, 510), (10, 510)], checking[:3])
        self.assertEqual((410, 510), checking[-1])

    def test_without_its_leases_it_leaves_the_clone_alone(self):
        """Another process may have the clone open by then."""
        allowed = []

        def note(phase, *_):
            allowed.append(phase)

        self.assertRaises(
            exceptions.CanceledError,
            self.inspect,
            note,
            is_allowed=lambda: 'recovering' not in allowed,
        )
        self.assertEqual([self.world.work.clone], self.world.clones())
        self.assertEqual([], self.world.open_clones())
        self.assertTrue(self.inspect().ok)
        self.assert_nothing_left()

    def test_releases_the_clone_if_the_leases_are_lost_between_two_phases(self):
        """The job raises the error when a phase begins."""
        for lost_at in ('recovering', 'reading', 'checking', 'closing', 'removing'):
            allowed = [True]

            def note(phase, *_, at=lost_at, allowed=allowed):
                if phase == at:
                    allowed[0] = False
                    raise exceptions.CanceledError('its locks are lost')

            self.assertRaises(
                exceptions.CanceledError, self.inspect, note, is_allowed=lambda a=allowed: a[0]
            )
            self.assertEqual([self.world.work.clone], self.world.clones())
            self.assertEqual([], self.world.open_clones())
            self.assertTrue(self.inspect().ok)
            self.assert_nothing_left()

    def test_a_clone_that_a_dead_host_has_open_is_fenced_and_removed(self):
        sandbox = self.world.sandbox('other')
        self.world.storage.clone(self.world.work.snapshot, self.world.work.clone, OPTIONS)
        sandbox.open(self.world.work.clone)
        (writer,) = self.world.hosts['other']

        self.assertTrue(self.inspect().ok)

        self.assertEqual([], self.world.clones())
        self.assertRaises(exceptions.CephUnreachableError, writer.flush)


class BlockedRemovalTest(base.BaseTestCase):
    """Ceph does not answer the removal of a clone that a dead host has open."""

    def setUp(self):
        super().setUp()
        self.answers = threading.Event()
        self.addCleanup(self.answers.set)
        self.is_allowed = True

    def remove(self, made, verb):
        """Remove the clone, with the first request of this verb blocked until ``answers``."""
        context = inspection.Context(
            *(made.storage, made.sandbox(), made.work, world.SETTINGS, OPTIONS),
            deadline.Deadline(60, is_allowed=lambda: self.is_allowed),
            lambda *_: None,
        )
        request = getattr(made.storage, verb)

        def wait(*arguments):
            setattr(made.storage, verb, request)
            self.on_request()
            self.answers.wait(60)
            return request(*arguments)

        setattr(made.storage, verb, wait)
        context.remove_clone()

    def on_request(self):
        pass

    def make_world(self):
        made = world.World()
        made.storage.clone(made.work.snapshot, made.work.clone, OPTIONS)
        made.sandbox('dead').open(made.work.clone)
        return made

    def test_an_abandoned_removal_leaves_the_clone_of_the_next_inspection(self):
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.verification.inspection.REMOVE_SEC', 0))
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.verification.deadline.END_SEC', 0))
        for verb in ('remove', 'find_clients', 'read_header', 'await_blocklist'):
            made = self.make_world()
            self.answers.clear()
            others = set(threading.enumerate())
            self.assertRaises(exceptions.InspectionFaultError, self.remove, made, verb)
            abandoned = set(threading.enumerate()) - others

            made.hosts['dead'].pop().close()
            made.storage.remove(made.work.clone)
            made.storage.clone(made.work.snapshot, made.work.clone, OPTIONS)
            made.sandbox('next').open(made.work.clone)
            (writer,) = made.hosts['next']
            self.answers.set()
            for thread in abandoned:
                thread.join(60)

            self.assertEqual(1, len(abandoned), verb)
            writer.flush()
            self.assertEqual([made.work.clone], made.clones())

    def test_a_removal_whose_leases_are_lost_fences_nothing(self):
        def lose():
            self.is_allowed = False
            self.answers.set()

        self.on_request = lose
        for verb in ('remove', 'find_clients'):
            self.is_allowed = True
            made = self.make_world()
            self.assertRaises(exceptions.CanceledError, self.remove, made, verb)
            self.assertEqual(frozenset(), made.storage.blocklisted())


class InspectionInterruptionTest(interruption.InterruptionTests, base.BaseTestCase):
    def make_world(self):
        return world.World()

    def make_operation(self, made):
        context = inspection.Context(
            made.storage,
            made.sandbox(),
            made.work,
            world.SETTINGS,
            OPTIONS,
            deadline.Deadline(60),
            lambda *_: None,
        )
        made.context = context
        return inspection.make_steps(context)

    def check_done(self, made):
        self.check_undone(made)
        self.assertEqual(verification.SOUND, made.context.result().verdict)

    def check_undone(self, made):
        self.assertEqual([], made.clones())
        self.assertEqual([], made.open_clones())


class KilledElsewhereTest(InspectionInterruptionTest):
    """The same, on another host each time: the hosts of killed processes are not cleaned up."""

    def make_operation(self, made):
        made.host = f'host {len(made.hosts)}'
        return super().make_operation(made)

    def make_world(self):
        made = world.World()
        sandbox = made.sandbox
        made.sandbox = lambda: sandbox(made.host)
        return made

    def check_done(self, made):
        self.assertEqual([], made.clones())
        self.assertEqual([], made.hosts[made.host])
        self.assertEqual(verification.SOUND, made.context.result().verdict)

    def check_undone(self, made):
        self.assertEqual([], made.clones())
