# SPDX-License-Identifier: Apache-2.0
"""The playbook that describes hosts, and its module, on files as a kernel has them."""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import fixtures
import yaml
from oslotest import base

from trove_ceph.enums import DeviceClass
from trove_ceph.hci import hosts_file, planning
from trove_ceph.hci.inventory import Network

ANSIBLE = Path(__file__).parents[4] / 'etc/ansible'
GB_SECTORS = 1000**3 // 512


def _example():
    """Return the variables that the head of the playbook shows."""
    lines = (ANSIBLE / 'hci-facts.yml').read_text().splitlines()
    start = lines.index('# databases.yml has what no host can tell:') + 2
    return '\n'.join(one.removeprefix('#   ') for one in lines[start : lines.index('#', start)])


class _Loader(importlib.machinery.SourceFileLoader):
    """Write no compiled module, which would get into the wheel with the other files of etc/."""

    def set_data(self, *_arguments, **_options):
        """Do nothing."""


def _module():
    path = ANSIBLE / 'library/hci_host_facts.py'
    loader = _Loader('hci_host_facts', str(path))
    spec = importlib.util.spec_from_file_location('hci_host_facts', path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


facts = _module()


class Kernel:
    """Files of a kernel below a directory."""

    def __init__(self, root):
        self.root = Path(root)
        self.write('proc/mounts', 'rootfs / rootfs rw 0 0\n')
        (self.root / 'sys/block').mkdir(parents=True)

    def write(self, path, text):
        """Write a file."""
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def link(self, path, target):
        """Make a link to a path below the directory."""
        path, target = self.root / path, self.root / target
        target.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(target, path.parent))

    def add_node(self, number, cpus, siblings, memory_kib):
        """Add a NUMA node; ``siblings`` are the texts of its cores by CPU."""
        node = f'sys/devices/system/node/node{number}'
        self.write(f'{node}/cpulist', f'{cpus}\n')
        self.write(f'{node}/meminfo', f'Node {number} MemTotal:  {memory_kib} kB\n')
        for cpu, text in siblings.items():
            path = f'sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list'
            self.write(path, f'{text}\n')

    def add_disk(self, name, size_gb, node=None, rotational=0, link=None):
        """Add a disk, and the controller above it."""
        self.write(f'sys/block/{name}/size', f'{size_gb * GB_SECTORS}\n')
        self.write(f'sys/block/{name}/queue/rotational', f'{rotational}\n')
        controller = f'sys/devices/pci/{name}'
        self.link(f'sys/block/{name}/device', f'{controller}/function/{name}')
        if node is not None:
            self.write(f'{controller}/numa_node', f'{node}\n')
        if link:
            path = self.root / 'dev/disk/by-id' / link
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(f'../../{name}')

    def add_interface(self, name, speed=None, node=None):
        """Add a network interface with hardware of its own."""
        self.link(f'sys/class/net/{name}/device', f'sys/devices/pci/{name}')
        if speed:
            self.write(f'sys/class/net/{name}/speed', f'{speed}\n')
        if node is not None:
            self.write(f'sys/devices/pci/{name}/numa_node', f'{node}\n')

    def stack(self, name, *lower):
        """Put an interface without hardware on others."""
        for each in lower:
            self.link(f'sys/class/net/{name}/lower_{each}', f'sys/class/net/{each}')


def two_nodes(root):
    """Return a host with two nodes of two cores, two NVMe devices and a bond."""
    kernel = Kernel(root)
    kernel.add_node(0, '0-1,4-5', {0: '0,4', 1: '1,5', 4: '0,4', 5: '1,5'}, 100 * 1024**2)
    kernel.add_node(1, '2-3,6-7', {2: '2,6', 3: '3,7', 6: '2,6', 7: '3,7'}, 100 * 1024**2)
    kernel.add_disk('nvme0n1', 3840, node=0, link='nvme-MODEL_A1')
    kernel.add_disk('nvme1n1', 3840, node=1, link='nvme-MODEL_B2')
    kernel.add_interface('eth0', 25000, node=0)
    kernel.add_interface('eth1', 25000, node=0)
    kernel.stack('bond0', 'eth0', 'eth1')
    kernel.write('sys/class/net/bond0/bonding/mode', 'active-backup 1\n')
    kernel.write('sys/class/net/bond0/speed', '25000\n')
    return kernel


