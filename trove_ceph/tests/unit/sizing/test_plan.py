# SPDX-License-Identifier: Apache-2.0
import itertools

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.sizing.decisions import GIVEN
from trove_ceph.tests.unit.sizing import sample

TB = 10**12
SSD = {'class': 'ssd', 'size': '3.84TB', 'iops': 30000}
DISKS = {'class': 'hdd', 'size': '8TB', 'iops': 120, 'throughput': '150MB'}


class GoldenVectorTest(base.BaseTestCase):
    """The published server with eight nodes (Red Hat 2016)."""

    def test_usable_space(self):
        planned = sample.cluster(sample.OF_RED_HAT)
        self.assertEqual((8, 1, 8), (planned.nodes, planned.devices_per_node, planned.osds))
        self.assertEqual(6.4 * TB, planned.raw_bytes)
        self.assertEqual(3.2 * TB, planned.usable_bytes)
        self.assertEqual(2 * TB / (3.2 * TB), planned.fill)
        self.assertEqual((), planned.violations)

    def test_parts_of_a_server(self):
        planned = sample.cluster(sample.OF_RED_HAT)
        # One E5-2650 v4 has twelve cores; ten are ideal for one NVMe.
        self.assertEqual((10, 32, 10), self.parts(planned))
        self.assertEqual(5, planned.monitors)
        # 128 copies on each of 8 OSDs.
        self.assertEqual((512, 128), (planned.pg_num, planned.pgs_per_osd))

    @staticmethod
    def parts(planned):
        return planned.cores_per_node, planned.memory_gib_per_node, planned.network_gbit

    def test_eight_servers_are_few_for_more_than_a_pilot(self):
        planned = sample.cluster(sample.OF_RED_HAT | {'cluster/pilot': False})
        self.assertIn('one server is at most 10% of the cluster', planned.violations[0])
        [note] = [note for note in sample.cluster(sample.OF_RED_HAT).notes if 'pilot' in note]
        self.assertIn('12.5% of the cluster', note)


class PublishedClustersTest(base.BaseTestCase):
    """The clusters of QCT 2015, Table 2, have the space that they are published with."""

    def check(self, kind, nodes, devices, size, least, db, db_devices):
        device = {'class': 'hdd', 'size': size, 'db': db}
        cluster = {'optimised_for': kind, 'device': device, 'bays': 78}
        cluster |= {'nodes': nodes, 'devices_per_node': devices}
        changes = {'cluster': cluster, 'databases/0': {'instances': 1, 'size': '1TiB'}}
        planned = sample.cluster(changes)
        self.assertGreaterEqual(planned.usable_bytes, least * TB)
        # They were not made much larger than the space that they are named after.
        self.assertLess(planned.usable_bytes, 1.15 * least * TB)
        self.assertEqual(db_devices, planned.db_devices_per_node)
        return planned

    def test_throughput(self):
        self.check('throughput', 7, 12, '4TB', 100, 'ssd', 3)
        self.check('throughput', 32, 12, '4TB', 500, 'ssd', 3)
        self.check('throughput', 22, 35, '4TB', 1000, 'nvme', 2)
        self.check('throughput', 44, 35, '4TB', 2000, 'nvme', 2)

    def test_capacity(self):
        for nodes, devices, size, least in ((8, 12, '8TB', 500), (7, 78, '6TB', 2000)):
            planned = self.check('capacity', nodes, devices, size, least, 'none', 0)
            found = ' '.join(planned.violations)
            # 78 disks of 6 TB are more than the 300 TB that Red Hat 2016, Table 3, has on a server.
            self.assertEqual(devices == 78, 'at most 300 TB on a server' in found, found)
            self.assertNotIn('nodes', found.replace('devices per node', ''))


