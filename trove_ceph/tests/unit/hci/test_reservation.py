# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph.enums import DeviceClass
from trove_ceph.hci import osds, reservation
from trove_ceph.hci.workload import OsdChoices
from trove_ceph.tests.unit.hci import sample

_GIB = 1024


class TripleoTest(base.BaseTestCase):
    """The values of TripleO's own documents and tests."""

    def test_256_gb_56_vcpus_16_osds(self):
        guests = reservation.guests_by_memory(256 * _GIB, 16, 2 * _GIB)
        self.assertEqual(70, guests)
        self.assertEqual(117760, reservation.reserved_host_memory_mb(16, guests))
        for vcpus_per_osd, expected in ((1, 0.714), (3, 0.143)):
            ratio = reservation.cpu_allocation_ratio(56, 16, vcpus_per_osd, 100)
            self.assertEqual(expected, round(ratio, 3))

    def test_256_gb_4_vcpus_1_osd(self):
        guests = reservation.guests_by_memory(256 * _GIB, 1, 2 * _GIB)
        self.assertEqual(56320, reservation.reserved_host_memory_mb(1, guests))
        self.assertEqual(3.75, reservation.cpu_allocation_ratio(4, 1, 1, 20))

    def test_without_a_workload(self):
        self.assertEqual(81920, reservation.reserved_host_memory_mb(16))

    def test_vcpus_per_osd(self):
        for kind, per_device, expected in (
            (DeviceClass.HDD, 1, 1),
            (DeviceClass.SSD, 1, 4),
            (DeviceClass.NVME, 4, 3),
            (DeviceClass.NVME, 1, 4),
            (DeviceClass.NVME, 2, 4),
        ):
            self.assertEqual(expected, osds.default_vcpus(kind, per_device), (kind, per_device))


class LimitsTest(base.BaseTestCase):
    def test_osds_need_more_memory_than_there_is(self):
        self.assertEqual(0, reservation.guests_by_memory(16 * _GIB, 4, 1024))
        self.assertEqual(0, reservation.guests_by_memory(20 * _GIB, 4, 1024))
        self.assertEqual(1, reservation.guests_by_memory(20 * _GIB + 1536, 4, 1024))

    def test_guests_by_cpus(self):
        self.assertEqual(28, reservation.guests_by_cpus(80, 1.4, 4))
        self.assertEqual(0, reservation.guests_by_cpus(80, -0.4, 4))
        # 10 x 0.7 is 7 in decimals, and less in binary.
        self.assertEqual(7, reservation.guests_by_cpus(10, 0.7, 1))

    def test_the_ratio_of_the_shared_set_gives_the_same_vcpus(self):
        for percent in (10, 50, 75, 100):
            ratio = reservation.cpu_allocation_ratio(80, 4, 6, percent)
            own = reservation.shared_set_ratio(percent)
            self.assertAlmostEqual(80 * ratio, (80 - 24) * own)

    def test_disks(self):
        self.assertEqual(137330, reservation.reserved_local_disk_mb(480 * 10**9))
        self.assertEqual(0.05, reservation.disk_allocation_ratio(20 * 10**12, 80 * 10**12, 5))

    def _capacities(self, left, hosts):
        """Return the capacities for root disks of all hosts together, by Placement, and the pool.

        :param left: the OSDs that ``total_bytes`` has, of 20 on 5 hosts
        :param hosts: the hosts that run guests
        """
        data, db, copies = 76_800 * 10**9, 1_875 * 10**9, 3
        ratio = reservation.disk_allocation_ratio(0.68 * data / copies, data + db, 5)
        total = (data + db) * left // 20
        return hosts * total * ratio, 0.68 * data * left / 20 / copies

    def test_root_disks_take_no_more_than_the_pool_has(self):
        """Ceph counts the devices for DB and WAL in the size of the cluster, and Nova with it."""
        capacity, pool = self._capacities(20, 5)
        self.assertLessEqual(capacity, pool)
        self.assertAlmostEqual(1, capacity / pool, places=6)

    def test_root_disks_have_room_without_an_osd_or_a_host(self):
        """Ceph does not count OSDs that are out, and no more than their part is lost."""
        for left, hosts in ((19, 5), (18, 5), (16, 4), (1, 5)):
            capacity, pool = self._capacities(left, hosts)
            self.assertLessEqual(capacity, pool)
            self.assertAlmostEqual(hosts / 5, capacity / pool, places=6)

    def test_the_ratio_is_never_the_zero_that_nova_takes_for_no_value(self):
        self.assertGreater(reservation.disk_allocation_ratio(10**11, 10**12, 10**8), 0)


class LayoutTest(base.BaseTestCase):
    def test_osds_per_device(self):
        large = sample.host(data_devices=sample.devices(size=30 * 10**12))
        self.assertEqual(1, osds.per_device(sample.host(), OsdChoices()))
        self.assertEqual(2, osds.per_device(large, OsdChoices()))
        self.assertEqual(4, osds.per_device(large, OsdChoices(per_device=4)))

    def test_parts_of_devices(self):
        found = osds.layout(sample.host(), 4)
        self.assertEqual([0, 1, 2, 3] * 4, [osd.index for osd in found])
        self.assertEqual({960 * 10**9}, {osd.data_bytes for osd in found})
        self.assertEqual({375 * 10**9 // 16}, {osd.db_bytes for osd in found})

    def test_db_devices_are_shared_evenly_and_near(self):
        near = [
            *sample.devices(1, on=(0,), name='/dev/db0'),
            *sample.devices(1, on=(1,), name='/dev/db1'),
        ]
        host = sample.host(db_devices=tuple(near))
        for osd in osds.layout(host, 2):
            self.assertEqual(osd.device.numa_node, osd.db_device.numa_node)
        one_sided = sample.host(data_devices=sample.devices(on=(0,)), db_devices=tuple(near))
        users = [osd.db_device.path for osd in osds.layout(one_sided, 1)]
        self.assertEqual([2, 2], [users.count(one.path) for one in near])

    def test_no_db_device(self):
        [first, *_] = osds.layout(sample.host(db_devices=()), 1)
        self.assertEqual((None, 0), (first.db_device, first.db_bytes))
