# SPDX-License-Identifier: Apache-2.0
"""What a failure leaves: the arithmetic, and CRUSH's own answer to it."""

import shutil

import fixtures
import testtools
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.sizing import crush, failure
from trove_ceph.sizing.fleet import FailureDomain, Redundancy
from trove_ceph.sizing.topology import Failure, Topology, parse_failure
from trove_ceph.tests.unit.sizing import sample

HOST, RACK = FailureDomain.HOST, FailureDomain.RACK
RACKS = {'cluster/nodes_per_rack': 3, 'cluster/nodes': 12, 'databases/0/instances': 200}


def simulate(changes, *failures):
    planned = sample.cluster(changes)
    return planned, failure.simulate(planned, [parse_failure(one) for one in failures])


class FailureFormTest(base.BaseTestCase):
    def test_forms(self):
        self.assertEqual(Failure(HOST, 1), parse_failure('host'))
        self.assertEqual(Failure(RACK, 12), parse_failure('rack:12'))

    def test_other_forms_are_refused(self):
        for text in ('', 'osd', 'host:0', 'host:-1', 'host:', 'hosts', 'rack:x', '2'):
            error = self.assertRaises(exceptions.InvalidFleetError, parse_failure, text)
            self.assertIn('must be host or rack', str(error))


class TopologyTest(base.BaseTestCase):
    LAYOUT = Topology(nodes=8, nodes_per_rack=3, osds_per_node=2, domain=RACK)

    def test_racks_are_filled_in_turn(self):
        self.assertEqual([range(0, 3), range(3, 6), range(6, 8)], self.LAYOUT.racks)
        self.assertEqual((16, range(6, 8)), (self.LAYOUT.osds, self.LAYOUT.osds_of(3)))

    def test_lost_hosts_are_in_different_racks(self):
        lost = self.LAYOUT.lost_nodes([Failure(HOST, 2)])
        self.assertEqual({0, 3}, lost)
        self.assertEqual((2, 3), self.LAYOUT.lost_domains(lost))

    def test_lost_racks_add_to_lost_hosts(self):
        lost = self.LAYOUT.lost_nodes([Failure(RACK, 1), Failure(HOST, 1)])
        self.assertEqual({0, 1, 2, 3}, lost)
        self.assertEqual((2, 2), self.LAYOUT.lost_domains(lost))

    def test_something_is_left(self):
        for failures in (
            [Failure(RACK, 3)],
            [Failure(HOST, 8)],
            [Failure(RACK, 2), Failure(HOST, 2)],
        ):
            error = self.assertRaises(
                exceptions.InvalidFleetError, self.LAYOUT.lost_nodes, failures
            )
            self.assertIn('nothing is left of 3 racks with 8 hosts', str(error))

    def test_racks_have_to_be_described(self):
        layout = Topology(8, None, 1, HOST)
        error = self.assertRaises(
            exceptions.InvalidFleetError, layout.lost_nodes, [Failure(RACK, 1)]
        )
        self.assertIn('set cluster.nodes_per_rack', str(error))


