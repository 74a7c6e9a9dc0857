# SPDX-License-Identifier: Apache-2.0
"""The configuration of a lab with the profile of a hyper-converged host, and without."""

import dataclasses
import os
import subprocess

import jinja2.nativetypes
import yaml
from driver import settings
from driver.errors import LabError
from oslo_config import cfg

from trove_ceph.tests.unit.lab import LAB, test_driver_hci
from trove_ceph.tests.unit.lab.test_backup_settings import SettingsTestCase

_NOVA = {
    'DEFAULT': [['reserved_host_memory_mb', '10752'], ['cpu_allocation_ratio', '5.0']],
    'compute': [['cpu_shared_set', '1']],
    'libvirt': [['rbd_user', 'cinder'], ['disk_cachemodes', 'network=none,file=unsafe']],
}


class NovaTest(SettingsTestCase):
    def nova(self, **variables):
        """Return options as nova-compute reads them from its two files."""
        text = self.render('nova/nova.conf.j2')
        text += self.render('compute/nova-compute.conf.j2', virt_type='qemu', **variables)

        def register(conf):
            names = ('reserved_host_memory_mb', 'cpu_allocation_ratio')
            conf.register_opts([cfg.StrOpt(name) for name in names])
            conf.register_opts([cfg.StrOpt('cpu_shared_set')], group='compute')
            conf.register_opts([cfg.StrOpt('disk_cachemodes')], group='libvirt')

        return self.read(text, register)

    def test_the_profile_comes_after_the_settings_of_the_lab(self):
        conf = self.nova(hci_profile={'nova': _NOVA})
        self.assertEqual(
            ('10752', '5.0'), (conf.reserved_host_memory_mb, conf.cpu_allocation_ratio)
        )
        self.assertEqual('1', conf.compute.cpu_shared_set)
        self.assertEqual('network=none,file=unsafe', conf.libvirt.disk_cachemodes)

    def test_without_a_profile_nothing_changes(self):
        conf = self.nova(hci_profile={})
        self.assertEqual(('512', '16.0'), (conf.reserved_host_memory_mb, conf.cpu_allocation_ratio))
        self.assertIsNone(conf.compute.cpu_shared_set)
        self.assertEqual('network=writeback,file=unsafe', conf.libvirt.disk_cachemodes)


class PlaybookTest(SettingsTestCase):
    def flavors(self, profile):
        (task, *_) = yaml.safe_load((LAB / 'roles/tenant/tasks/main.yml').read_text())
        environment = jinja2.nativetypes.NativeEnvironment(undefined=jinja2.StrictUndefined)
        values = {'lab_flavor_vcpus': 2, 'lab_flavor_ram_mib': 2048, 'hci_profile': profile}

        def resolve(value):
            if isinstance(value, str):
                return environment.from_string(value).render(values)
            if isinstance(value, dict):
                return {key: resolve(each) for key, each in value.items()}
            return [resolve(each) for each in value] if isinstance(value, list) else value

        for name in ('vcpus', 'flavors', 'of_hci'):
            values[name] = resolve(task['vars'][name])
        found = resolve(task['cloud_resources']['resources']['flavors'])
        return {one['name']: one['vcpus'] for one in found}

    def test_no_flavor_has_more_vcpus_than_guests_have_cpus(self):
        databases = ('db.small', 'db.large', 'db.unpooled')
        self.assertEqual({'m1.tiny': 1} | dict.fromkeys(databases, 2), self.flavors({}))
        profile = dataclasses.asdict(test_driver_hci.profile(guest_cpus=[1]))
        self.assertEqual(dict.fromkeys(('m1.tiny', *databases, 'db.hci'), 1), self.flavors(profile))
        profile['guest_cpus'] = [4, 5, 6, 7]
        self.assertEqual(2, self.flavors(profile)['db.hci'])

    def test_the_plan_comes_before_what_it_changes(self):
        (play,) = yaml.safe_load((LAB / 'site.yml').read_text())
        roles = play['roles']
        for role in ('ceph', 'nova', 'tenant', 'compute'):
            self.assertLess(roles.index('hci'), roles.index(role))
        # It runs trove-ceph-manage.
        self.assertGreater(roles.index('hci'), roles.index('python_env'))


class SettingTest(SettingsTestCase):
    def test_the_default_is_decoupled(self):
        self.assertEqual('decoupled', settings.load(environ={}).values['profile'])

    def test_an_unknown_profile_is_refused(self):
        environ = {f'{settings.PREFIX}PROFILE': 'converged'}
        error = self.assertRaises(LabError, settings.load, environ=environ)
        self.assertIn('profile: one of decoupled, hci is needed', str(error))

    def test_make_takes_the_short_name(self):
        for given, expected in ({'LAB_PROFILE': 'hci'}, 'hci'), ({}, ''):
            environ = {key: os.environ[key] for key in ('PATH',)} | given
            done = subprocess.run(
                ['make', '-s', '-f', '-', 'show'],
                input=f'include {LAB.parent}/Makefile\nshow:\n\t@echo "$$TROVE_CEPH_LAB_PROFILE"\n',
                env=environ,
                capture_output=True,
                text=True,
                check=True,
            )
            self.assertEqual(expected, done.stdout.strip())
