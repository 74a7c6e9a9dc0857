# SPDX-License-Identifier: Apache-2.0
"""The sources of settings, and invalid ones."""

import shutil
from pathlib import Path

import fixtures
from driver import settings
from driver.errors import LabError
from oslotest import base

from trove_ceph.tests.unit.lab import LAB


class SettingsTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        shutil.copy(LAB / 'lab.toml', self.directory)

    def _load(self, local='', **environ):
        if local:
            (self.directory / 'local.toml').write_text(local)
        prefixed = {settings.PREFIX + key: value for key, value in environ.items()}
        return settings.load(self.directory, {'PATH': '/bin'} | prefixed)

    def _refused(self, local='', **environ):
        return str(self.assertRaises(LabError, self._load, local, **environ))


class MergeTest(SettingsTestCase):
    def test_defaults_are_valid(self):
        loaded = self._load()
        self.assertEqual(Path('/opt/trove-ceph-lab'), loaded.root)
        self.assertEqual(5000, loaded.ports['keystone'])

    def test_local_file_overrides_keys_one_by_one(self):
        loaded = self._load('volume_gib = 7\n[ports]\nnova = 18774\n')
        self.assertEqual(7, loaded.values['volume_gib'])
        self.assertEqual((18774, 5000), (loaded.ports['nova'], loaded.ports['keystone']))

    def test_environment_overrides_the_local_file(self):
        loaded = self._load(
            'volume_gib = 7\n[ports]\nnova = 18774\n',
            VOLUME_GIB='9',
            PORTS_NOVA='28774',
            ROOT='/srv/lab',
        )
        self.assertEqual(9, loaded.values['volume_gib'])
        self.assertEqual(28774, loaded.ports['nova'])
        self.assertEqual(Path('/srv/lab'), loaded.root)

    def test_ignores_foreign_variables(self):
        loaded = settings.load(self.directory, {'TROVE_CEPH_CONSTRAINTS': '/x', 'ROOT': '/y'})
        self.assertEqual(Path('/opt/trove-ceph-lab'), loaded.root)

    def test_variables_of_the_playbook(self):
        variables = self._load(MANAGEMENT_CIDR='10.9.0.0/24').playbook_vars()
        self.assertEqual('10.9.0.1', variables['lab_host_ip'])
        self.assertEqual('10.21.0.1', variables['lab_public_ip'])
        self.assertEqual(3300, variables['lab_ports']['ceph_mon_v2'])
        self.assertEqual(set(), {name for name in variables if not name.startswith('lab_')})

    def test_number_of_volume_services(self):
        loaded = self._load(CINDER_VOLUME_SERVICES='2')
        self.assertEqual(2, loaded.playbook_vars()['lab_cinder_volume_services'])
        self.assertIn('must be 1 to 3', self._refused(CINDER_VOLUME_SERVICES='0'))

    def test_second_compute_host_is_off_unless_it_is_set(self):
        self.assertEqual(0, self._load().playbook_vars()['lab_second_compute'])
        self.assertEqual(1, self._load(SECOND_COMPUTE='1').playbook_vars()['lab_second_compute'])

    def test_mark_file_is_in_the_root(self):
        self.assertEqual(Path('/srv/lab/.trove-ceph-lab'), self._load(ROOT='/srv/lab').mark)

    def test_normalises_paths(self):
        # The lab's processes are recognised by it.
        loaded = self._load(ROOT='/srv//lab/', CACHE='/srv/cache/')
        self.assertEqual('/srv/lab', loaded.playbook_vars()['lab_root'])
        self.assertEqual('/srv/cache', loaded.playbook_vars()['lab_cache'])


class UnknownKeyTest(SettingsTestCase):
    def test_suggests_a_name_for_the_local_file(self):
        message = self._refused('volum_gib = 3\n')
        self.assertIn(
            'local.toml: there is no setting volum_gib; did you mean volume_gib?', message
        )

    def test_suggests_a_short_name_in_a_table(self):
        message = self._refused('[ports]\nnva = 1\n')
        self.assertIn('there is no setting ports.nva; did you mean ports.nova?', message)

    def test_suggests_a_name_for_the_environment(self):
        message = self._refused(PORTS_KEYSTON='1')
        self.assertIn('did you mean TROVE_CEPH_LAB_PORTS_KEYSTONE?', message)

    def test_suggests_nothing_without_a_close_match(self):
        # The common prefix of all variables must not cause a match.
        for message in (self._refused(XYZZY='1'), self._refused('xyzzy = 1\n')):
            self.assertNotIn('did you mean', message)
            self.assertIn('. The settings and their meaning', message)


