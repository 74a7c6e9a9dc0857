# SPDX-License-Identifier: Apache-2.0
"""Limits of a device: the files of both versions of control groups, and the lab's programs."""

import os
import re
from pathlib import Path

import fixtures
import jinja2.nativetypes
import yaml
from oslotest import base

from cephcluster import throttle
from cephcluster.errors import UsageError
from trove_ceph.tests.unit.lab import test_cephcluster_host

ROLE = Path(__file__).resolve().parents[4] / 'lab' / 'roles' / 'ceph'
#: /dev/null has this number on each Linux.
DEVICE, NUMBER = '/dev/null', '1:3'


class ThrottleTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.root = Path(self.useFixture(fixtures.TempDir()).path)
        self.settings = test_cephcluster_host.settings('/r')

    def limit(self, iops=150):
        throttle.limit(self.settings, 'osd.1', DEVICE, iops, self.root)

    def files(self, group):
        return {path.name: path.read_text() for path in group.iterdir()}

    def test_version_1(self):
        (self.root / 'blkio').mkdir()
        self.limit()
        self.assertEqual(
            {
                'blkio.throttle.read_iops_device': f'{NUMBER} 150',
                'blkio.throttle.write_iops_device': f'{NUMBER} 150',
                'cgroup.procs': str(os.getpid()),
            },
            self.files(self.root / 'blkio' / 'ceph-cluster-f-osd.1'),
        )

    def test_version_2(self):
        (self.root / 'cgroup.controllers').write_text('cpu io memory')
        self.limit()
        self.assertEqual('+io', (self.root / 'cgroup.subtree_control').read_text())
        self.assertEqual(
            {'io.max': f'{NUMBER} riops=150 wiops=150', 'cgroup.procs': str(os.getpid())},
            self.files(self.root / 'ceph-cluster-f-osd.1'),
        )

    def test_a_new_limit_replaces_the_old_one(self):
        (self.root / 'blkio').mkdir()
        self.limit()
        self.limit(90)
        group = self.root / 'blkio' / 'ceph-cluster-f-osd.1'
        self.assertEqual(f'{NUMBER} 90', self.files(group)['blkio.throttle.read_iops_device'])

    def test_a_machine_without_the_controller(self):
        error = self.assertRaises(UsageError, self.limit)
        self.assertIn('cannot limit the device of osd.1 to 150', str(error))
        self.assertIn('without --device-iops', str(error))

    def test_removal_of_the_group(self):
        group = self.root / 'blkio' / 'ceph-cluster-f-osd.1'
        group.mkdir(parents=True)
        for _ in range(2):
            throttle.ensure_no_limit(self.settings, 'osd.1', self.root)
            self.assertFalse(group.exists())


class ProgramsTest(base.BaseTestCase):
    """The programs of the role, rendered as the playbook does."""

    def render(self, **variables):
        environment = jinja2.nativetypes.NativeEnvironment(undefined=jinja2.StrictUndefined)
        environment.filters['regex_replace'] = lambda text, *pair: re.sub(*pair, str(text))
        values = {
            'ceph_conf': '/etc/ceph.conf',
            'state': '/s',
            'playbook_dir': '/p',
            'hci_profile': {},
        } | variables
        for name, template in yaml.safe_load((ROLE / 'vars' / 'main.yml').read_text()).items():
            values[name] = environment.from_string(template).render(values)
        return {one['name']: one['command'] for one in values['ceph_programs']}

    def limited(self, **variables):
        commands = self.render(lab_osds_nvme=2, lab_osds_hdd=3, **variables)
        self.assertEqual(2 + 5, len(commands))
        return {name for name, command in commands.items() if '--device-iops' in command}

    def test_only_the_disks_are_limited(self):
        self.assertEqual({'ceph-osd.2', 'ceph-osd.3', 'ceph-osd.4'}, self.limited(lab_hdd_iops=150))
        commands = self.render(lab_osds_nvme=1, lab_osds_hdd=1, lab_hdd_iops=150)
        self.assertTrue(commands['ceph-osd.1'].endswith(' run osd.1 --device-iops=150'))
        self.assertTrue(commands['ceph-osd.0'].endswith(' run osd.0'))

    def test_nothing_is_limited_by_default(self):
        self.assertEqual(set(), self.limited(lab_hdd_iops=0))

    def test_profile_of_a_hyper_converged_host(self):
        profile = {'osd_cpus': [0, 2], 'osds': ['osd.0'], 'osd_memory_target_mib': 1564}
        commands = self.render(lab_osds_nvme=1, lab_osds_hdd=1, lab_hdd_iops=0, hci_profile=profile)
        self.assertTrue(
            commands['ceph-osd.0'].endswith(' run osd.0 --cpus=0,2 --memory-target-mib=1564')
        )
        self.assertTrue(commands['ceph-osd.1'].endswith(' run osd.1 --cpus=0,2'))
        self.assertTrue(commands['ceph-mon.a'].endswith(' run mon.a'))
