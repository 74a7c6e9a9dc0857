# SPDX-License-Identifier: Apache-2.0
"""Bad input: the message names the variable or the file, and nothing half-made stays enabled."""

from trove_ceph.tests.unit.devstack import SERVICES, STACK, DevStackTestCase


class LocalConfTest(DevStackTestCase):
    """Refused before anything is installed."""

    def _refused(self, *words, **variables):
        self.local_conf |= variables
        message = self.refused('pre-install')
        for word in words:
            self.assertIn(word, message)
        self.assertFalse(self.conf.exists())

    def test_wrong_order(self):
        plugins = ',devstack-plugin-ceph,trove-tempest-plugin,trove-ceph,trove'
        self._refused('DEVSTACK_PLUGINS', 'then trove, then trove-ceph', DEVSTACK_PLUGINS=plugins)

    def test_missing_plugin(self):
        self._refused('enable_plugin devstack-plugin-ceph', DEVSTACK_PLUGINS=',trove,trove-ceph')

    def test_missing_service(self):
        for service in SERVICES.split(','):
            if service == 'tempest':
                continue
            services = ','.join(one for one in SERVICES.split(',') if one != service)
            self._refused(
                f'enable_service {service}', 'ENABLED_SERVICES', ENABLED_SERVICES=services
            )

    def test_disabled_service(self):
        self._refused('disable_service trove-ceph-storage', DISABLED_SERVICES='trove-ceph-storage')

    def test_plugin_of_tempest_is_needed_even_without_tempest(self):
        (self.root / 'opt/trove-tempest-plugin').rmdir()
        for services in (SERVICES, SERVICES.replace(',tempest', '')):
            self._refused('enable_plugin trove-tempest-plugin', ENABLED_SERVICES=services)
        self.assertNotIn('disable_service', self.refused('pre-install'))

    def test_tiers(self):
        for tiers, word in (
            ('nvme', 'NAME:PURPOSE:DEVICE_CLASS:COPIES'),
            ('a:data:any:0', 'a:data:any:0'),
            ('a:data:any:2 a:vault:any:2', 'two tiers a'),
            ('a:vault:any:2', 'no tier with the purpose data'),
        ):
            self._refused('TROVE_CEPH_TIERS', word, TROVE_CEPH_TIERS=tiers)

    def test_promises(self):
        for promises in ('rbd:1:2', 'other:1:2:3'):
            self._refused('TROVE_CEPH_PROMISES', promises, TROVE_CEPH_PROMISES=promises)

    def test_back_ends(self):
        self._refused('CINDER_ENABLED_BACKENDS', CINDER_ENABLED_BACKENDS='trove_ceph:rbd')

    def test_values(self):
        for name, value in (
            ('TROVE_CEPH_QUIESCE', 'deep'),
            ('TROVE_CEPH_VHOST', 'trove'),
            ('TROVE_CEPH_MYSQL_IMAGE', '/nonexistent.tar'),
            ('ENABLE_CEPH_CINDER', 'False'),
            ('ENABLE_CEPH_NOVA', 'False'),
            ('GLOBAL_VENV', 'False'),
        ):
            kept = dict(self.local_conf)
            self._refused(name, **{name: value})
            self.local_conf = kept

    def test_distribution(self):
        self._refused('Debian', HOST_PACKAGES='rpm')

    def test_no_mirror_on_ubuntu(self):
        self._refused('TROVE_CEPH_DEBIAN_MIRROR', HOST_VENDOR='Ubuntu')
        self._refused(
            'TROVE_CEPH_QUIESCE',
            TROVE_CEPH_DEBIAN_MIRROR='http://mirror.example.org/debian',
            TROVE_CEPH_QUIESCE='deep',
        )

    def test_half_finished_stack(self):
        self._refused('./unstack.sh', 'devstack@trove-ceph-storage.service', STILL_RUNS='yes')


class StackTest(DevStackTestCase):
    """Refused on the way: the storage service is stopped, and Trove keeps its own manager."""

    def _refused(self, *words, **arguments):
        message = self.refused(*STACK, **arguments)
        for word in words:
            self.assertIn(word, message)
        *_, stopped, last = [
            one for one in self.calls() if one.startswith(('run_', 'stop_', 'die '))
        ]
        self.assertEqual('stop_process trove-ceph-storage', stopped)
        self.assertStartsWith(last, 'die ')
        trove_conf = self.root / 'etc/trove/trove.conf'
        self.assertIn('= trove.taskmanager.manager.Manager', trove_conf.read_text())
        self.assertEqual([], [one for one in self.calls() if one.startswith('restart_')])

    def assertStartsWith(self, text, start):
        self.assertEqual(start, text[: len(start)])

    def test_trove_outside_the_window(self):
        message = self.refused('pre-install', 'install', fails=['installed_version.py'])
        self.assertIn('enable_plugin trove URL BRANCH', message)
        self.assertIn('trove>=', message)
        self.assertIn(',>=26', message)
        self.assertEqual([], [one for one in self.calls() if one.startswith('setup_develop')])

    def test_no_configuration_of_ceph(self):
        (self.root / 'etc/ceph/ceph.conf').unlink()
        self._refused('etc/ceph/ceph.conf is missing', 'REMOTE_CEPH')

    def test_no_key(self):
        (self.root / 'etc/ceph/ceph.client.admin.keyring').unlink()
        self._refused('ceph.client.admin.keyring is missing', 'TROVE_CEPH_ADMIN_USER')

    def test_silent_ceph(self):
        self._refused('Ceph does not answer', 'ceph.client.admin.keyring', fails=['ceph'])

    def test_old_ceph(self):
        self.local_conf['CEPH_VERSION'] = '15.2.17'
        self._refused('15.2.17', '16.2', 'CONTAINER_IMAGE')

    def test_tiers_that_do_not_fit(self):
        self._refused('TROVE_CEPH_TIERS', fails=['trove-ceph-manage-tiers'])

    def test_keyring_that_ceph_does_not_give(self):
        self._refused('Ceph has no user client.trove-ceph-storage', fails=['ceph-auth-get'])
        self.assertEqual([], list(self.root.rglob('*storage.keyring*')))

    def test_unreachable_vhost(self):
        self._refused('virtual host', 'TROVE_CEPH_TROVE_VHOST', fails=['check_login.py'])

    def test_database(self):
        self._refused('[database]', 'trove.conf', fails=['trove-ceph-manage-db'])

    def test_image(self):
        self._refused('TROVE_CEPH_DEBIAN_MIRROR', fails=['images-build-guest'])

    def test_inspections(self):
        self._refused('the MySQL for inspections', fails=['images-build-mysql-rootfs'])

    def test_wheel(self):
        self._refused('the guest image was not built', fails=['pip-wheel'])

    def test_registration(self):
        self._refused('GLANCE_LIMIT_IMAGE_SIZE_TOTAL', fails=['register_datastore.py'])

    def test_silent_storage_service(self):
        self._refused('trove-ceph-storage.conf', fails=['trove-ceph-manage-storage-status'])