class BindingRulesTest(base.BaseTestCase):
    """Each rule binds a value for some fleet."""

    def check(self, name, rule, value=None, **changes):
        """Check the rule, and the value, of a decision."""
        changes = {key.replace('__', '/'): value for key, value in changes.items()}
        planned = sample.cluster(changes)
        found = sample.decision(planned, name)
        self.assertIn(rule, found.binding.rule)
        self.assertTrue(found.binding.source)
        if value is not None:
            self.assertEqual(value, found.value)
        return planned

    def test_nodes(self):
        self.check('nodes', 'at most 10% of the cluster', 10)
        self.check('nodes', 'at most 10% of the cluster', 10, **self.disks('throughput'))
        self.check('nodes', 'at most 15% of the cluster', 7, **self.disks('capacity'))
        pilot = {'cluster__pilot': True, 'databases__0__instances': 10}
        self.check('nodes', '3 OSD servers', 3, **pilot)
        wide = {'cluster__erasure': {'k': 8, 'm': 3}}
        self.check('nodes', 'EC 8+3 need 11 hosts and one', 12, **self.disks('capacity') | wide)
        racks = {'cluster__failure_domain': 'rack', 'cluster__nodes_per_rack': 6}
        self.check('nodes', '2 copies need 2 racks and one', 18, **racks)
        racks['cluster__nodes_per_rack'] = 3
        self.check('nodes', 'whole racks: one server', 12, **racks)

    @staticmethod
    def disks(kind):
        """Return the changes for disks without promised IOPS."""
        return {
            'cluster__optimised_for': kind,
            'cluster__device': DISKS,
            'databases__0': {'instances': 100, 'size': '100GiB'},
        }

    def test_nodes_by_their_devices(self):
        many = {'databases__0__instances': 2000}
        self.check('nodes', 'more than 2 (less than 10 TB on a server)', **many)
        self.check('nodes', 'more than 1 (1 bays)', cluster__bays=1, **many)
        self.check('nodes', 'more than 1 (one NVMe for 10 of the 19', cluster__cores=19, **many)
        disks = self.disks('throughput') | {'databases__0__instances': 50000}
        self.check('nodes', 'more than 12 (12 bays)', **disks)
        self.check('nodes', '(at most 300 TB on a server)', cluster__bays=60, **disks)

    def test_nodes_by_network_and_cores(self):
        busy = {'databases__0__iops_per_gib': 100, 'cluster__network_gbit': 10}
        self.check('nodes', 'servers would need 10.08 Gbit/s', **busy)
        busy = {'databases__0__iops_per_gib': 30, 'cluster__device': SSD, 'cluster__cores': 8}
        self.check('nodes', 'servers would need 9 cores each: 3500 writes', **busy)

    def test_devices(self):
        self.check('devices per node', 'TB with redundancy at 70.0% fill', 1)
        fast = {'databases__0__iops_per_gib': 50}
        self.check('devices per node', 'operations per second of OSDs', 2, **fast)
        urgent = {'cluster__recovery': {'hours': 0.1}, 'databases__0__instances': 200}
        slow = {'cluster__device': {'class': 'nvme', 'size': '3.84TB', 'throughput': '300MB'}}
        planned = self.check('devices per node', 'recovery within 0.1 h', **urgent | slow)
        self.assertLessEqual(planned.recovery_sec, 360)

    def test_fill(self):
        self.check('most fill', 'typically operates at 70%', 0.7)
        self.check('most fill', 'fill_percent is 60%', 0.6, cluster__fill_percent=60)
        large = {'cluster__fill_percent': 90, 'cluster__nodes': 30}
        self.check('most fill', 'less than 80%', 0.8, **large)
        pilot = {'cluster__pilot': True, 'databases__0__instances': 10}
        self.check('most fill', '1/3 for self-healing', **pilot)
        small = {'cluster__nodes': 5, 'cluster__pilot': True}
        self.check('most fill', '85% (nearfull) when a host is lost', 0.85 * 0.8, **small)

    def test_cores_and_memory(self):
        self.check('cores per node', '10 cores for each of 1 NVMe', 10)
        few = {'cluster__device__iops': 400000, 'databases__0__iops_per_gib': 100}
        self.check('cores per node', '3500 writes or 7500 reads', **few)
        self.check('cores per node', '1 for each of 1 OSDs', 1, **self.disks('throughput'))
        self.check('memory per node', '32 GB at least', 32)
        shared = {'cluster__device__osds': 4, 'cluster__devices_per_node': 2}
        self.check('memory per node', 'for each of 8 OSDs', 64, **shared)

    def test_network(self):
        self.check('network per node', '10 GbE at least', 10)
        fast = {'databases__0__iops_per_gib': 60}
        self.check('network per node', 'IOPS x size x copies', 50, **fast | {'io_size': '32KiB'})
        urgent = {'cluster__recovery': {'hours': 0.1}, 'databases__0__instances': 200}
        self.check('network per node', 'recovery within 0.1 h', **urgent)

    def test_monitors_and_placement_groups(self):
        self.check('monitors', 'five from five servers', 5)
        pilot = {'cluster__pilot': True, 'databases__0__instances': 10}
        self.check('monitors', 'an odd number', 3, **pilot)
        self.check('monitors', 'is given', 7, cluster__monitors=7)
        self.check('placement groups', '100 to 200 on each OSD', 512)
        self.check('placement groups', '200 on each OSD', 1024, cluster__pgs_per_osd=200)

    def test_ceph_accepts_the_placement_groups(self):
        """It refuses more than 250 on an OSD, and the power of two may be half as much again."""
        for nodes, per_osd in itertools.product(range(10, 40), (200, 225, 250)):
            planned = sample.cluster({'cluster/nodes': nodes, 'cluster/pgs_per_osd': per_osd})
            self.assertLessEqual(planned.pgs_per_osd, 250, (nodes, per_osd))
            self.assertGreater(planned.pgs_per_osd, 100, (nodes, per_osd))
        refused = {'cluster__nodes': 14, 'cluster__pgs_per_osd': 200}
        self.check('placement groups', '(mon_max_pg_per_osd)', 1024, **refused)

    def test_devices_for_db_and_wal(self):
        self.check('DB devices per node', 'flash needs none', 0)
        full = self.disks('throughput') | {'cluster__devices_per_node': 12}
        self.check('DB devices per node', 'one ssd for 4 disks', 3, **full)
        full['cluster__device'] = DISKS | {'db': 'nvme'}
        full |= {'cluster__devices_per_node': 35, 'cluster__bays': 35}
        self.check('DB devices per node', 'one nvme for 17.5 disks', 2, **full)
        self.check('DB devices per node', 'are with the data', 0, **self.disks('capacity'))

    def test_redundancy(self):
        for kind, device, expected in (
            ('iops', {'class': 'ssd', 'size': '2TB', 'iops': 9000}, '2 copies'),
            ('throughput', DISKS, '3 copies'),
            ('capacity', DISKS, 'EC 4+2'),
        ):
            changes = {'cluster': {'optimised_for': kind, 'device': device}}
            self.assertEqual(expected, str(sample.request(changes).design.redundancy))

    def test_classes_of_public_clouds(self):
        for per_gib, expected in (
            (30, 'provisioned IOPS (30)'),
            (4, 'premium (4-5)'),
            (3, 'general purpose (3)'),
            (2.9, 'less than any volume'),
        ):
            notes = sample.cluster({'databases/0/iops_per_gib': per_gib}).notes
            self.assertIn(expected, notes[0])


