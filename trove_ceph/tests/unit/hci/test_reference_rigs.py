# SPDX-License-Identifier: Apache-2.0
"""The servers of the reference architectures, held against the rules."""

from oslo_utils import units
from oslotest import base

from trove_ceph.hci import planning
from trove_ceph.hci.inventory import Network, Nic
from trove_ceph.hci.workload import OsdChoices
from trove_ceph.tests.unit.hci import sample

_CLASSIC = OsdChoices(per_device=4, vcpus=3)


def rig(hosts, copies, *, cores_each, memory_gib, nvme, gigabytes, db_devices, gbit):
    """Return equal hosts with two CPUs, NVMe devices and two ports."""
    ports = (Network.PUBLIC, Network.CLUSTER)
    return sample.inventory(
        hosts,
        copies,
        numa_nodes=sample.nodes(cores_each=cores_each, memory_mib=memory_gib * 1024 // 2),
        data_devices=sample.devices(nvme, size=gigabytes * units.G),
        db_devices=sample.db_devices(db_devices),
        nics=tuple(
            Nic(f'port{at}', frozenset({port}), gbit * 1000, at) for at, port in enumerate(ports)
        ),
    )


class ReferenceRigsTest(base.BaseTestCase):
    def plan(self, inventory, choices, **load):
        return planning.plan(inventory, sample.workload(replicas=0, **load), choices)

    def rules(self, plan):
        return {(str(one.level), one.rule) for one in plan.findings}

    def test_intel_2018(self):
        """2 x E5-2699 v4, 128 GB, 4 P3700 with 4 OSDs each, Optane for DB and WAL: no finding."""
        inventory = rig(
            *(5, 2),
            **{'cores_each': 22, 'memory_gib': 128, 'nvme': 4, 'gigabytes': 800},
            **{'db_devices': 1, 'gbit': 10},
        )
        plan = self.plan(inventory, _CLASSIC, databases_per_host=2)
        self.assertEqual((), plan.findings)
        self.assertEqual(16, len(plan.hosts[0].osds))
        most = self.plan(inventory, _CLASSIC, databases_per_host=None)
        self.assertEqual(4, most.hosts[0].guests)
        # 16 OSDs leave 48 GiB for guests; those of two databases, and of a lost host, need less.
        self.assertEqual(81920 + 5 * 512, most.hosts[0].reservation.reserved_host_memory_mb)
        self.assertEqual(16 * 6016 + 4 * 512, plan.hosts[0].reservation.reserved_host_memory_mb)

    def test_red_hat_2020(self):
        """2 x Platinum 8180, 192 GB, 7 P4500, Optane, and 10 guests of 8 GB with 4 vCPUs."""
        inventory = rig(
            *(6, 3),
            **{'cores_each': 28, 'memory_gib': 192, 'nvme': 7, 'gigabytes': 4000},
            **{'db_devices': 1, 'gbit': 40},
        )
        plan = self.plan(inventory, sample.CHOICES, databases_per_host=10)
        # Seven devices for 56 cores are more than one for ten.
        self.assertEqual({('warning', 'cores-per-nvme')}, self.rules(plan))
        # Four OSDs on each device take the memory of guests: five are left of 17.
        for choices, guests, reserved_mb in ((sample.CHOICES, 17, 45056), (_CLASSIC, 5, 146432)):
            [host, *_] = self.plan(inventory, choices, databases_per_host=None).hosts
            self.assertEqual(guests, host.guests)
            self.assertEqual(reserved_mb, host.reservation.reserved_host_memory_mb)

    def test_supermicro_2016(self):
        """2 x E5-2650 v3, 32 GB, 4 P3700 with 4 OSDs each: a storage node, and no more."""
        inventory = rig(
            *(5, 2),
            **{'cores_each': 10, 'memory_gib': 32, 'nvme': 4, 'gigabytes': 800},
            **{'db_devices': 0, 'gbit': 10},
        )
        plan = self.plan(inventory, _CLASSIC, databases_per_host=2)
        self.assertEqual((), plan.hosts)
        self.assertLessEqual(
            {
                ('error', 'reserved-memory'),
                ('error', 'cpu-ratio'),
                ('error', 'osds-fit'),
                ('warning', 'memory'),
                ('warning', 'db-devices'),
                ('warning', 'cores-per-nvme'),
            },
            self.rules(plan),
        )
