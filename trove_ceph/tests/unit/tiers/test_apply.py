# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.tiers import sample, world
from trove_ceph.tiers import apply, planning
from trove_ceph.tiers.changes import Risk


class ApplyTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = world.World()
        self.content = sample.read()

    def test_from_nothing(self):
        planned = self.world.plan(self.content).changes
        self.assertEqual(list(planned), self.world.apply(self.content))
        self.assertEqual((), self.world.plan(self.content).changes)

    def test_changes_nothing_when_nothing_differs(self):
        self.world.apply(self.content)
        self.world.clear_changes()
        self.assertEqual([], self.world.apply(self.content))
        self.assertEqual([], self.world.changes())

    def test_problem_prevents_all_changes(self):
        content = sample.read({'tiers/fast/device_class': 'ssd'})
        before = self.world.state()
        error = self.assertRaises(exceptions.InvalidTiersError, self.world.apply, content)
        self.assertIn('there is no OSD of device class ssd', str(error))
        self.assertEqual(before, self.world.state())
        self.assertEqual([], self.world.changes())

    def test_each_consequence_must_be_accepted(self):
        self.world.apply(self.content)
        self.world.ceph.pools['volumes-fast']['size'] = 3
        self.world.ceph.pools['images'] |= {'size': 1, 'min_size': 1}
        del self.world.ceph.users['client.glance']
        before = self.world.state()
        for accepted, missing in (
            ((), '--yes-move-data --yes-lower-redundancy'),
            ((Risk.MOVES_DATA,), '--yes-lower-redundancy'),
            ((Risk.LOWERS_REDUNDANCY, Risk.REVOKES_ACCESS), '--yes-move-data'),
        ):
            error = self.assertRaises(
                exceptions.ConsequencesNotAcceptedError,
                *(self.world.apply, self.content, frozenset(accepted)),
            )
            self.assertTrue(str(error).endswith(f'add {missing}'), str(error))
            self.assertEqual(before, self.world.state())
        both = frozenset((Risk.MOVES_DATA, Risk.LOWERS_REDUNDANCY))
        self.assertEqual(3, len(self.world.apply(self.content, both)))
        self.assertEqual((), self.world.plan(self.content).changes)

    def test_other_size_keeps_the_described_min_size(self):
        """Ceph sets min_size by itself when the size changes."""
        self.world.apply(self.content)
        content = sample.read({'tiers/fast/copies': 3})
        (change,) = self.world.apply(content, world.EVERYTHING)
        self.assertEqual('pool volumes-fast: size 2 -> 3', str(change))
        self.assertEqual(1, self.world.ceph.pools['volumes-fast']['min_size'])

    def test_min_size_waits_for_the_copies(self):
        self.world.apply(self.content)
        self.world.ceph.pools['volumes-fast'] |= {'size': 1, 'min_size': 1}
        self.world.ceph.copies['volumes-fast'] = 1
        content = sample.read({'tiers/fast/copies': 3, 'tiers/fast/min_size': 2})
        moves = frozenset([Risk.MOVES_DATA])
        for expected in (['pool volumes-fast: size 1 -> 3'], []):
            self.assertEqual(expected, [str(one) for one in self.world.apply(content, moves)])
            pool = self.world.ceph.pools['volumes-fast']
            self.assertEqual((3, 1), (pool['size'], pool['min_size']))
        # Recovery completes a copy.
        self.world.ceph.copies['volumes-fast'] = 2
        self.assertEqual(1, len(self.world.apply(content)))
        self.assertEqual(2, self.world.ceph.pools['volumes-fast']['min_size'])

    def test_min_size_changes_at_once_if_accepted(self):
        self.world.apply(self.content)
        self.world.ceph.copies['volumes-fast'] = 1
        content = sample.read({'tiers/fast/min_size': 2})
        self.assertEqual([], self.world.apply(content))
        self.assertEqual(1, len(self.world.apply(content, frozenset([Risk.PAUSES_IO]))))
        self.assertEqual(2, self.world.ceph.pools['volumes-fast']['min_size'])

    def test_missing_chunks_do_not_count(self):
        self.world.apply(self.content)
        self.world.ceph.pools['vault-data']['min_size'] = 1
        for complete, expected in ((1, (Risk.PAUSES_IO,)), (2, ())):
            self.world.ceph.copies['vault-data'] = complete
            (change,) = self.world.plan(self.content).changes
            self.assertEqual(('min_size', expected), (change.attribute, change.risks))
        # Changes of an unfinished, empty pool carry no risk.
        self.world.ceph.copies['vault-data'] = 0
        self.world.ceph.pools['vault-data']['application_metadata'] = {}
        found = self.world.plan(self.content).changes
        self.assertEqual([('min_size', ()), ('rbd', ())], [(e.attribute, e.risks) for e in found])

    def test_change_without_effect_is_an_error(self):
        """trove-manage reports failures in prose and exits with 0."""
        self.world.apply(self.content)
        self.world.trove.associations['mysql/9.7.4'] = set()
        targets = self.world.systems(self.content)
        observed = targets.observe()
        (change,) = planning.plan(self.content, observed).changes
        self.world.trove.output = 'No Volume Type Associations found for it.'
        application = apply.Application(self.content, targets, observed, self.fail)
        error = self.assertRaises(exceptions.ChangeNotSeenError, application.make, change)
        self.assertIn('volume types + fast: was made, but the plan still has', str(error))

    def test_version_always_has_a_type(self):
        """A version without any type would allow every type."""
        self.world.apply(self.content)
        content = sample.read({'tiers/fast/volume_type/name': 'quick'})
        self.world.trove.changes.clear()
        self.world.apply(content, world.EVERYTHING)
        self.assertEqual(['add mysql/9.7.4 quick'], self.world.trove.changes)

    def test_types_stored_by_id_are_removed_by_id(self):
        other = sample.CONTENT['tiers']['fast'] | {
            'pool': 'slow',
            'volume_type': {'name': 'slow', 'backend': 'slow'},
        }
        both = {'tiers/slow': other}
        self.world.apply(sample.read(both))
        self.world.trove.associations['mysql/9.7.4'] = {'fast', 'id-of-slow'}
        content = sample.read(both | {'tiers/slow/datastore_versions': []})
        self.world.apply(content, world.EVERYTHING)
        self.assertEqual({'fast'}, self.world.trove.associations['mysql/9.7.4'])