class ArithmeticTest(base.BaseTestCase):
    def test_fill_of_the_other_hosts(self):
        planned, outcome = simulate(sample.OF_RED_HAT, 'host')
        self.assertEqual(0.625, planned.fill)
        self.assertAlmostEqual(0.625 * 8 / 7, outcome.fill)
        self.assertFalse(outcome.may_lose_data or outcome.is_full)
        # 500 GB over 7 links of 10 Gbit/s, half of which is for recovery.
        self.assertAlmostEqual(500e9 / 7 / (1.25e9 / 2), outcome.recovery_sec)
        self.assertAlmostEqual(planned.recovery_sec, outcome.recovery_sec)

    def test_devices_may_be_slower_than_the_network(self):
        slow = sample.OF_RED_HAT | {'cluster/device/throughput': '200MB'}
        _, outcome = simulate(slow, 'host')
        # Each byte is read once and written once.
        self.assertAlmostEqual(2 * 500e9 / (7 * 200e6 / 2), outcome.recovery_sec)

    def test_too_full_to_recover(self):
        planned, outcome = simulate(sample.OF_RED_HAT, 'host:3')
        self.assertTrue(outcome.is_full)
        self.assertIsNone(outcome.recovery_sec)
        self.assertIn('100.0% full: recovery stops', failure.problems(planned, outcome, None)[0])

    def test_the_rest_of_a_rack_keeps_a_copy_of_all_data(self):
        # Three copies in three racks of two hosts, one of which is lost: the other one is twice as
        # full, since no other rack may have a second copy.
        racks = {'cluster/copies': 3, 'cluster/failure_domain': 'rack', 'cluster/nodes': 6}
        racks |= {'cluster/nodes_per_rack': 2, 'cluster/devices_per_node': 1}
        planned, outcome = simulate(sample.OF_RED_HAT | racks, 'host')
        self.assertEqual(1.25, planned.fill)
        self.assertAlmostEqual(1.5, outcome.fill)
        self.assertAlmostEqual(2.5, outcome.domain_fill)
        half = sample.OF_RED_HAT | racks | {'databases/0/instances': 4}
        planned, outcome = simulate(half, 'host')
        self.assertAlmostEqual(0.6, outcome.fill)
        self.assertAlmostEqual(1.0, outcome.domain_fill)
        self.assertTrue(outcome.is_full)
        self.assertIsNone(outcome.recovery_sec)
        [problem] = failure.problems(planned, outcome, None)
        self.assertIn('the rest of a rack would be 100.0% full: recovery stops', problem)

    def test_other_racks_take_the_rest_if_there_are_enough(self):
        wide = RACKS | {'cluster/failure_domain': 'rack'}
        _, outcome = simulate(wide, 'host')
        self.assertAlmostEqual(outcome.fill, outcome.domain_fill)
        # Two copies in two racks that are left of four.
        _, outcome = simulate(wide, 'rack:2', 'host')
        self.assertAlmostEqual(outcome.fill * 5 / 6 * 3 / 2, outcome.domain_fill)

    def test_too_few_hosts_for_the_copies(self):
        changes = sample.OF_RED_HAT | {'cluster/nodes': 3, 'cluster/copies': 3}
        planned, outcome = simulate(changes | {'databases/0/instances': 2}, 'host')
        self.assertFalse(outcome.is_placeable)
        self.assertEqual((planned.fill, None), (outcome.fill, outcome.recovery_sec))
        [problem] = failure.problems(planned, outcome, None)
        self.assertIn('2 hosts are left, and 3 copies need 3', problem)

    def test_what_may_be_lost(self):
        for changes, failures, expected in (
            ({}, ['host'], (False, False)),
            ({}, ['host:2'], (True, True)),
            ({'cluster/copies': 3}, ['host'], (False, False)),
            ({'cluster/copies': 3}, ['host:2'], (False, True)),
            (RACKS, ['rack'], (True, True)),
            (RACKS | {'cluster/failure_domain': 'rack'}, ['rack'], (False, False)),
        ):
            _, outcome = simulate(changes, *failures)
            found = outcome.may_lose_data, outcome.may_stop_writes
            self.assertEqual(expected, found, (changes, failures))


class CrushtoolTest(base.BaseTestCase):
    def test_crushtool_is_missing(self):
        self.useFixture(fixtures.EnvironmentVariable('PATH', '/nonexistent'))
        error = self.assertRaises(exceptions.PlacementCheckError, crush.Crushtool)
        self.assertIn('install the package ceph-base', str(error))

    def test_missing_osds_and_deviation(self):
        placed = crush.spread([(0, 1), (1, -1), (1,), (2, 1)], 2, 4)
        self.assertEqual(
            (4, 2, 1.5, 4), (placed.groups, placed.incomplete, placed.mean, placed.highest)
        )
        self.assertAlmostEqual(4 / 1.5 - 1, placed.deviation)