class HostTestCase(base.BaseTestCase):
    """What the module makes of a kernel's files."""

    def setUp(self):
        super().setUp()
        self.kernel = two_nodes(self.useFixture(fixtures.TempDir()).path)
        self.host = facts.Host(self.kernel.root)

    def _describe(self, carried=None, **options):
        return facts.describe(self.host, carried or {'bond0': {'public'}}, **options)

    def test_numa_nodes(self):
        found = self._describe()
        self.assertEqual('204800MiB', found['memory'])
        self.assertEqual(
            [
                {'node': 0, 'memory': '102400MiB', 'cores': ['0,4', '1,5']},
                {'node': 1, 'memory': '102400MiB', 'cores': ['2,6', '3,7']},
            ],
            found['numa'],
        )

    def test_memory_that_was_added_later_counts(self):
        kernel = Kernel(self.useFixture(fixtures.TempDir()).path)
        kernel.add_node(0, '0-1', {0: '0', 1: '1'}, 8 * 1024**2)
        kernel.write('proc/meminfo', 'MemTotal:  25165824 kB\nMemFree: 1 kB\n')
        host = facts.Host(kernel.root)
        (node,) = host.numa_nodes()
        self.assertEqual({'node': 0, 'memory': '24576MiB', 'cores': ['0', '1']}, node)
        self.assertEqual(8192, host.counted_memory_mib())

    def test_kernel_without_numa(self):
        kernel = Kernel(self.useFixture(fixtures.TempDir()).path)
        kernel.write('sys/devices/system/cpu/online', '0-1\n')
        kernel.write('proc/meminfo', 'MemTotal:  2097152 kB\nMemFree: 1 kB\n')
        host = facts.Host(kernel.root)
        (node,) = host.numa_nodes()
        self.assertEqual({'node': 0, 'memory': '2048MiB', 'cores': ['0', '1']}, node)
        self.assertEqual(2048, host.counted_memory_mib())

    def test_disks_with_lasting_names(self):
        self.assertEqual(
            [
                {
                    'path': f'/dev/disk/by-id/nvme-MODEL_{name}',
                    'class': 'nvme',
                    'size': '3840GB',
                    'numa_node': node,
                }
                for name, node in (('A1', 0), ('B2', 1))
            ],
            self._describe()['data_devices'],
        )

    def test_disks_with_the_content_of_others_are_left_out(self):
        """The kernel shows no user of a file system or volume group that is not in use now."""
        for number, (name, content) in enumerate(
            (('sda', 'xfs'), ('sdb', 'LVM2_member'), ('sdc', 'ceph_bluestore'), ('sdd', 'swap'))
        ):
            self.kernel.add_disk(name, 480)
            self.kernel.write(f'sys/block/{name}/dev', f'8:{16 * number}\n')
            self.kernel.write(
                f'run/udev/data/b8:{16 * number}', f'S:disk\nE:ID_FS_TYPE={content}\n'
            )
        self.assertEqual(['/dev/sdc'], self._added())
        # A volume group in use is Ceph's by its name.
        self.kernel.write('sys/block/sdb/holders/dm-0/dm/name', 'ceph--1f2e-osd--block--3\n')
        self.assertEqual(['/dev/sdb', '/dev/sdc'], self._added())

    def test_swap_is_left_out(self):
        self.kernel.add_disk('sda', 480)
        self.assertEqual(['/dev/sda'], self._added())
        self.kernel.write(
            'proc/swaps', 'Filename Type Size Used Priority\n/dev/sda partition 9 0 -2\n'
        )
        self.assertEqual([], self._added())

    def test_disks_of_other_machines_are_left_out(self):
        for name, target in (
            ('sda', 'platform/host7/session2/target7:0:0/7:0:0:1'),
            ('sdb', 'pci/host8/rport-8:0-3/target8:0:0/8:0:0:1'),
            ('sdc', 'pci/host9/port-9:0/end_device-9:0/target9:0:0/9:0:0:1'),
        ):
            self.kernel.add_disk(name, 480)
            (self.kernel.root / f'sys/block/{name}/device').unlink()
            self.kernel.link(f'sys/block/{name}/device', f'sys/devices/{target}')
        self.assertEqual(['/dev/sdc'], self._added())
        for name, transport in (('nvme2n1', 'tcp'), ('nvme3n1', 'pcie')):
            self.kernel.add_disk(name, 480)
            self.kernel.write(f'sys/block/{name}/device/transport', f'{transport}\n')
        self.assertEqual(['/dev/nvme3n1', '/dev/sdc'], self._added())

    def _added(self):
        """Return the disks for data beside the two of each test."""
        found = [one['path'] for one in self._describe()['data_devices']]
        return [one for one in found if 'MODEL' not in one]

    def test_the_order_of_disks_survives_a_reboot(self):
        kernel = Kernel(self.useFixture(fixtures.TempDir()).path)
        kernel.add_node(0, '0-1', {0: '0', 1: '1'}, 8 * 1024**2)
        kernel.write('proc/meminfo', 'MemTotal:  8388608 kB\n')
        kernel.add_interface('bond0')
        for name, size_gb, rotational in (
            ('sda', 8000, 1),
            ('sdb', 8000, 1),
            ('sdc', 480, 0),
            ('sdd', 480, 0),
        ):
            # The serial numbers are in the opposite order of the names.
            link = f'ata-MODEL_{9 - ord(name[-1]) + ord("a")}'
            kernel.add_disk(name, size_gb, rotational=rotational, link=link)
        found = facts.describe(facts.Host(kernel.root), {'bond0': {'public'}})
        links = [[one['path'][-1] for one in found[key]] for key in ('data_devices', 'db_devices')]
        self.assertEqual([['8', '9'], ['6', '7']], links)

    def test_disks_in_use_are_left_out(self):
        self.kernel.add_disk('sda', 480)
        self.kernel.write('sys/block/sda/sda1/partition', '1\n')
        self.kernel.add_disk('sdb', 480)
        self.kernel.write('proc/mounts', '/dev/sdb /srv xfs rw 0 0\n')
        self.kernel.add_disk('sdc', 480)
        self.kernel.write('sys/block/sdc/holders/dm-0/dm/name', 'vg-root\n')
        self.kernel.add_disk('sdd', 4)
        self.kernel.add_disk('sde', 480)
        self.kernel.write('sys/block/sde/removable', '1\n')
        self.assertEqual(2, len(self._describe()['data_devices']))

    def test_paths_of_a_multipath_device_are_no_disks(self):
        """The kernel shows such an NVMe device as a head that has no hardware of its own."""
        self.kernel.add_disk('nvme2n1', 3840, link='nvme-MODEL_C3')
        (self.kernel.root / 'sys/block/nvme2n1/device').unlink()
        subsystem = 'sys/devices/virtual/nvme-subsystem/nvme-subsys2'
        self.kernel.link('sys/block/nvme2n1/device', subsystem)
        for controller in ('nvme2', 'nvme3'):
            path = f'nvme2c{controller[-1]}n1'
            self.kernel.add_disk(path, 3840, node=1)
            self.kernel.write(f'sys/block/{path}/hidden', '1\n')
            self.kernel.write(f'sys/devices/pci/{controller}/numa_node', '1\n')
            self.kernel.link(f'{subsystem}/{controller}', f'sys/devices/pci/{controller}')
        found = self._describe()['data_devices']
        self.assertEqual(['A1', 'B2', 'C3'], [one['path'][-2:] for one in found])
        self.assertEqual([0, 1, 1], [one['numa_node'] for one in found])
        # The paths are to different nodes.
        self.kernel.write('sys/devices/pci/nvme3/numa_node', '0\n')
        self.assertNotIn('numa_node', self._describe()['data_devices'][2])

    def test_disks_of_ceph_are_found_again(self):
        self.kernel.write('sys/block/nvme0n1/holders/dm-1/dm/name', 'ceph--1f2e-osd--block--3\n')
        self.assertEqual(2, len(self._describe()['data_devices']))

    def test_flash_beside_disks_is_for_db(self):
        self.kernel.add_disk('sda', 8000, rotational=1)
        found = self._describe()
        self.assertEqual(['hdd'], [one['class'] for one in found['data_devices']])
        self.assertEqual(['nvme', 'nvme'], [one['class'] for one in found['db_devices']])

    def test_disks_by_name(self):
        found = self._describe(data_devices=['/dev/nvme1n1'], db_devices=['/dev/nvme0n1'])
        self.assertEqual(['/dev/nvme1n1'], [one['path'] for one in found['data_devices']])
        self.assertEqual(['/dev/nvme0n1'], [one['path'] for one in found['db_devices']])
        error = self.assertRaises(
            facts.NotDescribedError, self._describe, data_devices=['/dev/nope']
        )
        self.assertIn('/dev/nope is not a disk; the host has nvme0n1, nvme1n1', str(error))

    def test_no_disk(self):
        self.kernel.write('proc/mounts', '/dev/nvme0n1 / xfs\n/dev/nvme1n1 /srv xfs\n')
        error = self.assertRaises(facts.NotDescribedError, self._describe)
        self.assertIn('hci_data_devices', str(error))

    def test_bond_below_bridge(self):
        self.kernel.stack('bond0.7', 'bond0')
        self.kernel.stack('br-ex', 'bond0.7')
        found = self._describe({'br-ex': {'guests'}, 'bond0': {'public'}})
        self.assertEqual(
            [
                {
                    'name': 'bond0',
                    'networks': ['guests', 'public'],
                    'speed': '25000Mbit',
                    'numa_node': 0,
                }
            ],
            found['nics'],
        )

    def test_bond_across_nodes_has_none(self):
        self.kernel.write('sys/devices/pci/eth1/numa_node', '1\n')
        self.assertNotIn('numa_node', self._describe()['nics'][0])

    def test_networks_by_address(self):
        addresses = [
            {'ifname': 'bond0', 'addr_info': [{'local': '192.0.2.7'}, {'local': '2001:db8::7'}]},
            {'ifname': 'bond1', 'addr_info': [{'local': '198.51.100.7'}]},
        ]
        networks = {'public': '192.0.2.0/24', 'cluster': '198.51.100.0/24', 'guests': 'bond0'}
        self.assertEqual(
            {'bond0': {'public', 'guests'}, 'bond1': {'cluster'}},
            facts.carried_networks(addresses, networks),
        )
        error = self.assertRaises(
            facts.NotDescribedError, facts.carried_networks, addresses, {'public': '203.0.113.0/24'}
        )
        self.assertIn('no interface has an address in 203.0.113.0/24 (public)', str(error))


