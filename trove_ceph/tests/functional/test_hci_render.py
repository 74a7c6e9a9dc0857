# SPDX-License-Identifier: Apache-2.0
"""What is rendered for hyper-converged hosts, read by the tools that it is for."""

import os
import shlex
import subprocess
from pathlib import Path

import fixtures
import rados
from oslotest import base

from trove_ceph.hci import host_settings
from trove_ceph.hci.host_settings import Area
from trove_ceph.tests.unit.hci import deployment

ETC = 'hosts/hci-1/etc'
#: The distribution builds Ceph's modules for its own interpreter.
SYSTEM_PYTHON = '/usr/bin/python3'
READ_SPECS = """\
import sys
import yaml
from ceph.deployment.service_spec import ServiceSpec
for content in yaml.safe_load_all(sys.stdin):
    spec = ServiceSpec.from_json(content)
    spec.validate()
    print(spec.service_name(), *(one.path for one in spec.data_devices.paths))
"""
#: Reads the rules of a directory as the daemon does, with no others of this machine in ``/run``.
READ_RULES = """\
set -e
mount -t tmpfs none /run
mkdir -p /run/udev/rules.d
cp "$1" /run/udev/rules.d/
exec udevadm --debug test --action=add /sys/class/mem/null
"""


def run(*words, **options):
    """Run a program; return what it prints to both outputs."""
    done = subprocess.run(
        words,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    return done.stdout


class RenderTestCase(base.BaseTestCase):
    """The files of two deployments: flash, and disks that turn."""

    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.deployments = [
            deployment.make(huge_pages=True),
            deployment.make(deployment.disks(), huge_pages=True),
        ]

    def _texts(self, name):
        return [deployment.rendered(one)[name] for one in self.deployments]

    def _file(self, name):
        path = self.directory / Path(name).name
        path.write_text(self._texts(name)[0])
        return path

    def test_ceph_knows_each_option_and_value(self):
        for text in self._texts('ceph/config.sh'):
            commands = [shlex.split(one) for one in text.splitlines() if one.startswith('ceph ')]
            self.assertTrue(commands)
            for *_, name, value in commands:
                client = rados.Rados(conffile=os.devnull)
                client.conf_set(name, value)
                self.assertNotEqual('', client.conf_get(name), name)

    def test_ceph_knows_what_the_table_drops(self):
        client = rados.Rados(conffile=os.devnull)
        for one in host_settings.load():
            if one.area is Area.CEPH:
                for name in one.name.split(', '):
                    self.assertIsNotNone(client.conf_get(name), name)

    def test_cephadm_reads_the_specification(self):
        for made in self.deployments:
            texts = deployment.rendered(made)
            for host in made.inventory.hosts:
                text = texts[f'ceph/osds/{host.name}.yaml']
                read = run(SYSTEM_PYTHON, '-c', READ_SPECS, input=text)
                for device in host.data_devices:
                    self.assertIn(device.path, read)
                self.assertIn(f'osd.hci-{host.name}', read)

    def test_kernel_knows_each_key(self):
        path = self._file(f'{ETC}/sysctl.d/90-trove-ceph-hci.conf')
        read = run('sysctl', '--dry-run', '-p', path)
        self.assertIn('net.ipv4.tcp_rmem = 4096 131072 33554432', read)
        names = [line.split(' = ')[0] for line in read.splitlines()]
        self.assertEqual(len(names), len(run('sysctl', '-n', *names).splitlines()))

    def test_udev_reads_the_rules(self):
        name = f'{ETC}/udev/rules.d/90-trove-ceph-hci.rules'
        for text in self._texts(name):
            path = self.directory / Path(name).name
            path.write_text(text)
            read = run('unshare', '--mount', 'sh', '-c', READ_RULES, 'sh', path)
            self.assertIn(path.name, read)
            self.assertEqual([], [line for line in read.splitlines() if f'{path.name}:' in line])

    def test_udev_complains_of_a_wrong_rule(self):
        path = self.directory / '90-trove-ceph-hci.rules'
        path.write_text('KERNEL=="sda", NOSUCHKEY=="1"\n')
        read = run('unshare', '--mount', 'sh', '-c', READ_RULES, 'sh', path)
        self.assertIn(f'{path.name}:1', read)

    def test_systemd_writes_the_huge_pages(self):
        path = self._file(f'{ETC}/tmpfiles.d/trove-ceph-hci.conf')
        nodes = self.deployments[0].plan.hosts[0].nodes
        written = {}
        for node in nodes:
            place = self.directory / (
                f'root/sys/devices/system/node/node{node.number}/hugepages/'
                f'hugepages-{node.huge_page_kib}kB/nr_hugepages'
            )
            place.parent.mkdir(parents=True)
            place.touch()
            written[place] = str(node.huge_pages)
        run('systemd-tmpfiles', '--create', f'--root={self.directory}/root', path)
        self.assertEqual(written, {place: place.read_text().strip() for place in written})
