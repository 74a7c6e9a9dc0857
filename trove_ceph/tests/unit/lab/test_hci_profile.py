# SPDX-License-Identifier: Apache-2.0
"""The plan of the lab's machine as a hyper-converged host, by the package's own planner."""

import json
from pathlib import Path
from unittest import mock

import fixtures
from oslotest import base

from hci_profile import __main__ as command
from hci_profile import inventory, profile
from hci_profile.errors import ProfileError
from trove_ceph.tests.unit.cmd.manage import command as manage

#: A machine of two cores and 24 GiB, as the lab is developed on.
SMALL = {
    'numa': [{'node': 0, 'memory': '24105MiB', 'cores': ['0', '1']}],
    'nics': [{'name': 'lo', 'networks': ['public']}],
    'counted_memory_mib': 24105,
    'local_disk_bytes': 270 * 10**9,
}
#: A server of two nodes with 16 cores of two threads each.
SERVER = SMALL | {
    'numa': [
        {
            'node': node,
            'memory': '131072MiB',
            'cores': [f'{16 * node + core},{32 + 16 * node + core}' for core in range(16)],
        }
        for node in (0, 1)
    ],
    'counted_memory_mib': 262144,
}
SETTINGS = {
    'lab_hci_cpu_scale': 8,
    'lab_hci_memory_scale': 2,
    'lab_osds_nvme': 3,
    'lab_osds_hdd': 3,
    'lab_osd_gib': 12,
    'lab_flavor_ram_mib': 2048,
    'lab_flavor_vcpus': 2,
    'lab_volume_gib': 2,
}


class ProfileTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.root = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch('hci_profile.__main__.subprocess.run', self._run))

    def _run(self, words, **_options):
        """Run trove-ceph-manage, in this process."""
        self.assertEqual(str(self.root / 'venv/bin/trove-ceph-manage'), words[0])
        status, out, err = manage.run(*words[1:])
        return mock.Mock(returncode=status, stdout=out, stderr=err)

    def make(self, machine=SMALL, **settings):
        self.useFixture(
            fixtures.MonkeyPatch('hci_profile.inventory.describe', lambda _state: machine)
        )
        return command.make(
            SETTINGS
            | {'lab_root': str(self.root)}
            | {f'lab_{name}': value for name, value in settings.items()}
        )


