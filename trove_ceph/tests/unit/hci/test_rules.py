# SPDX-License-Identifier: Apache-2.0
"""Each rule once met, by the sample that breaks none, and once broken."""

import dataclasses

from oslo_utils import units
from oslotest import base

from trove_ceph.enums import DeviceClass
from trove_ceph.hci import cluster_rules, planning
from trove_ceph.hci.inventory import Inventory, Network, Nic
from trove_ceph.hci.plan import Level
from trove_ceph.hci.workload import OsdChoices, RootDisk
from trove_ceph.tests.unit.hci import sample

_ERROR, _WARNING = Level.ERROR, Level.WARNING


def plan(inventory=None, choices=sample.CHOICES, **load):
    """Return the plan of the sample, with changes."""
    return planning.plan(inventory or sample.inventory(), sample.workload(**load), choices)


class RulesTest(base.BaseTestCase):
    def assert_broken(self, made, level, rule, *, field, observed='', expected=''):
        """Assert that a rule is broken, and return the finding; the sample breaks none."""
        found = [one for one in made.findings if one.rule == rule]
        self.assertTrue(found, [one.rule for one in made.findings])
        one = found[0]
        self.assertEqual((level, field), (one.level, one.field))
        self.assertIn(observed, one.observed)
        self.assertIn(expected, one.expected)
        self.assertTrue(one.source and one.advice)
        return one

    def test_the_sample_breaks_no_rule(self):
        made = plan()
        self.assertEqual((), made.findings)
        self.assertEqual(5, len(made.hosts))

    def test_errors_come_first(self):
        made = plan(sample.inventory(2, data_devices=sample.devices(3)))
        levels = [one.level for one in made.findings]
        self.assertEqual(sorted(levels, key=lambda one: one is _WARNING), levels)
        self.assertEqual(2, len(set(levels)))
        self.assertEqual(levels.count(_ERROR), len(made.errors))


class HardwareTest(RulesTest):
    def broken_host(self, level, rule, field, observed, expected='', load=None, **changes):
        made = plan(sample.inventory(**changes), **(load or {}))
        self.assert_broken(
            made, level, rule, field=f'hosts.hci-1.{field}', observed=observed, expected=expected
        )
        return made

    def test_memory(self):
        small = sample.nodes(memory_mib=59 * 1024)
        self.broken_host(_WARNING, 'memory', 'memory', '127 GB', '128 GB', numa_nodes=small)
        # What Linux shows of 128 GiB.
        enough = sample.inventory(numa_nodes=sample.nodes(memory_mib=62 * 1024))
        self.assertNotIn('memory', {one.rule for one in plan(enough).findings})

    def test_data_devices(self):
        self.broken_host(
            *(_WARNING, 'data-devices', 'data_devices', '3 devices', '4 devices'),
            data_devices=sample.devices(3),
        )

    def test_db_devices(self):
        self.broken_host(_WARNING, 'db-devices', 'db_devices', '0 devices', db_devices=())

    def test_size_of_db_devices(self):
        self.broken_host(
            *(_WARNING, 'db-size', 'db_devices', '37.5 GB (0.98%)', '1%'),
            db_devices=sample.db_devices(size=150 * units.G),
        )

    def test_db_devices_that_are_larger_than_the_data(self):
        self.broken_host(
            *(_ERROR, 'db-size', 'db_devices', '93750 GB for an OSD of 3840 GB', 'less than'),
            db_devices=sample.db_devices(size=375_000 * units.G),
        )

    def test_sizes_in_different_units(self):
        slip = sample.devices(1, size=3840 * units.M)
        rest = sample.devices()[1:]
        made = self.broken_host(
            *(_ERROR, 'device-sizes', 'data_devices', '/dev/nvme0n1 has 3.84 GB', '10 times'),
            data_devices=slip + rest,
        )
        [one] = [one for one in made.findings if one.rule == 'device-sizes']
        self.assertIn('/dev/nvme1n1 of hci-1 has 3840 GB', one.observed)
        larger = sample.devices(1, size=38400 * units.G)
        made = plan(sample.inventory(data_devices=larger + rest))
        self.assertNotIn('device-sizes', {one.rule for one in made.findings})

    def test_mixed_classes(self):
        mixed = sample.devices(4) + sample.devices(2, DeviceClass.HDD, name='/dev/sd')
        self.broken_host(
            _ERROR, 'one-class', 'data_devices', '4 nvme and 2 hdd', data_devices=mixed
        )

    def test_no_flash(self):
        disks = sample.devices(4, DeviceClass.HDD)
        self.broken_host(
            _ERROR, 'flash', 'data_devices', '4 hdd, 0 DB', data_devices=disks, db_devices=()
        )
        self.broken_host(_WARNING, 'flash', 'data_devices', '4 hdd, 1 DB', data_devices=disks)

    def test_ssd_is_flash(self):
        made = plan(sample.inventory(data_devices=sample.devices(4, DeviceClass.SSD)))
        self.assertEqual((), made.findings)

    def test_cores_per_nvme(self):
        few = sample.nodes(cores_each=19)
        self.broken_host(
            *(_WARNING, 'cores-per-nvme', 'numa', '38 cores for 4 NVMe devices (9.5 each)', '10'),
            numa_nodes=few,
        )

    def test_no_public_network(self):
        [_, cluster] = sample.nics()
        self.broken_host(_ERROR, 'public-network', 'nics', 'no interface', nics=(cluster,))

    def test_separate_networks(self):
        [public, cluster] = sample.nics()
        both = dataclasses.replace(public, networks=frozenset({Network.PUBLIC, Network.CLUSTER}))
        rule = (_WARNING, 'separate-networks', 'nics')
        self.broken_host(*rule, 'no cluster network', nics=(public,))
        self.broken_host(*rule, 'both on bond0', nics=(both,))
        own = plan(sample.inventory(nics=(both, cluster)))
        self.assertEqual((), own.findings)

    def test_speed(self):
        slow = Nic('eth0', frozenset({Network.PUBLIC}), 1000, 0)
        self.broken_host(
            *(_WARNING, 'network-speed', 'nics.eth0.speed', '1 Gbit/s', '10 Gbit/s'),
            nics=(slow, sample.nics()[1]),
        )

    def test_unknown_nodes(self):
        unknown = sample.devices(on=(None,))
        rule = (_WARNING, 'numa-node-unknown', 'data_devices', '4 devices')
        self.broken_host(*rule, data_devices=unknown)
        one_node = sample.inventory(
            numa_nodes=sample.nodes(1, 40, memory_mib=384 * 1024),
            data_devices=unknown,
            nics=sample.nics(0),
        )
        self.assertEqual((), plan(one_node).findings)


