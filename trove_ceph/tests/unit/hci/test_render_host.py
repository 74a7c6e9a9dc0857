# SPDX-License-Identifier: Apache-2.0
"""Files for Ceph and for the host itself."""

import configparser
import dataclasses
import os
import re
import shlex
import subprocess
from pathlib import Path

import fixtures
import yaml
from oslotest import base

from trove_ceph.hci import hosts_file, report
from trove_ceph.hci.inventory import Inventory
from trove_ceph.hci.render import tree
from trove_ceph.hci.workload import OsdChoices
from trove_ceph.tests.unit.hci import deployment, sample

ETC = 'hosts/hci-1/etc'
EXAMPLE = Path(__file__).parents[4] / 'etc/trove-ceph/hci.yaml'
#: Answers for ``orch status`` as the client does: it fails where there is no orchestrator.
CEPH = """\
#!/bin/sh
case "$1 $2" in
"orch status")
    [ -n "$BACKEND" ] || exit 2
    echo "Backend: $BACKEND" ;;
*)
    echo "$@" >> "$LOG" ;;
esac
"""
RULE = re.compile(
    r'ACTION=="add\|change", SUBSYSTEM=="block", ENV\{DEVTYPE\}=="disk", '
    r'(KERNEL|SYMLINK)=="([^"]+)", ATTR\{queue/(\w+)\}="([^"]+)"'
)


def lines(text):
    """Return the lines of a file that are no comments."""
    return [line for line in text.splitlines() if line and not line.startswith('#')]