class PlaybookTestCase(base.BaseTestCase):
    """The playbook on this machine, with the files of another kernel."""

    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        two_nodes(self.directory / 'root')
        self.file = self.directory / 'hci.yaml'

    def _run(self, example=None, **changes):
        example = _example() if example is None else example
        given = {
            'hci_file': str(self.file),
            'hci_root': str(self.directory / 'root'),
            'hci_networks': {'public': 'bond0', 'cluster': 'bond0'},
            'hci_rack': 'a1',
            'ansible_connection': 'local',
            'ansible_python_interpreter': sys.executable,
        }
        (self.directory / 'example.yml').write_text(example)
        (self.directory / 'vars.yml').write_text(yaml.safe_dump(given | changes))
        variables = ['-e', '@example.yml', '-e', '@vars.yml']
        program = Path(sys.executable).with_name('ansible-playbook')
        return subprocess.run(
            [program, '-i', 'hci-1,', ANSIBLE / 'hci-facts.yml', *variables],
            cwd=self.directory,
            env=os.environ | {'HOME': str(self.directory), 'ANSIBLE_NOCOLOR': '1'},
            capture_output=True,
            text=True,
            check=False,
        )

    def test_file_is_read_by_the_plan(self):
        done = self._run()
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        content = hosts_file.load(str(self.file))
        (host,) = content.inventory.hosts
        self.assertEqual(('hci-1', 'a1', 200 * 1024), (host.name, host.rack, host.memory_mib))
        self.assertEqual(((0, 4), (1, 5)), host.numa_nodes[0].cores)
        self.assertEqual([DeviceClass.NVME] * 2, [one.device_class for one in host.data_devices])
        self.assertEqual({Network.PUBLIC, Network.CLUSTER}, host.nics[0].networks)
        self.assertIsNotNone(host.local_disk_bytes)
        self.assertTrue(planning.plan(*content).derivations)

        before = self.file.read_text()
        again = self._run()
        self.assertIn('changed=0', again.stdout)
        self.assertEqual(before, self.file.read_text())

    def test_nothing_is_written_for_a_host_that_cannot_be_described(self):
        done = self._run(hci_networks={'public': 'bond9'})
        self.assertNotEqual(0, done.returncode)
        self.assertIn('there is no network interface bond9', done.stdout)
        self.assertFalse(self.file.exists())

    def test_says_what_is_missing(self):
        for example in ('{}', _example().replace('"on"', 'on')):
            done = self._run(example)
            self.assertNotEqual(0, done.returncode)
            self.assertIn('Give hci_file, hci_networks and hci_workload', done.stdout)
            self.assertFalse(self.file.exists())