class LoadTest(RulesTest):
    def test_golden_host(self):
        """256 GiB, 56 vCPUs, 16 OSDs: TripleO carries it with 1 CPU for an OSD, and not with 3."""
        inventory = sample.inventory(numa_nodes=sample.nodes(cores_each=14, memory_mib=128 * 1024))
        load = {
            'guest_memory_mib': 2048,
            'guest_vcpus': 1,
            'guest_cpu_percent': 100,
            'databases_per_host': None,
        }
        made = plan(inventory, OsdChoices(4, 1), **load)
        self.assertEqual((), made.errors)
        reservation = made.hosts[0].reservation
        self.assertEqual(117760, reservation.reserved_host_memory_mb)
        self.assertEqual(0.714, round(reservation.cpu_allocation_ratio, 3))
        self.assertEqual(16, len(made.hosts[0].osds))
        self.assert_broken(
            plan(inventory, OsdChoices(4, 3), **load),
            *(_ERROR, 'cpu-ratio'),
            field='hosts.hci-1.numa',
            observed='0.143 with 3 CPUs for each of 16 OSDs on 56 CPUs',
            expected='0.5 or more',
        )

    def test_ratio_above_16(self):
        made = plan(guest_cpu_percent=4)
        self.assert_broken(
            *(made, _WARNING, 'cpu-ratio'),
            field='workload.guest_cpu_percent',
            observed='17.5',
            expected='16',
        )

    def test_reserved_memory(self):
        made = plan(sample.inventory(numa_nodes=sample.nodes(memory_mib=12 * 1024)))
        self.assert_broken(
            *(made, _ERROR, 'reserved-memory'),
            field='hosts.hci-1.memory',
            observed='20480 MiB reserved for 4 OSDs and 0 guests',
            expected='19660 MiB or less (80% of 24576 MiB)',
        )

    def test_osds_do_not_fit(self):
        made = plan(choices=OsdChoices(1, 20))
        self.assert_broken(
            *(made, _ERROR, 'osds-fit'), field='hosts.hci-1.numa', observed='4 OSDs need 80 CPUs'
        )
        self.assertEqual((), made.hosts)
        # What could be computed is explained all the same.
        self.assertIn('cpu_allocation_ratio', {one.field for one in made.derivations})

    def test_memory_target(self):
        field = 'hosts.hci-1.data_devices'
        one = plan(sample.inventory(data_devices=sample.devices(1)), databases_per_host=None)
        self.assert_broken(
            one, _ERROR, 'memory-target', field=field, observed='853 MiB', expected='896'
        )
        two = plan(sample.inventory(data_devices=sample.devices(2)), databases_per_host=None)
        self.assertNotIn('memory-target', {finding.rule for finding in two.findings})
        # 20 databases leave more memory to the OSD than TripleO's 5 GiB.
        loaded = plan(sample.inventory(data_devices=sample.devices(1)))
        self.assertNotIn('memory-target', {finding.rule for finding in loaded.findings})

    def test_osds_per_device(self):
        self.assert_broken(
            plan(choices=OsdChoices(8, 1)),
            *(_WARNING, 'osds-per-device'),
            field='osds.per_device',
            observed='8 OSDs on each nvme',
            expected='4 or less',
        )
        disks = sample.inventory(data_devices=sample.devices(4, DeviceClass.HDD))
        self.assert_broken(
            plan(disks, OsdChoices(2, 1)),
            *(_WARNING, 'osds-per-device'),
            field='osds.per_device',
            expected='1 or less',
        )
        classic = plan(choices=OsdChoices(4, None))
        self.assertNotIn('osds-per-device', {one.rule for one in classic.findings})

    def test_cpus_of_osds(self):
        self.assert_broken(
            plan(choices=OsdChoices(1, None)),
            *(_WARNING, 'osd-cpus'),
            field='osds.vcpus',
            observed='not given; 4 CPUs for each OSD with 1 on each NVMe device',
        )
        self.assert_broken(
            plan(choices=OsdChoices(2, 1)),
            *(_WARNING, 'osd-cpus'),
            field='osds.vcpus',
            observed='2 CPUs for each NVMe device',
            expected='4 CPUs',
        )

    def test_osds_on_another_node(self):
        made = plan(sample.inventory(data_devices=sample.devices(on=(0,))), OsdChoices(1, 12))
        self.assert_broken(
            *(made, _WARNING, 'osds-local'),
            field='hosts.hci-1.data_devices',
            observed='1 of 4 OSDs on another NUMA node',
        )

    def test_too_many_guests(self):
        made = plan(databases_per_host=27)
        self.assert_broken(
            *(made, _ERROR, 'guests-fit'),
            field='hosts.hci-1',
            observed='27 databases',
            expected='26 or less by NUMA nodes; of what each allows: memory 42, CPUs 28, NUMA',
        )
        self.assertEqual(26, made.hosts[0].guests)

    def test_a_guest_that_fits_nowhere(self):
        made = plan(guest_vcpus=27, databases_per_host=None)
        self.assert_broken(
            *(made, _ERROR, 'guests-fit'),
            field='hosts.hci-1',
            expected='0 or less by NUMA nodes',
        )

    def test_local_disks(self):
        self.assert_broken(
            plan(root_disk=RootDisk.LOCAL),
            *(_ERROR, 'local-disk'),
            field='hosts.hci-1.local_disk',
            observed='not given',
        )
        small = sample.inventory(local_disk_bytes=400 * units.G)
        self.assert_broken(
            plan(small, root_disk=RootDisk.LOCAL),
            *(_ERROR, 'guests-fit'),
            field='hosts.hci-1',
            expected='13 or less by local disk',
        )
        large = sample.inventory(local_disk_bytes=960 * units.G)
        made = plan(large, root_disk=RootDisk.LOCAL)
        self.assertEqual((), made.findings)
        self.assertEqual(274659, made.hosts[0].reservation.reserved_host_disk_mb)
        self.assertEqual(1.0, made.hosts[0].reservation.disk_allocation_ratio)


