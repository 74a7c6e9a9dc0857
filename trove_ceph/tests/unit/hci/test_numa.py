# SPDX-License-Identifier: Apache-2.0
"""Properties of plans over many shapes of hosts and loads."""

import dataclasses
import itertools

from oslotest import base

from trove_ceph.hci import numa, osds, planning
from trove_ceph.hci.inventory import Inventory
from trove_ceph.hci.workload import OsdChoices
from trove_ceph.tests.unit.hci import sample

_SHAPES = list(
    itertools.product(
        (1, 2, 4),  # nodes
        (3, 20),  # cores of each node
        (1, 2, 4),  # threads of each core
        (32, 192),  # GiB of each node
        (1, 4, 7),  # devices
        (1, 4),  # OSDs on each device
        (1.5, 6),  # CPUs for each OSD
    )
)
_GUESTS = (
    (1024, 1, 10),
    (3 * 1024 + 2, 3, 33),
    (16 * 1024, 8, 100),
)


def _plans():
    for number, each, threads, gib, devices, per_device, vcpus in _SHAPES:
        host = sample.host(
            numa_nodes=sample.nodes(number, each, threads, gib * 1024),
            data_devices=sample.devices(devices, on=tuple(range(number))),
            nics=sample.nics(number - 1),
        )
        for memory, guest_vcpus, percent in _GUESTS:
            for wanted in (None, 3):
                workload = sample.workload(
                    guest_memory_mib=memory,
                    guest_vcpus=guest_vcpus,
                    guest_cpu_percent=percent,
                    databases_per_host=wanted,
                )
                inventory = Inventory((host,), 3)
                choices = OsdChoices(per_device, vcpus)
                yield host, workload, choices, planning.plan(inventory, workload, choices)