class CephTestCase(base.BaseTestCase):
    """Configuration and specification."""

    def _config(self, made):
        text, _, _ = deployment.rendered(made)['ceph/config.sh'].partition('\nif ')
        words = [shlex.split(line) for line in lines(text)]
        self.assertEqual(['set', '-eu'], words.pop(0))
        self.assertEqual([['ceph', 'config', 'set']] * len(words), [each[:3] for each in words])
        return {(who, name): value for _, _, _, who, name, value in words}

    def test_memory_of_each_host(self):
        made = deployment.make()
        config = self._config(made)
        for profile in made.plan.hosts:
            key = (f'osd/host:{profile.name}', 'osd_memory_target')
            self.assertEqual(str(profile.osd_memory_target_bytes), config[key])
        self.assertEqual('false', config['osd', 'osd_memory_target_autotune'])

    def test_memory_of_a_host_by_its_name_in_crush(self):
        made = deployment.make(Inventory((sample.host('hci-1.example.org'),), 1))
        self.assertIn(('osd/host:hci-1', 'osd_memory_target'), self._config(made))
        [spec, *_] = self._specs(made)
        self.assertEqual(['hci-1.example.org'], spec['placement']['hosts'])

    def _ran(self, made, backend):
        """Run the script with a client of Ceph that notes its commands."""
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        program = directory / 'ceph'
        program.write_text(CEPH)
        program.chmod(0o755)
        text = deployment.rendered(made)['ceph/config.sh']
        path = f'{directory}:{os.environ["PATH"]}'
        log = directory / 'log'
        environment = {'PATH': path, 'BACKEND': backend, 'LOG': str(log)}
        subprocess.run(['sh', '-c', text], env=environment, check=True)
        return log.read_text().splitlines()

    def test_cephadm_leaves_the_memory_of_the_hosts_alone(self):
        """Older releases remove the target of each host that they do not tune by themselves."""
        made = deployment.make(Inventory((sample.host('hci-1.example.org'),), 1))
        label = 'orch host label add hci-1.example.org _no_autotune_memory'
        self.assertEqual(label, self._ran(made, 'cephadm')[-1])
        for backend in ('rook', ''):
            ran = self._ran(made, backend)
            self.assertTrue(ran)
            self.assertEqual([], [one for one in ran if 'label' in one])

    def test_the_profile_of_mclock_has_its_queue(self):
        config = self._config(deployment.make())
        self.assertEqual('high_client_ops', config['osd', 'osd_mclock_profile'])
        self.assertEqual('mclock_scheduler', config['osd', 'osd_op_queue'])

    def test_networks_are_those_of_the_file(self):
        config = self._config(deployment.make())
        self.assertEqual('192.0.2.0/24', config['global', 'public_network'])
        self.assertEqual('198.51.100.0/24', config['global', 'cluster_network'])
        config = self._config(deployment.make(sample.inventory()))
        self.assertNotIn(('global', 'public_network'), config)

    def _specs(self, made):
        texts = deployment.rendered(made)
        names = [f'ceph/osds/{one.name}.yaml' for one in made.plan.hosts]
        self.assertEqual(names, [one for one in texts if one.startswith('ceph/osds')])
        return [spec for name in names for spec in yaml.safe_load_all(texts[name])]

    def test_a_file_has_the_specifications_of_one_host(self):
        """cephadm restarts all OSDs whose arguments change, without waiting for the cluster."""
        text = deployment.rendered(deployment.make())['ceph/osds/hci-2.yaml']
        specs = list(yaml.safe_load_all(text))
        self.assertEqual([['hci-2']], [one['placement']['hosts'] for one in specs])
        head = ' '.join(line.removeprefix('# ') for line in text.splitlines() if line[0] == '#')
        self.assertIn('cephadm restarts the OSDs of these specifications by itself', head)
        self.assertIn('Apply one host at a time', head)
        self.assertIn('osd set-spec-affinity', head)
        self.assertNotIn('redeploy osd', head)

    def test_specification_has_each_device_of_a_host_once(self):
        made = deployment.make(deployment.disks())
        for host, profile in zip(made.inventory.hosts, made.plan.hosts, strict=True):
            specs = [one for one in self._specs(made) if one['placement']['hosts'] == [host.name]]
            data = [path for one in specs for path in one['spec']['data_devices']['paths']]
            self.assertCountEqual([one.path for one in host.data_devices], data)
            db = [path for one in specs for path in one['spec']['db_devices']['paths']]
            self.assertCountEqual([one.path for one in host.db_devices], db)
            self.assertEqual([2, 2], [one['spec']['db_slots'] for one in specs])
            for spec, node in zip(specs, profile.nodes, strict=True):
                cpus = report.cpu_list(node.osd_cpus)
                self.assertEqual([f'--cpuset-cpus={cpus}'], spec['extra_container_args'])

    def test_each_specification_has_its_own_name(self):
        for inventory in (None, deployment.disks()):
            names = [one['service_id'] for one in self._specs(deployment.make(inventory))]
            self.assertEqual(len(names), len(set(names)))

    def _devices(self, host):
        """Return the devices of each specification of a host."""
        specs = self._specs(deployment.make(Inventory((host,), 1)))
        return {
            one['service_id']: {
                path
                for kind in ('data_devices', 'db_devices')
                for path in one['spec'].get(kind, {'paths': []})['paths']
            }
            for one in specs
        }

    def test_names_do_not_depend_on_the_order_of_devices(self):
        """Another order must not give the OSDs of one NUMA node the CPUs of the other one."""
        for host, names in (
            (sample.host(db_devices=()), ['hci-hci-1-numa0', 'hci-hci-1-numa1']),
            (sample.host(), ['hci-hci-1-db-pmem0n1']),
            (deployment.disks().hosts[0], ['hci-hci-1-db-ssd-0n1', 'hci-hci-1-db-ssd-1n1']),
            (
                sample.host(data_devices=sample.devices(on=(1,)), db_devices=()),
                ['hci-hci-1-numa1'],
            ),
        ):
            found = self._devices(host)
            self.assertEqual(names, sorted(found))
            turned = dataclasses.replace(
                host, data_devices=host.data_devices[::-1], db_devices=host.db_devices[::-1]
            )
            self.assertEqual(found, self._devices(turned))

    def test_a_device_for_db_of_two_nodes_is_in_one_specification(self):
        made = deployment.make(huge_pages=True)
        (first, second, *_) = self._specs(made)
        self.assertNotEqual(first['placement'], second['placement'])
        cpus = report.cpu_list(made.plan.hosts[0].osd_cpus)
        self.assertEqual(
            [f'--cpuset-cpus={cpus}', '--cpuset-mems=0-1'], first['extra_container_args']
        )

    def test_memory_of_a_node_with_huge_pages(self):
        made = deployment.make(sample.inventory(db_devices=()), huge_pages=True)
        arguments = [one['extra_container_args'][1] for one in self._specs(made)[:2]]
        self.assertEqual(['--cpuset-mems=0', '--cpuset-mems=1'], arguments)

    def test_a_device_with_osds_on_two_nodes_is_in_one_specification(self):
        inventory = sample.inventory(data_devices=sample.devices(on=(0,)), db_devices=())
        made = deployment.make(inventory, choices=OsdChoices(2, 7))
        nodes = [osd.numa_node for osd in made.plan.hosts[0].osds if 'nvme2' in osd.device]
        self.assertEqual([0, 1], nodes)
        data = [
            (*one['placement']['hosts'], path)
            for one in self._specs(made)
            for path in one['spec']['data_devices']['paths']
        ]
        self.assertEqual(len(data), len(set(data)))
        self.assertEqual(4 * len(made.plan.hosts), len(data))

    def test_without_devices_for_db(self):
        made = deployment.make(sample.inventory(db_devices=()))
        (first, second, *_) = self._specs(made)
        self.assertEqual(first['placement'], second['placement'])
        nodes = made.plan.hosts[0].nodes
        for spec, node in zip((first, second), nodes, strict=True):
            cpus = report.cpu_list(node.osd_cpus)
            self.assertEqual([f'--cpuset-cpus={cpus}'], spec['extra_container_args'])
        self.assertEqual(
            {
                'data_devices': {'paths': ['/dev/nvme0n1', '/dev/nvme1n1']},
                'osds_per_device': 1,
                'crush_device_class': 'nvme',
            },
            first['spec'],
        )