@testtools.skipUnless(shutil.which('crushtool'), 'needs crushtool, which is in ceph-base')
class CrushTest(base.BaseTestCase):
    """CRUSH's placement, by the real crushtool."""

    def check(self, changes, *failures):
        planned, outcome = simulate(changes, *failures)
        return planned, outcome, failure.check(planned, outcome.lost_nodes, crush.Crushtool())

    def test_copies_are_on_different_racks(self):
        layout = Topology(nodes=12, nodes_per_rack=3, osds_per_node=2, domain=RACK)
        text = crush.map_text(layout, Redundancy(1, 2), 4e12)
        placed = crush.Crushtool().place(text, 256, 3)
        self.assertEqual(256, len(placed))
        for osds in placed:
            self.assertEqual(3, len({osd // 2 // 3 for osd in osds}), osds)

    def test_chunks_are_on_different_hosts(self):
        layout = Topology(nodes=8, nodes_per_rack=None, osds_per_node=3, domain=HOST)
        text = crush.map_text(layout, Redundancy(4, 2), 4e12)
        lost = set(layout.osds_of(2)) | set(layout.osds_of(5))
        for osds in crush.Crushtool().place(text, 128, 6, lost):
            self.assertEqual(6, len({osd // 3 for osd in osds}), osds)
            self.assertEqual(set(), lost & set(osds))

    def test_recovery_agrees_with_the_arithmetic(self):
        for changes, failures in (
            ({}, ['host']),
            ({'cluster/copies': 3, 'databases/0/instances': 300}, ['host:2']),
            (RACKS | {'cluster/failure_domain': 'rack'}, ['rack']),
        ):
            planned, outcome, found = self.check(changes, *failures)
            self.assertTrue(outcome.is_placeable)
            self.assertEqual(
                (0, 0, 0), (found.before.incomplete, found.after.incomplete, found.gone)
            )
            # The mean of the OSDs that are left rises as the fill does.
            self.assertAlmostEqual(
                outcome.fill / planned.fill, found.after.mean / found.before.mean
            )
            share = len(outcome.lost_nodes) / planned.nodes
            chunks = planned.request.design.redundancy.chunks
            self.assertLessEqual(found.degraded, found.before.groups * share * chunks * 1.5)
            self.assertGreater(found.degraded, found.before.groups * share)
            self.assertGreater(failure.highest_fill(outcome.fill, found.after), outcome.fill)

    def test_balancer_does_not_move_copies_out_of_a_rack_that_needs_them(self):
        racks = {'cluster/copies': 3, 'cluster/failure_domain': 'rack', 'cluster/nodes': 6}
        racks |= {'cluster/nodes_per_rack': 2, 'databases/0/instances': 50}
        planned, outcome, found = self.check(racks, 'host')
        self.assertGreater(
            failure.balanced_fill(outcome.domain_fill, outcome.fill, found.after),
            2 * planned.fill,
        )
        self.assertAlmostEqual(
            2 * planned.fill, failure.highest_fill(outcome.fill, found.after), delta=0.05
        )

    def test_too_few_hosts_stay_degraded(self):
        changes = sample.OF_RED_HAT | {'cluster/nodes': 3, 'cluster/copies': 3}
        changes['databases/0/instances'] = 2
        _, outcome, found = self.check(changes, 'host')
        self.assertFalse(outcome.is_placeable)
        self.assertEqual(found.after.groups, found.after.incomplete)
        self.assertEqual((found.before.groups, 0, 0), (found.degraded, found.stopped, found.gone))

    def test_two_hosts_at_once_take_both_copies(self):
        planned, outcome, found = self.check({}, 'host:2')
        self.assertTrue(outcome.may_lose_data)
        self.assertGreater(found.gone, 0)
        self.assertEqual(found.gone, found.stopped)
        problems = failure.problems(planned, outcome, found)
        self.assertIn(f'{found.gone} placement groups lose all', problems[0])

    def test_thousands_of_osds(self):
        layout = Topology(nodes=400, nodes_per_rack=20, osds_per_node=10, domain=RACK)
        text = crush.map_text(layout, Redundancy(1, 2), 4e12)
        lost = {osd for node in range(20) for osd in layout.osds_of(node)}
        placed = crush.Crushtool().place(text, 4096, 3, lost)
        found = crush.spread(placed, 3, layout.osds - len(lost))
        self.assertEqual((4096, 0, 4096 * 3 / 3800), (found.groups, found.incomplete, found.mean))

    def test_a_map_that_crushtool_refuses(self):
        error = self.assertRaises(
            exceptions.PlacementCheckError, crush.Crushtool().place, 'no map', 8, 2
        )
        self.assertIn('the CRUSH map: crushtool --compile', str(error))