class InterruptionTestCase(interruption.InterruptionTests, base.BaseTestCase):
    """Each change of a first run fails, and is killed, before and after its work."""

    changes = {}

    def make_world(self):
        return world.World()

    def make_operation(self, fakes):
        content = sample.read(self.changes)
        systems = fakes.systems(content)
        observed = systems.observe()
        plan = planning.plan(content, observed)
        application = apply.Application(content, systems, observed, lambda change: None)
        return apply.make_steps(plan, application)

    def check_done(self, fakes):
        expected = world.World()
        expected.apply(sample.read())
        if self.changes:
            expected.apply(sample.read(self.changes), world.EVERYTHING)
        self.assertEqual(expected.state(), fakes.state())


class ReshapingInterruptionTestCase(InterruptionTestCase):
    """The same for changes of an existing cloud."""

    changes = {
        'tiers/fast/copies': 3,
        'tiers/fast/min_size': 2,
        'tiers/fast/placement_groups': {'count': 32},
        'tiers/vault/compression': {'mode': 'none'},
        'tiers/fast/iops': {'per_gib': 3, 'floor': 100, 'cap': 2000},
        'tiers/fast/throughput_mib_per_sec': None,
        'tiers/fast/volume_type/public': False,
        'users/client.storage/tiers': ['vault'],
    }

    def make_world(self):
        fakes = world.World()
        fakes.apply(sample.read())
        return fakes


class LimitsOfImagesInterruptionTestCase(ReshapingInterruptionTestCase):
    """The same for QoS specs that are removed."""

    changes = {'tiers/fast/qos': 'image'}


class KilledCommandTestCase(base.BaseTestCase):
    """A run completes what a process left that was killed between two commands."""

    def test_killed_at_each_command(self):
        content = sample.read()
        whole = world.World()
        whole.apply(content)
        for number in range(len(whole.changes())):
            fakes = world.World()
            self._apply_until(fakes, content, number)
            fakes.apply(content)
            self.assertEqual(whole.state(), fakes.state(), f'killed at command {number}')

    def _apply_until(self, fakes, content, number):
        changes = _KillingList(number)
        for system in (fakes.ceph, fakes.cinder, fakes.trove):
            system.changes = changes
        self.assertRaises(interruption.Kill, fakes.apply, content)
        for system in (fakes.ceph, fakes.cinder, fakes.trove):
            system.changes = []


class _KillingList(list):
    """A list of changes that kills the process at a given length."""

    def __init__(self, number):
        super().__init__()
        self._number = number

    def append(self, change):
        if len(self) == self._number:
            raise interruption.Kill(change)
        super().append(change)