class GivenValuesTest(base.BaseTestCase):
    """Values that the file sets are kept, and what they break is named."""

    def test_each_broken_rule_is_named(self):
        for changes, expected in (
            ({'cluster/nodes': 5}, 'nodes: 5 is less than 10 (one server is at most 10%'),
            ({'cluster/devices_per_node': 3}, 'devices per node: 3 is more than 2 (less than 10'),
            (
                {'cluster/nodes': 10, 'cluster/cores': 2, 'cluster/device': SSD},
                'cores per node: 2 is less than 4 (4 for each of 1 OSDs',
            ),
            ({'cluster/network_gbit': 1}, 'network per node: 1 is less than 10 (10 GbE at least'),
            ({'cluster/monitors': 1}, 'monitors: 1 is less than 3 (an odd number'),
            ({'cluster/monitors': 99}, 'monitors: 99 is more than 10 (one on each server'),
            ({'cluster/fill_percent': 85}, 'fill_percent: 85% is more than 80% (each server'),
            ({'cluster/pgs_per_osd': 50}, 'pgs_per_osd: 50 is less than 100 (100 to 200 on each'),
            ({'cluster/pgs_per_osd': 250}, 'pgs_per_osd: 250 is more than 200 (100 to 200'),
            (
                {'cluster/nodes': 10, 'databases/0/instances': 900, 'cluster/devices_per_node': 2},
                'fill: 251.7% is more than 70.0%',
            ),
            (
                {'cluster/nodes': 2, 'cluster/pilot': True, 'cluster/recovery': {'hours': 1}},
                'recovery: the copies of a lost host find no other of 2',
            ),
        ):
            found = ' | '.join(sample.cluster(changes).violations)
            self.assertIn(expected, found, changes)

    def test_given_values_say_so(self):
        planned = sample.cluster({'cluster/nodes': 20, 'cluster/network_gbit': 100})
        self.assertEqual((20, 100, ()), (planned.nodes, planned.network_gbit, planned.violations))
        self.assertEqual(GIVEN, sample.decision(planned, 'nodes').binding.source)

    def test_no_cluster_is_large_enough(self):
        for changes, expected in (
            ({'databases/0/instances': 10**6, 'databases/0/size': '64TiB'}, 'than 10000 servers'),
            ({'cluster/device/size': '10TB'}, 'cluster.device.size: not one device of 10.00 TB'),
            ({'cluster/cores': 9}, 'one NVMe for 10 of the 9 cores'),
        ):
            error = self.assertRaises(exceptions.InvalidFleetError, sample.cluster, changes)
            self.assertIn(expected, str(error))