class ProfileTest(ProfileTestCase):
    def test_two_cores_are_one_for_osds_and_one_for_guests(self):
        made = self.make()
        self.assertEqual(([0], [1], []), (made.osd_cpus, made.guest_cpus, made.host_cpus))
        self.assertEqual([0, 1], made.cpus)
        self.assertEqual(['osd.0', 'osd.1', 'osd.2'], made.osds)
        self.assertEqual(['osd.3', 'osd.4', 'osd.5'], made.other_osds)
        self.assertEqual(made, profile.find(self.root))

    def test_values_of_the_plan_are_divided(self):
        made = self.make()
        plan = json.loads((self.root / 'etc/hci/plan.json').read_text())
        host = next(one for one in plan['hosts'] if one['name'] == 'lab')
        planned_mib = host['osd_memory_target_bytes'] // profile.MIB
        self.assertEqual(planned_mib // 2, made.osd_memory_target_mib)
        nova = dict(made.nova['DEFAULT'])
        planned = host['reservation']
        for name in ('reserved_host_memory_mb', 'reserved_host_disk_mb'):
            self.assertEqual(planned[name] // 2, int(nova[name]), name)
        self.assertEqual('5.0', nova['cpu_allocation_ratio'])
        self.assertEqual([['cpu_shared_set', '1']], made.nova['compute'])
        self.assertEqual('network=none,file=unsafe', dict(made.nova['libvirt'])['disk_cachemodes'])
        # 24105 MiB less the reservation hold six guests of 2 GiB, and one CPU five vCPUs.
        self.assertEqual('10752', nova['reserved_host_memory_mb'])
        self.assertEqual(5, made.guests)

    def test_nova_gives_guests_memory_that_it_does_not_count(self):
        expected = 24105 - int(dict(self.make().nova['DEFAULT'])['reserved_host_memory_mb'])
        made = self.make(SMALL | {'counted_memory_mib': 12250})
        nova = dict(made.nova['DEFAULT'])
        free_mib = 12250 - int(nova['reserved_host_memory_mb'])
        self.assertEqual('1.9678', nova['ram_allocation_ratio'])
        self.assertAlmostEqual(expected, free_mib * float(nova['ram_allocation_ratio']), delta=4)
        self.assertEqual(5, made.guests)

    def test_kernel_and_ceph_get_what_is_rendered(self):
        made = self.make()
        self.assertEqual('1', made.sysctl['vm.swappiness'])
        self.assertEqual('4096 131072 33554432', made.sysctl['net.ipv4.tcp_rmem'])
        self.assertIn(['osd', 'osd_mclock_profile', 'high_client_ops'], made.ceph)
        self.assertNotIn('osd_memory_target', [name for _, name, _ in made.ceph])

    def test_a_server_is_not_scaled(self):
        made = self.make(
            SERVER, hci_cpu_scale=1, hci_memory_scale=1, osds_nvme=4, osd_gib=960, volume_gib=10
        )
        plan = json.loads((self.root / 'etc/hci/plan.json').read_text())
        host = plan['hosts'][0]
        self.assertEqual(host['osd_cpus'], made.osd_cpus)
        self.assertEqual(host['guest_cpus'], made.guest_cpus)
        self.assertEqual([0, 16, 32, 48], made.host_cpus)
        self.assertEqual(list(range(64)), made.cpus)

    def test_threads_of_a_core_stay_together(self):
        made = self.make(SERVER, hci_cpu_scale=2, osds_nvme=4, osd_gib=960, volume_gib=10)
        for core in SERVER['numa'][0]['cores'] + SERVER['numa'][1]['cores']:
            cpus = set(inventory.threads(core))
            self.assertIn(cpus & set(made.guest_cpus), (set(), cpus), core)
        self.assertEqual([], sorted(set(made.guest_cpus) & set(made.osd_cpus)))
        self.assertEqual(64, len(made.osd_cpus) + len(made.guest_cpus))

    def test_a_plan_with_errors_is_refused_with_its_numbers(self):
        error = self.assertRaises(ProfileError, self.make, hci_cpu_scale=1)
        self.assertIn('3 OSDs need 12 CPUs', str(error))
        self.assertIn('Raise hci_cpu_scale', str(error))
        self.assertIsNone(profile.find(self.root))

    def test_ceph_accepts_the_memory_target(self):
        error = self.assertRaises(ProfileError, self.make, hci_memory_scale=4)
        self.assertIn('782 MiB on this machine, and Ceph accepts 896 MiB', str(error))

    def test_one_core_cannot_be_divided(self):
        machine = SMALL | {'numa': [{'node': 0, 'memory': '24105MiB', 'cores': ['0,1']}]}
        error = self.assertRaises(ProfileError, self.make, machine, hci_cpu_scale=16)
        self.assertIn('has one core', str(error))

    def test_this_machine_can_be_described(self):
        machine = inventory.describe(str(self.root))
        self.assertTrue(machine['numa'])
        self.assertGreater(machine['counted_memory_mib'], 0)
        self.assertGreater(inventory.memory_mib(machine), 0)
        self.assertEqual('lo', machine['nics'][0]['name'])

    def test_lists_of_cpus(self):
        for cpus, text in (([], ''), ([1], '1'), ([0, 1, 2, 8], '0-2,8'), ([3, 5], '3,5')):
            self.assertEqual(text, profile.cpu_list(cpus))
        self.assertEqual([0, 1, 28], inventory.threads('0-1,28'))