class WrongValueTest(SettingsTestCase):
    def test_refuses_values_of_the_wrong_type(self):
        self.assertIn('VOLUME_GIB: a whole number is needed', self._refused(VOLUME_GIB='big'))
        self.assertIn('osd_gib: a int is needed', self._refused('osd_gib = 4.5\n'))
        self.assertIn('osd_gib: a int is needed', self._refused('osd_gib = true\n'))
        self.assertIn('ports: a table is needed', self._refused('ports = 3\n'))
        self.assertIn('root: a str is needed', self._refused('[root]\na = 1\n'))

    def test_error_names_the_table_of_a_wrong_value(self):
        self.assertIn('ports.nova: a whole number', self._refused('[ports]\nnova = "x"\n'))

    def test_error_of_invalid_toml_names_the_file(self):
        message = self._refused('volume_gib = = 3\n')
        self.assertIn('local.toml: not valid TOML', message)

    def test_bounds_are_inclusive(self):
        self.assertEqual(16, self._load(OSDS_NVME='16').values['osds_nvme'])
        self.assertEqual('osds_nvme: must be 1 to 16, got 17', self._refused(OSDS_NVME='17'))
        self.assertEqual('osds_hdd: must be 1 to 16, got 0', self._refused(OSDS_HDD='0'))

    def test_the_slow_class_is_opt_in(self):
        self.assertEqual(0, self._load().values['hdd_iops'])
        self.assertEqual(150, self._load(HDD_IOPS='150').values['hdd_iops'])

    def test_refuses_paths_that_must_not_be_removed(self):
        # Cleaning removes the directory and all below it.
        for path in ('/', '/opt', 'relative/path', '', '/opt/..', '/opt/lab/../..'):
            self.assertIn('root: an absolute path', self._refused(ROOT=path), path)

    def test_refuses_unknown_choices(self):
        self.assertIn("got 'xen'", self._refused(VIRT_TYPE='xen'))
        self.assertIn("got 'always'", self._refused(QUIESCE='always'))
        self.assertEqual(
            "backups: one of stock, trove_ceph is needed, got 'swift'",
            self._refused('backups = "swift"\n'),
        )

    def test_image_and_version_belong_together(self):
        archive = self.directory / 'mysql.tar'
        self.assertIn('belong together', self._refused(MYSQL_VERSION='8.4.0'))
        self.assertIn('belong together', self._refused(MYSQL_IMAGE=str(archive)))
        both = {'MYSQL_VERSION': '8.4.0', 'MYSQL_IMAGE': str(archive)}
        self.assertIn(f'there is no file {archive}', self._refused(**both))
        archive.touch()
        self.assertEqual('8.4.0', self._load(**both).values['mysql_version'])


class NetworkTest(SettingsTestCase):
    def test_refuses_overlapping_networks(self):
        self.assertEqual(
            'public_cidr 10.20.0.128/25 overlaps management_cidr 10.20.0.0/24',
            self._refused(PUBLIC_CIDR='10.20.0.128/25'),
        )
        self.assertIn(
            'tenant_cidr 10.20.0.0/16 overlaps management_cidr',
            self._refused(TENANT_CIDR='10.20.0.0/16'),
        )

    def test_refuses_an_invalid_network(self):
        self.assertIn('tenant_cidr: ', self._refused(TENANT_CIDR='10.22.0.1/24'))
        self.assertIn('tenant_cidr: ', self._refused(TENANT_CIDR='fd00::/64'))
        self.assertIn('/16 to /26', self._refused(TENANT_CIDR='10.22.0.0/27'))
        self.assertIn('/16 to /26', self._refused(TENANT_CIDR='10.0.0.0/8'))


class PortTest(SettingsTestCase):
    def test_refuses_duplicate_ports(self):
        self.assertEqual(
            'ports.nova and ports.keystone are both 5000', self._refused(PORTS_NOVA='5000')
        )

    def test_refuses_ports_out_of_range(self):
        self.assertIn('ports.nova: must be 1 to 65535', self._refused(PORTS_NOVA='0'))
        self.assertIn('ports.nova: must be 1 to 65535', self._refused(PORTS_NOVA='65536'))