class MonotonicityTest(base.BaseTestCase):
    """A larger fleet never gets a smaller cluster."""

    DESIGNS = (
        {},
        {'cluster/pilot': True},
        {'cluster/recovery': {'hours': 0.05}, 'cluster/device/throughput': '300MB'},
        {'cluster/failure_domain': 'rack', 'cluster/nodes_per_rack': 4, 'cluster/copies': 3},
        {'cluster/network_gbit': 10, 'cluster/cores': 20},
        {'cluster/devices_per_node': 1},
    )
    COUNTS = (1, 5, 50, 99, 100, 101, 231, 1000)

    def test_more_instances(self):
        for design in self.DESIGNS:
            self.never_smaller(design, 'databases/0/instances', self.COUNTS)

    def test_every_instance(self):
        for design in ({}, {'cluster/pilot': True}):
            self.never_smaller(design, 'databases/0/instances', range(90, 200, 5))

    def test_more_of_each(self):
        for design in self.DESIGNS:
            sizes = [f'{size}GiB' for size in (1, 100, 101, 500, 1000)]
            self.never_smaller(design, 'databases/0/size', sizes)
            self.never_smaller(design, 'databases/0/iops_per_gib', (0.1, 3, 10, 30, 31, 60))
            self.never_smaller(design, 'growth_percent', (0, 1, 50, 200))

    def never_smaller(self, design, path, values):
        clusters = [sample.cluster({**design, path: value}) for value in values]
        for less, more in itertools.pairwise(clusters):
            self.assertLessEqual(less.nodes, more.nodes, (design, path))
            self.assertLessEqual(self.space(less), self.space(more) + 1, (design, path))
            if less.nodes == more.nodes:
                self.assertLessEqual(less.network_gbit, more.network_gbit, (design, path))

    @staticmethod
    def space(planned):
        """Return the space that may be filled."""
        return planned.raw_bytes * sample.decision(planned, 'most fill').value

    def test_every_plan_holds_its_fleet(self):
        for design, instances in itertools.product(self.DESIGNS, self.COUNTS):
            planned = sample.cluster({**design, 'databases/0/instances': instances})
            self.assertEqual((), planned.violations, (design, instances))
            self.assertGreaterEqual(planned.iops, planned.request.fleet.iops)
            self.assertLessEqual(planned.fill, sample.decision(planned, 'most fill').value + 1e-9)
            self.assertTrue(100 <= planned.pgs_per_osd <= 200, planned.pgs_per_osd)