class HostTestCase(base.BaseTestCase):
    """Kernel, devices and TuneD."""

    def test_sysctl(self):
        text = deployment.rendered(deployment.make())[f'{ETC}/sysctl.d/90-trove-ceph-hci.conf']
        values = dict(line.split(' = ') for line in lines(text))
        self.assertEqual('1', values['vm.swappiness'])
        self.assertEqual('10000', values['net.core.netdev_max_backlog'])
        self.assertNotIn('net.core.rmem_max', values)

    def _rules(self, made):
        text = deployment.rendered(made)[f'{ETC}/udev/rules.d/90-trove-ceph-hci.rules']
        found = [RULE.fullmatch(line) for line in lines(text)]
        self.assertNotIn(None, found)
        return {(one[1], one[2], one[3]): one[4] for one in found}

    def test_queues_of_flash(self):
        rules = self._rules(deployment.make())
        self.assertEqual('none', rules['KERNEL', 'nvme0n1', 'scheduler'])
        self.assertEqual('none', rules['KERNEL', 'pmem0n1', 'scheduler'])

    def test_queues_of_disks_that_turn(self):
        rules = self._rules(deployment.make(deployment.disks()))
        self.assertEqual('mq-deadline', rules['SYMLINK', 'disk/by-id/ata-0n1', 'scheduler'])
        self.assertEqual('none', rules['SYMLINK', 'disk/by-id/ssd-1n1', 'scheduler'])
        self.assertEqual('0', rules['SYMLINK', 'disk/by-id/ata-0n1', 'add_random'])

    def test_queues_of_devices_that_the_kernel_numbers(self):
        made = deployment.make(sample.inventory(data_devices=sample.devices(name='/dev/mapper/a')))
        self.assertEqual('none', self._rules(made)['SYMLINK', 'mapper/a0n1', 'scheduler'])

    def test_tuned(self):
        parser = configparser.ConfigParser(delimiters='=', interpolation=None)
        texts = deployment.rendered(deployment.make())
        parser.read_string(texts[f'{ETC}/tuned/trove-ceph-hci/tuned.conf'])
        self.assertEqual('virtual-host', parser['main']['include'])
        self.assertEqual(['main', 'cpu', 'sysctl'], parser.sections())

    def test_huge_pages_on_request_only(self):
        name = f'{ETC}/tmpfiles.d/trove-ceph-hci.conf'
        self.assertNotIn(name, deployment.rendered(deployment.make()))
        made = deployment.make(huge_pages=True)
        written = lines(deployment.rendered(made)[name])
        nodes = made.plan.hosts[0].nodes
        self.assertEqual(
            [
                f'w /sys/devices/system/node/node{node.number}/hugepages/'
                f'hugepages-{node.huge_page_kib}kB/nr_hugepages - - - - {node.huge_pages}'
                for node in nodes
            ],
            written,
        )

    def test_huge_pages_of_all_nodes_on_the_command_line_of_the_kernel(self):
        """A kernel ignores a size that it has had already, and the pages that follow it."""
        made = deployment.make(huge_pages=True)
        text = deployment.rendered(made)[f'{ETC}/tmpfiles.d/trove-ceph-hci.conf']
        size, pages = re.findall(r'(?m)^# hugepagesz=(\d+)K hugepages=([\d:,]+)$', text)[0]
        nodes = made.plan.hosts[0].nodes
        self.assertEqual(2, len(nodes))
        self.assertEqual({int(size)}, {node.huge_page_kib for node in nodes})
        found = [tuple(map(int, one.split(':'))) for one in pages.split(',')]
        self.assertEqual([(node.number, node.huge_pages) for node in nodes], found)
        self.assertEqual(1, text.count('hugepagesz='))

    def test_scripts_are_shell(self):
        scripts = [one for one in tree.files(deployment.make()) if one.is_executable]
        self.assertEqual(7, len(scripts))
        for one in scripts:
            done = subprocess.run(
                ['sh', '-n'], input=one.text, capture_output=True, text=True, check=False
            )
            self.assertEqual((0, ''), (done.returncode, done.stderr), one.path)

    def test_interrupts(self):
        made = deployment.make()
        text = deployment.rendered(made)['hosts/hci-1/set-irq-affinity']
        for one in made.plan.hosts[0].irqs:
            self.assertIn(f'\ngive {one.nic} {report.cpu_list(one.cpus)}\n', text)


class TreeTestCase(base.BaseTestCase):
    """All files together."""

    def test_same_deployment_same_bytes(self):
        self.assertEqual(tree.files(deployment.make()), tree.files(deployment.make()))

    def test_each_file_says_what_made_it(self):
        for one in tree.files(deployment.make(huge_pages=True)):
            head = one.text.splitlines()[:4]
            for line in deployment.HEADER:
                self.assertIn(f'# {line}', head, one.path)

    def test_no_value_is_left_open(self):
        for name, text in deployment.rendered(deployment.make()).items():
            self.assertNotIn('{{', text, name)
            self.assertNotIn('None', text, name)
            self.assertTrue(text.endswith('\n') and not text.endswith('\n\n'), name)

    def test_example_of_the_package(self):
        content = hosts_file.load(str(EXAMPLE))
        self.assertTrue(deployment.rendered(deployment.make(content.inventory, content.workload)))