class PropertiesTest(base.BaseTestCase):
    """What holds for each host that has a profile, and why another has none."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.all = list(_plans())
        cls.profiles = [
            (host, workload, choices, made.hosts[0])
            for host, workload, choices, made in cls.all
            if made.hosts
        ]

    def test_there_are_plans_of_each_kind(self):
        refused = len(self.all) - len(self.profiles)
        self.assertGreater(refused, 100)
        self.assertGreater(len(self.profiles), 1000)
        self.assertGreater(sum(one.guests > 0 for *_, one in self.profiles), 500)

    def test_sets_of_cpus_are_disjoint_and_all_cpus(self):
        for host, _, _, made in self.profiles:
            for node, planned in zip(host.numa_nodes, made.nodes, strict=True):
                own = [*planned.host_cpus, *planned.osd_cpus, *planned.guest_cpus]
                self.assertEqual(list(node.cpus), sorted(own))
                self.assertTrue(planned.host_cpus)

    def test_threads_of_a_core_stay_together(self):
        for host, _, _, made in self.profiles:
            for node, planned in zip(host.numa_nodes, made.nodes, strict=True):
                for core in node.cores:
                    owners = {
                        name
                        for name in ('host_cpus', 'osd_cpus', 'guest_cpus')
                        if set(core) & set(getattr(planned, name))
                    }
                    self.assertEqual(1, len(owners), core)

    def test_osds_have_their_cpus_and_no_core_more(self):
        for host, _, choices, made in self.profiles:
            self.assertEqual(len(host.data_devices) * choices.per_device, len(made.osds))
            for node, planned in zip(host.numa_nodes, made.nodes, strict=True):
                needed = choices.vcpus * sum(osd.numa_node == node.number for osd in made.osds)
                self.assertGreaterEqual(len(planned.osd_cpus), needed)
                self.assertLess(len(planned.osd_cpus) - needed, len(node.cores[0]))

    def test_memory_of_a_node_adds_up(self):
        for host, workload, _, made in self.profiles:
            for node, planned in zip(host.numa_nodes, made.nodes, strict=True):
                parts = (
                    planned.osd_memory_mib,
                    planned.overhead_memory_mib,
                    planned.guest_memory_mib,
                    planned.spare_memory_mib,
                )
                self.assertEqual(node.memory_mib, sum(parts))
                self.assertGreaterEqual(min(parts), 0)
                self.assertEqual(
                    planned.room * workload.guest_memory_mib * 1024,
                    planned.huge_pages * planned.huge_page_kib,
                )
                self.assertGreaterEqual(planned.room, planned.guests)

    def test_no_memory_is_promised_twice(self):
        for host, workload, _, made in self.profiles:
            guests = made.guests * workload.guest_memory_mib
            reserved = made.reservation.reserved_host_memory_mb
            self.assertLessEqual(guests + reserved, host.memory_mib)

    def test_guests_have_their_cpus(self):
        for _, workload, _, made in self.profiles:
            self.assertEqual(made.guests, sum(node.guests for node in made.nodes))
            for node in made.nodes:
                busy = node.room * workload.guest_vcpus * workload.guest_cpu_percent / 100
                self.assertLessEqual(busy, len(node.guest_cpus) + 1e-6)
                if node.guests:
                    self.assertGreaterEqual(len(node.guest_cpus), workload.guest_vcpus)

    def test_wanted_guests_or_an_error(self):
        for _, workload, _, made in self.all:
            wanted = workload.databases_per_host
            if wanted is None:
                continue
            fits = bool(made.hosts) and made.hosts[0].guests == wanted
            rules = {finding.rule for finding in made.errors}
            self.assertEqual(fits, not rules & {'guests-fit', 'osds-fit'})

    def test_osds_of_a_node_with_room_are_local(self):
        for host, _, choices, made in self.profiles:
            if all(osd.local for osd in made.osds):
                continue
            # One is remote only because the node of its device is full.
            for osd in made.osds:
                if osd.local is False:
                    [device] = [one for one in host.data_devices if one.path == osd.device]
                    own = host.numa_nodes[device.numa_node]
                    count = sum(one.numa_node == own.number for one in made.osds)
                    threads = len(own.cpus) - len(own.cores[0])
                    has_cpus = (count + 1) * choices.vcpus <= threads
                    has_memory = (count + 1) * 5 * 1024 <= own.memory_mib
                    self.assertFalse(has_cpus and has_memory)

    def test_interrupts_stay_off_guests(self):
        for _, _, _, made in self.profiles:
            for irq in made.irqs:
                self.assertTrue(irq.cpus)
                self.assertFalse(set(irq.cpus) & set(made.guest_cpus))


class PlacementTest(base.BaseTestCase):
    def place(self, vcpus=6, **changes):
        host = sample.host(**changes)
        return numa.place_osds(host, osds.layout(host, 1), vcpus)

    def test_the_node_of_the_device(self):
        placed = self.place()
        self.assertEqual([0, 0, 1, 1], [osd.numa_node for osd in placed])
        self.assertEqual([True] * 4, [osd.local for osd in placed])

    def test_the_node_of_the_network_if_that_of_the_device_is_unknown(self):
        placed = self.place(data_devices=sample.devices(on=(None,)))
        self.assertEqual([1] * 4, [osd.numa_node for osd in placed])
        self.assertEqual([True] * 4, [osd.local for osd in placed])

    def test_the_emptiest_node_if_nothing_is_known(self):
        placed = self.place(data_devices=sample.devices(on=(None,)), nics=())
        self.assertEqual([0, 1, 0, 1], [osd.numa_node for osd in placed])
        self.assertEqual([None] * 4, [osd.local for osd in placed])

    def test_a_full_node(self):
        placed = self.place(data_devices=sample.devices(8, on=(0,)))
        self.assertEqual([0] * 6 + [1] * 2, [osd.numa_node for osd in placed])
        self.assertEqual([True] * 6 + [False] * 2, [osd.local for osd in placed])

    def test_no_room(self):
        error = self.assertRaises(numa.DoesNotFitError, self.place, vcpus=20)
        self.assertIn('4 OSDs need 80 CPUs and 20480 MiB', str(error))
        self.assertIn('76 CPUs', str(error))
        self.assertIn('1 + 1 OSDs', str(error))

    def test_interrupts(self):
        [public, cluster] = sample.nics()
        unknown = dataclasses.replace(public, name='eth9', numa_node=None)
        host = sample.host(nics=(public, cluster, unknown))
        placed = numa.place_osds(host, osds.layout(host, 1), 6)
        made = numa.irq_affinity(host, numa.nodes(host, placed, 6, sample.workload()))
        first, second = (*range(7), *range(40, 47)), (*range(20, 27), *range(60, 67))
        self.assertEqual([first, second, tuple(sorted(first + second))], [irq.cpus for irq in made])

    def test_huge_pages(self):
        node = numa.nodes(sample.host(), self.place(), 6, sample.workload())[0]
        for guest_mib, page_kib, pages in ((8192, 1024**2, 80), (8190, 2048, 40950)):
            made = numa.node_plan(node, 8, 10, sample.workload(guest_memory_mib=guest_mib), 5120)
            self.assertEqual((page_kib, pages), (made.huge_page_kib, made.huge_pages))
            self.assertEqual((8, 5120), (made.guests, made.overhead_memory_mib))
