# SPDX-License-Identifier: Apache-2.0
"""No fault in any phase of an inspection leads to a verdict against the backup."""

import errno
import itertools
import os
import threading
from unittest import mock

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.tests.unit.verification import world as worlds
from trove_ceph.verification import inspection
from trove_ceph.verification import report as verification

#: Calls that stop others, or have their own time limit.
NEVER_HANGS = ('kill', 'abort', 'prove_healthy', 'check_undisturbed')
LATER_SEC = 10_000
WAIT_SEC = 30


class WatchedStorage:
    """A cluster that runs the hooks of the world before each request."""

    def __init__(self, world):
        self._world, self._inner = world, world.storage

    def __getattr__(self, name):
        def called(*arguments):
            self._world.do(f'storage {name}')
            return getattr(self._inner, name)(*arguments)

        return called


class Fault:
    """A fault at one request of one phase."""

    def __init__(self, world, phase, number, act):
        self._world, self._phase, self._act = world, phase, act
        self._number, self._count = number, itertools.count()
        self._now = None
        self.struck = None
        world.before = self._before

    def note(self, phase, *_):
        self._now = phase

    def _before(self, name):
        if self.struck is None and self._now == self._phase and name not in NEVER_HANGS:
            if next(self._count) == self._number:
                self.struck = name
                self._act(self._world, name)


def raising(error):
    def act(_world, _name):
        raise error

    return act


def looks_damaged(verdict, unproved):
    """Report damage that in fact comes from a failed disk."""

    def act(world, _name):
        world.raises[unproved] = worlds.fault()
        raise verification.NotSoundError(verdict, 'page corruption, it seems')

    return act


def hang(world, name):
    """Block until the call is made to fail, which is impossible for requests to Ceph."""
    world.raises['prove_healthy'] = worlds.fault('does not end')
    world.now += LATER_SEC
    world.release.wait(WAIT_SEC)
    raise exceptions.StorageCommandError(f'{name} failed in the end')


FAULTS = {
    'Ceph does not answer': raising(exceptions.CephUnreachableError('no answer')),
    'the pool is full': raising(exceptions.NoSpaceError('full')),
    'a command fails': raising(exceptions.StorageCommandError('mount failed: Input/output error')),
    'the disk fails': raising(OSError(errno.EIO, os.strerror(errno.EIO))),
    'the memory is used up': raising(MemoryError()),
    'the server is killed': raising(exceptions.InspectionFaultError('mysqld ended with -9')),
    'the server does not answer': raising(exceptions.ServerFailedError('no answer')),
    'it looks damaged, and the disk is dead': looks_damaged(verification.CORRUPT, 'prove_healthy'),
    'it looks incomplete, and the disk is dead': looks_damaged(
        verification.INCOMPLETE, 'prove_healthy'
    ),
    'it hangs': hang,
}
#: Only a server has a log.
LOGGED = {
    'it looks damaged, and the log has an error of the disk': looks_damaged(
        verification.CORRUPT, 'check_undisturbed'
    ),
    'it looks incomplete, and the log has an error of the disk': looks_damaged(
        verification.INCOMPLETE, 'check_undisturbed'
    ),
}
SERVED = ('reading', 'checking')


class FaultsTest(base.BaseTestCase):
    def make_world(self):
        world = worlds.World()
        world.now = 0.0
        world.release = threading.Event()
        world.raises = {'abort': world.release.set, 'kill': world.release.set}
        self.addCleanup(world.release.set)
        return world

    def strike(self, phase, number, act):
        """Inspect with a fault; return the fault and the result of the inspection."""
        world = self.make_world()
        fault = Fault(world, phase, number, act)
        inspector = inspection.Inspector(
            WatchedStorage(world), world.sandbox, worlds.SETTINGS, lambda: world.now
        )
        found = None
        try:
            found = inspector.inspect(world.work, image_types.ImageOptions(), note=fault.note)
        except (exceptions.TroveCephError, OSError, MemoryError, verification.NotSoundError):
            pass
        return fault, found

    def assert_no_verdict(self, phases, faults):
        for phase, (name, act) in itertools.product(phases, faults.items()):
            for number in itertools.count():
                fault, found = self.strike(phase, number, act)
                if fault.struck is None:
                    # Each phase makes requests, so it can fail.
                    self.assertGreater(number, 0, phase)
                    break
                self.assertIsNone(found, f'{name} at {fault.struck}, while {phase}: {found}')

    def test_no_fault_in_any_phase_gives_a_verdict(self):
        context = mock.Mock(spec=inspection.Context)
        phases = [step.name for step in inspection.make_steps(context)]
        self.assert_no_verdict(phases, FAULTS)

    def test_no_verdict_where_the_log_has_a_fault(self):
        self.assert_no_verdict(SERVED, LOGGED)

    def test_damage_of_the_data_is_a_verdict(self):
        """Otherwise the tests above would pass with an inspection that never finds anything."""
        for verdict in (verification.CORRUPT, verification.INCOMPLETE):
            act = raising(verification.NotSoundError(verdict, 'page 4'))
            for phase in ('opening', 'recovering', *SERVED):
                fault, found = self.strike(phase, 0, act)
                self.assertIsNotNone(fault.struck)
                self.assertEqual((verdict, True), (found.verdict, found.is_against), phase)

    def test_a_timeout_with_a_working_disk_is_unfinished(self):
        def act(world, _name):
            world.now += LATER_SEC

        _, found = self.strike('checking', 0, act)
        self.assertEqual((verification.UNFINISHED, False), (found.verdict, found.is_against))

    def test_a_timeout_that_ended_the_virtual_machine_is_unfinished(self):
        def act(world, _name):
            world.now += LATER_SEC
            ended = exceptions.ServerFailedError('the confined program ended')
            world.raises['check_undisturbed'] = ended

        _, found = self.strike('checking', 0, act)
        self.assertEqual((verification.UNFINISHED, False), (found.verdict, found.is_against))

    def test_calls_that_wait_for_a_dead_disk_are_aborted_before_cleanup(self):
        world = self.make_world()
        world.raises |= {'start': worlds.corrupt('redo'), 'prove_healthy': worlds.fault()}
        error = self.assertRaises(
            exceptions.InspectionFaultError,
            world.inspector().inspect,
            world.work,
            image_types.ImageOptions(),
        )
        self.assertIn('the storage daemon has ended; this may be why', str(error))
        self.assertIn('appeared corrupt: redo', str(error))
        self.assertEqual((1, []), (world.aborted, world.open_clones()))
