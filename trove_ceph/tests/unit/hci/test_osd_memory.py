# SPDX-License-Identifier: Apache-2.0
"""The memory of OSDs beside the guests of a host."""

import dataclasses

from oslotest import base

from trove_ceph.hci import osd_memory, planning, reservation
from trove_ceph.hci.workload import OsdChoices
from trove_ceph.tests.unit.hci import sample


def plan(inventory=None, choices=sample.CHOICES, **load):
    return planning.plan(inventory or sample.inventory(), sample.workload(**load), choices)


class TargetTest(base.BaseTestCase):
    def test_values(self):
        for count, expected in ((1, 853), (2, 2560), (4, 3413), (16, 4053)):
            self.assertEqual(expected, osd_memory.target_mib(count))
        self.assertEqual(7680, osd_memory.target_mib(4, 10 * 1024))
        self.assertEqual(8 * 1024, osd_memory.target_mib(4, 64 * 1024))

    def test_the_reservation_covers_targets_overshoot_and_host(self):
        for count in range(1, 60):
            target = osd_memory.target_mib(count)
            used = target * count * osd_memory.OVERSHOOT + osd_memory.HOST_MIB
            reserved = reservation.reserved_host_memory_mb(count)
            self.assertLessEqual(used, reserved)
            self.assertGreater(used, reserved - 2 * count)

    def test_guests_with_failover(self):
        for databases, hosts, expected in ((20, 5, 25), (10, 5, 13), (20, 2, 40), (20, 1, 20)):
            self.assertEqual(expected, osd_memory.guests_with_failover(databases, hosts))


class LeftTest(base.BaseTestCase):
    """What the guests of a host leave, and what follows for its profile."""

    def inventory(self, gib_each, **changes):
        return sample.inventory(numa_nodes=sample.nodes(memory_mib=gib_each * 1024), **changes)

    def assert_consistent(self, host):
        """Assert that targets, overshoot and the host itself fit what Nova and nodes reserve."""
        target_mib = host.osd_memory_target_bytes // 1024**2
        used = target_mib * len(host.osds) * osd_memory.OVERSHOOT + osd_memory.HOST_MIB
        osds_mib = host.memory_per_osd_mib * len(host.osds)
        self.assertLessEqual(used, osds_mib)
        overhead_mib = sum(node.overhead_memory_mib for node in host.nodes)
        self.assertGreaterEqual(overhead_mib, host.guests * reservation.MIB_PER_GUEST)
        self.assertLessEqual(osds_mib + overhead_mib, host.reservation.reserved_host_memory_mb)
        self.assertEqual(osds_mib, sum(node.osd_memory_mib for node in host.nodes))
        for node in host.nodes:
            self.assertGreaterEqual(node.spare_memory_mib, 0)

    def test_unknown_load_leaves_nothing(self):
        [host, *_] = plan(databases_per_host=None).hosts
        self.assertEqual(5120, host.memory_per_osd_mib)
        self.assertEqual(3413, host.osd_memory_target_bytes // 1024**2)
        self.assert_consistent(host)

    def test_a_load_that_fits_leaves_the_rest(self):
        # 13 of 25 guests on the fuller node: (130 GiB - 13 x 8.5 GiB) / 2.
        [host, *_] = plan(self.inventory(130)).hosts
        self.assertEqual((130 * 1024 - 13 * 8704) // 2, host.memory_per_osd_mib)
        self.assertEqual(7466, host.osd_memory_target_bytes // 1024**2)
        self.assert_consistent(host)

    def test_a_target_is_8_gib_at_most(self):
        [host, *_] = plan().hosts
        self.assertEqual(8 * 1024**3, host.osd_memory_target_bytes)
        self.assert_consistent(host)

    def test_the_fullest_node_decides(self):
        small, large = sample.nodes(memory_mib=130 * 1024)
        large = dataclasses.replace(large, memory_mib=190 * 1024)
        [host, *_] = plan(sample.inventory(numa_nodes=(small, large))).hosts
        [even, *_] = plan(self.inventory(160)).hosts
        self.assertEqual(9984, host.memory_per_osd_mib)
        self.assertLess(host.memory_per_osd_mib, even.memory_per_osd_mib)
        self.assert_consistent(host)

    def test_databases_of_a_lost_host_find_room(self):
        for databases in range(1, 21):
            made = plan(self.inventory(130), databases_per_host=databases)
            self.assertEqual((), made.findings)
            self.assert_consistent(made.hosts[0])
            # Their pages are allocated at boot: later, memory is in use, and in pieces.
            survivors = [node for host in made.hosts[1:] for node in host.nodes]
            pages = sum(node.huge_pages * node.huge_page_kib for node in survivors)
            self.assertGreaterEqual(pages, 5 * databases * 8 * 1024**2)
            for node in survivors:
                self.assertEqual(node.room * 8 * 1024**2, node.huge_pages * node.huge_page_kib)

    def test_a_load_that_does_not_fit_leaves_nothing(self):
        made = plan(databases_per_host=27)
        self.assertEqual({5120}, {host.memory_per_osd_mib for host in made.hosts})

    def test_the_reservation_stays_below_its_bound(self):
        made = plan(self.inventory(64), OsdChoices(4, 1), databases_per_host=1)
        self.assertNotIn('reserved-memory', {one.rule for one in made.findings})
        [host, *_] = made.hosts
        self.assertGreater(host.memory_per_osd_mib, 5120)
        self.assertLessEqual(
            host.reservation.reserved_host_memory_mb, reservation.MOST_RESERVED * 128 * 1024
        )
        self.assert_consistent(host)

    def test_explanation_has_numbers_and_source(self):
        made = plan(self.inventory(130))
        [one] = [
            each
            for each in made.derivations
            if (each.host, each.field) == ('hci-1', 'memory_per_osd_mib')
        ]
        self.assertIn('(133120 - (8192 + 512) x 13) / 2 = 9984; ', one.numbers)
        self.assertIn('for 25 guests', one.numbers)
        self.assertIn('osd_memory_target_autotune', one.source)