class ClusterTest(RulesTest):
    def test_one_copy(self):
        made = plan(sample.inventory(copies=1))
        self.assert_broken(made, _ERROR, 'copies', field='copies', observed='1 copy')

    def test_fewer_hosts_than_copies(self):
        made = plan(sample.inventory(2), replicas=0)
        self.assert_broken(
            *(made, _ERROR, 'hosts-for-copies'),
            field='hosts',
            observed='2 hosts',
            expected='3 hosts or more for 3 copies',
        )
        self.assert_broken(made, _WARNING, 'hosts', field='hosts', expected='3 hosts')

    def test_no_host_to_heal_on(self):
        made = plan(sample.inventory(3))
        self.assert_broken(
            *(made, _WARNING, 'hosts-for-healing'), field='hosts', expected='4 hosts'
        )

    def test_hosts_of_different_classes(self):
        other = sample.host('ssd-1', data_devices=sample.devices(4, DeviceClass.SSD))
        hosts = sample.inventory(4).hosts
        made = plan(Inventory((*hosts, other), 3))
        self.assert_broken(
            *(made, _ERROR, 'one-class'),
            field='hosts',
            observed='4 hosts with nvme and 1 hosts with ssd',
        )

    def test_replicas(self):
        made = plan(replicas=5)
        self.assert_broken(
            *(made, _ERROR, 'hosts-for-replicas'),
            field='workload.replicas',
            observed='5 hosts for a database and 5 replicas',
            expected='6 hosts',
        )
        self.assertEqual((), plan(replicas=4).findings)

    def test_room_after_a_failure(self):
        self.assert_broken(
            plan(databases_per_host=21),
            *(_WARNING, 'failover-room'),
            field='workload.databases_per_host',
            observed='105 databases, and room for 104 without the largest host',
        )
        self.assertEqual([], list(cluster_rules.failover([26] * 5, [25] * 5, 20)))
        self.assertEqual([], list(cluster_rules.failover([26], [26], 26)))

    def test_huge_pages_after_a_failure(self):
        """A smaller host takes less than its share, and the pages of the others are allocated."""
        small = sample.host('small', numa_nodes=sample.nodes(cores_each=15))
        inventory = sample.inventory(4)
        hosts = (*inventory.hosts, small)
        made = plan(dataclasses.replace(inventory, hosts=hosts), guest_cpu_percent=40)
        self.assertEqual(20, sum(node.room for node in made.hosts[4].nodes))
        self.assert_broken(
            *(made, _WARNING, 'failover-room'),
            field='workload.databases_per_host',
            observed='100 databases, and huge pages for 95 without the host with the most',
        )

    def test_overlapping_networks(self):
        inventory = dataclasses.replace(
            sample.inventory(), public_network='192.0.2.0/24', cluster_network='192.0.2.128/25'
        )
        self.assert_broken(
            *(plan(inventory), _WARNING, 'separate-networks'),
            field='networks.cluster',
            observed='192.0.2.128/25 overlaps 192.0.2.0/24',
        )
        apart = dataclasses.replace(inventory, cluster_network='198.51.100.0/24')
        self.assertEqual((), plan(apart).findings)
        other = dataclasses.replace(inventory, cluster_network='2001:db8::/64')
        self.assertEqual((), plan(other).findings)

    def test_room_for_volumes(self):
        rule = {
            'field': 'workload.volume',
            'expected': '17.41 TB or less of 25.60 TB with 3 copies',
        }
        self.assert_broken(
            plan(volume_bytes=145 * units.Gi), _WARNING, 'pool-space', observed='17.72 TB', **rule
        )
        # Ceph stops writes at 95 %.
        self.assert_broken(
            plan(volume_bytes=210 * units.Gi), _ERROR, 'pool-space', observed='24.70 TB', **rule
        )

    def test_hosts_that_lose_one_keep_room_for_its_volumes(self):
        """At 80 %, four hosts would be full before they had healed the loss of one of them."""
        made = plan(sample.inventory(4), volume_bytes=140 * units.Gi)
        self.assert_broken(
            *(made, _WARNING, 'pool-space'),
            field='workload.volume',
            observed='13.74 TB',
            expected='13.06 TB or less of 20.48 TB',
        )

    def test_a_large_host_adds_no_room_that_other_copies_lack(self):
        large = sample.host('large', data_devices=sample.devices(size=19_200 * units.G))
        hosts = (large, *(sample.host(f'small-{at}') for at in range(2)))
        made = plan(Inventory(hosts, 3), volume_bytes=190 * units.Gi)
        self.assert_broken(
            *(made, _WARNING, 'pool-space'),
            field='workload.volume',
            observed='13.53 TB',
            expected='12.29 TB or less of 15.36 TB',
        )


class AffinityTest(base.BaseTestCase):
    def test_what_can_be_expressed(self):
        made = plan()
        [aggregate] = made.aggregates
        self.assertEqual(tuple(f'hci-{at}' for at in range(1, 6)), aggregate.hosts)
        replicas, databases, _, primaries = made.affinity
        self.assertIn('--locality anti-affinity', replicas.setting)
        self.assertIn('2 replicas need 3 of 5 hosts', replicas.limit)
        [(name, value)] = aggregate.properties
        self.assertIn(f'aggregate_instance_extra_specs:{name}={value}', databases.setting)
        self.assertEqual((None, None), (primaries.mechanism, primaries.setting))
        self.assertIn('about 1/5', primaries.limit)
