# SPDX-License-Identifier: Apache-2.0
"""A stack, a second one, and their end."""

import configparser
import getpass
import json
import re
import stat

from keystoneauth1 import loading
from oslo_config import cfg
from oslo_messaging._drivers import amqp, impl_rabbit
from trove.common import cfg as trove_cfg

from trove_ceph.conf import qos as qos_conf
from trove_ceph.conf import storage as storage_conf
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.conf import verification as verification_conf
from trove_ceph.storage_service import message_keys
from trove_ceph.tests.unit import devstack
from trove_ceph.tests.unit.devstack import CHECKOUT, TIERS, DevStackTestCase
from trove_ceph.tiers import tiers_file
from trove_ceph.tiers.tier_types import Purpose
from trove_ceph.trove_adapter import cinder_client
from trove_ceph_tempest_plugin import config as tempest_conf
from trove_ceph_tempest_plugin import placement


def _ini(path):
    parser = configparser.ConfigParser(interpolation=None, default_section='')
    parser.read(path)
    return parser


class StackTest(DevStackTestCase):
    def setUp(self):
        super().setUp()
        self.local_conf |= {
            'TROVE_CEPH_TIERS': TIERS,
            'TROVE_CEPH_PROMISES': 'nvme:50:1000:8000 hdd:5:100:500',
            'TROVE_CEPH_QUIESCE': 'ddl',
        }
        self.recorded = self.stack()

    def parsed(self, path, *registers):
        """Parse a file with the options of its service; an unknown option of ours is an error."""
        conf = cfg.ConfigOpts()
        for register in registers:
            register(conf)
        conf([], default_config_files=[str(path)])
        return conf

    def test_tiers_file(self):
        tiers = tiers_file.load(str(self.conf_file('tiers.yaml'))).tiers
        found = {name: (one.purpose, one.pool, one.copies) for name, one in tiers.items()}
        self.assertEqual(
            {
                'nvme': (Purpose.DATA, 'db-nvme', 2),
                'hdd': (Purpose.DATA, 'db-hdd', 2),
                'copy': (Purpose.REPLICA, 'db-copy', 1),
                'vault': (Purpose.VAULT, 'db-vault', 2),
            },
            found,
        )
        self.assertEqual('copy', tiers['nvme'].replicas_on)
        self.assertEqual(8000, tiers['nvme'].iops.iops_cap)

    def test_keyring_is_of_its_owner_alone(self):
        path = self.root / 'etc/ceph/ceph.client.trove-ceph-storage.keyring'
        self.assertEqual('[client.trove-ceph-storage]\n\tkey = AQ==\n', path.read_text())
        self.assertEqual(0o600, stat.S_IMODE(path.stat().st_mode))

    def conf_file(self, name):
        return self.root / 'etc' / 'trove-ceph' / name

    def test_storage_service(self):
        path = self.conf_file('trove-ceph-storage.conf')
        conf = self.parsed(path, storage_conf.register, qos_conf.register)
        section = conf.trove_ceph_storage
        self.assertRegex(
            section.transport_url,
            r'^rabbit://trove-ceph-storage:[0-9a-f]{32}@192\.0\.2\.1:5672/trove-ceph$',
        )
        self.assertEqual('client.trove-ceph-storage', section.ceph_user)
        self.assertEqual(2, section.job_threads)
        self.assertTrue(conf.trove_ceph_qos.enabled)
        self.assertEqual(['trove-ceph-qos'], conf.trove_ceph_qos.notification_topics)
        loading.register_auth_conf_options(conf, 'trove_ceph_qos')
        auth = loading.load_auth_from_conf_options(conf, 'trove_ceph_qos')
        self.assertEqual('http://192.0.2.1/identity', auth.auth_url)
        self.assertEqual(0o600, stat.S_IMODE(path.stat().st_mode))
        self._all_known(path, conf, 'trove_ceph_storage')
        # Both ends read this file, which must have a usable key.
        message_keys.KeyFile(section.key_file).load()

    def _all_known(self, path, conf, section):
        for name in _ini(path)[section]:
            conf[section][name]

    def test_trove(self):
        path = self.root / 'etc/trove/trove.conf'
        conf = self.parsed(path, taskmanager_conf.register)
        for option in trove_cfg.common_opts + trove_cfg.path_opts:
            conf.register_opt(option)
        conf.register_opts(trove_cfg.network_opts, 'network')
        conf.register_opts(trove_cfg.mysql_opts, 'mysql')
        self.assertEqual('ddl', conf.trove_ceph_backup.quiesce)
        self.assertEqual('trove_ceph.taskmanager.manager.Manager', conf.taskmanager_manager)
        self.assertEqual('trove_ceph.conductor.manager.Manager', conf.conductor_manager)
        self.assertEqual('nvme', conf.cinder_volume_type)
        self.assertEqual('cinder', conf.storage_strategy)
        self.assertFalse(conf.network.network_isolation)
        for section in ('trove_ceph_backup', 'trove_ceph_storage', 'network', 'mysql'):
            self._all_known(path, conf, section)
        for name in _ini(path)['DEFAULT']:
            if name != 'transport_url':  # of oslo.messaging
                conf[name]

    def test_keys_of_trove_are_kept_as_long_as_its_database(self):
        path = self.conf_file('trove-keys')
        self.assertEqual(0o600, stat.S_IMODE(path.stat().st_mode))
        keys = dict(line.split() for line in path.read_text().splitlines())
        self.assertEqual({'taskmanager_rpc_encr_key', 'inst_rpc_key_encr_key'}, set(keys))
        self.assertEqual(2, len(set(keys.values())))
        self.run_phases('', mode='unstack')
        self.stack()
        options = _ini(self.root / 'etc/trove/trove.conf')['DEFAULT']
        for name, key in keys.items():
            self.assertRegex(key, '^[0-9a-f]{32}$')
            self.assertEqual(key, options[name])

    def test_trove_api_alone_restores_from_the_vault(self):
        trove = self.root / 'etc/trove'
        (arguments,) = [_ini(trove / 'trove-uwsgi.ini')['uwsgi']['pyargv'].split()]
        conf = cfg.ConfigOpts()
        for option in trove_cfg.common_opts:
            conf.register_opt(option)
        conf(arguments)
        self.assertEqual(
            cinder_client.cinder_client.__module__ + '.cinder_client', conf.remote_cinder_client
        )
        self.assertEqual('cinder', conf.storage_strategy)
        self.assertNotIn('remote_cinder_client', _ini(trove / 'trove.conf')['DEFAULT'])

    def test_users_are_apart(self):
        urls = [
            _ini(self.root / 'etc/trove/trove.conf')['DEFAULT']['transport_url'],
            _ini(self.root / 'etc/trove/trove-guestagent.conf')['DEFAULT']['transport_url'],
            _ini(self.root / 'etc/trove/trove.conf')['trove_ceph_storage']['transport_url'],
            _ini(self.conf_file('trove-ceph-storage.conf'))['trove_ceph_storage']['transport_url'],
        ]
        parts = [re.fullmatch(r'rabbit://([^:]*):([^@]*)@.*:5672/(.*)', url) for url in urls]
        self.assertEqual(
            ['trove', 'trove-guest', 'trove-ceph-caller', 'trove-ceph-storage'],
            [one[1] for one in parts],
        )
        self.assertEqual(4, len({one[2] for one in parts}))
        self.assertEqual(['trove', 'trove', 'trove-ceph', 'trove-ceph'], [one[3] for one in parts])
        self.assertIn('@192.0.2.254:', urls[1])

    def test_permissions_are_those_of_the_document(self):
        """Each documented rabbitmqctl command is run."""
        text = (CHECKOUT / 'doc/source/admin/message-bus.rst').read_text()
        commands = re.findall(r'# (rabbitmqctl (?:[^\n\\]|\\\n|\\.)*)', text)
        self.assertEqual(14, len(commands))
        recorded = [
            # The document lets rabbitmqctl ask for the password.
            call.rpartition(' ')[0] if call.startswith('rabbitmqctl add_user') else call
            for call in self.recorded
        ]
        for command in commands:
            plain = ' '.join(command.replace('\\\n', ' ').replace("'", '').split())
            self.assertIn(plain, recorded)

    def test_exchange_is_that_of_topic_permissions_and_of_the_document(self):
        made = json.loads((self.root / 'state/definitions').read_text())
        text = (CHECKOUT / 'doc/source/admin/message-bus.rst').read_text()
        documented = re.search(r"echo '([^']*)' \|\n +rabbitmqctl import_definitions", text)[1]
        self.assertEqual(json.loads(documented), made)
        [exchange] = made['exchanges']
        (call,) = [one for one in self.recorded if 'set_topic_permissions' in one]
        vhost, user, name = call.split()[3:6]
        self.assertEqual((exchange['vhost'], 'trove-guest', exchange['name']), (vhost, user, name))
        # What oslo.messaging declares must be equal to it in this, too.
        conf = self.parsed(self.root / 'etc/trove/trove.conf')
        conf.register_opts(amqp.amqp_opts + impl_rabbit.rabbit_opts, 'oslo_messaging_rabbit')
        section = conf.oslo_messaging_rabbit
        self.assertEqual(
            section.amqp_durable_queues or section.rabbit_quorum_queue, exchange['durable']
        )

    def test_cinder(self):
        found = _ini(self.root / 'etc/cinder/cinder.conf')
        for name in ('nvme', 'hdd', 'copy'):
            self.assertEqual(f'db-{name}', found[name]['rbd_pool'])
            self.assertEqual(name, found[name]['volume_backend_name'])
        self.assertNotIn('vault', found)
        self.assertEqual('messagingv2', found['oslo_messaging_notifications']['driver'])

    def test_tempest(self):
        path = self.root / 'etc/tempest.conf'

        def register(conf):
            conf.register_opts(tempest_conf.OPTS, group=tempest_conf.GROUP)

        conf = self.parsed(path, register)
        self._all_known(path, conf, 'trove_ceph')
        self.assertEqual(['nvme', 'hdd'], conf.trove_ceph.volume_types)
        expected = placement.parse(conf.trove_ceph.placement)
        self.assertEqual('db-hdd', expected['hdd'].pool)
        self.assertTrue(conf.trove_ceph.backups)
        database = _ini(path)['database']
        self.assertEqual('mysql:9.7.4', database['default_datastore_versions'])
        self.assertEqual('id-of-m1.small', database['flavor_id'])

    def test_datastore_version(self):
        (call,) = [one for one in self.recorded if one.startswith('register_datastore.py')]
        self.assertIn('--mysql-version=9.7.4', call)
        self.assertIn('mysql/9/validation-rules.json', call)

    def test_backups_are_inspected(self):
        path = self.conf_file('trove-ceph-storage.conf')
        conf = self.parsed(path, verification_conf.register)
        section = conf.trove_ceph_verification
        self.assertEqual({'9.7.4': '/cache/rootfs'}, section.mysqld_roots)
        self._all_known(path, conf, 'trove_ceph_verification')
        (call,) = [one for one in self.recorded if one.startswith('run_process')]
        # Without a group, as root.
        self.assertTrue(call.endswith('trove-ceph-storage.conf  root'), call)
        installed = [one for one in self.recorded if one.startswith('install_package')]
        for package in ('bubblewrap', 'sysbench'):
            self.assertIn(package, ' '.join(installed))

    def test_order(self):
        """Trove uses the manager only after tables, types and the storage service exist."""
        steps = [
            'setup_develop ',
            'trove-ceph-manage tiers apply --only ceph',
            'trove-ceph-manage db sync',
            'trove-ceph-manage tiers apply --only cinder',
            'register_datastore.py',
            'images-build mysql-rootfs',
            'run_process trove-ceph-storage',
            'trove-ceph-manage storage status',
            f'iniset {self.root}/etc/trove/trove.conf DEFAULT taskmanager_manager trove_ceph.',
            f'iniset {self.root}/etc/trove/trove.conf DEFAULT conductor_manager trove_ceph.',
            'restart_service devstack@tr-tmgr',
        ]
        found = [
            next(index for index, call in enumerate(self.recorded) if call.startswith(step))
            for step in steps
        ]
        self.assertEqual(sorted(found), found)

    def test_second_stack_changes_nothing(self):
        before = self.files()
        again = self.stack()
        self.assertEqual(before, self.files())
        self.assertEqual([], [one for one in again if re.match(r'rabbitmqctl add_', one)])
        self.assertEqual([], [one for one in again if 'keys create' in one])

    def test_unstack_and_clean_leave_nothing(self):
        self.assertEqual(0, self.run_phases('', mode='unstack').returncode)
        self.assertIn('stop_process trove-ceph-storage', self.calls())
        self.assertEqual([], list((self.root / 'state/bus').iterdir()))
        options = _ini(self.root / 'etc/trove/trove.conf')['DEFAULT']
        for name in ('taskmanager', 'conductor'):
            self.assertEqual(f'trove.{name}.manager.Manager', options[f'{name}_manager'])
        cache = self.root / 'opt/data/trove-ceph/images/guest-1'
        cache.mkdir(parents=True)
        kept = self.root / 'var/cache'
        kept.mkdir(parents=True)
        self.local_conf['TROVE_CEPH_CACHE_DIR'] = str(kept)
        self.assertEqual(0, self.run_phases('', mode='clean').returncode)
        self.assertTrue(kept.exists())
        self.assertFalse(self.conf_file('').exists())
        self.assertFalse(cache.parent.exists())
        self.assertEqual([], list((self.root / 'systemd').iterdir()))
        self.assertFalse((self.root / 'etc/ceph/ceph.client.trove-ceph-storage.keyring').exists())
        # On a host that was never stacked.
        for mode in ('unstack', 'clean'):
            ended = self.run_phases('', mode=mode)
            self.assertEqual(0, ended.returncode, ended.stderr)

    def test_clean_leaves_what_others_wrote(self):
        """The commands that plan hosts and fleets have their files in the same directory."""
        hosts = self.conf / 'hci.yaml'
        hosts.write_text('hosts: {}\n')
        for mode in ('unstack', 'clean'):
            self.assertEqual(0, self.run_phases('', mode=mode).returncode)
        self.assertEqual([hosts], list(self.conf.iterdir()))


class DefaultsTest(DevStackTestCase):
    def test_one_osd_suffices(self):
        self.stack()
        tiers = tiers_file.load(str(self.conf / 'tiers.yaml')).tiers
        self.assertEqual({1}, {one.copies for one in tiers.values()})
        self.assertEqual({None}, {one.device_class for one in tiers.values()})
        self.assertEqual('', _ini(self.root / 'etc/tempest.conf')['trove_ceph']['placement'])

    def test_single_copies_are_allowed_if_a_tier_has_one(self):
        for tiers, expected in (
            ('rbd:data:any:1', 1),
            ('nvme:data:nvme:2 copy:replica:nvme:1', 1),
            ('nvme:data:nvme:2 vault:vault:hdd:10', 0),
        ):
            self.local_conf['TROVE_CEPH_TIERS'] = tiers
            calls = self.stack()
            setting = 'config set mon mon_allow_pool_size_one true'
            found = [number for number, one in enumerate(calls) if setting in one]
            self.assertEqual(expected, len(found), tiers)
            applied = [number for number, one in enumerate(calls) if 'tiers apply' in one]
            self.assertLess(max(found, default=-1), min(applied))

    def test_without_image(self):
        self.local_conf['TROVE_CEPH_BUILD_IMAGE'] = 'False'
        calls = self.stack()
        self.assertEqual([], [one for one in calls if 'images-build' in one or 'image show' in one])
        self._assert_uninspected(calls)

    def test_with_another_mysql(self):
        archive = self.root / 'mysql.tar'
        archive.touch()
        self.local_conf |= {
            'TROVE_CEPH_MYSQL_IMAGE': str(archive),
            'TROVE_CEPH_MYSQL_VERSION': '8.4.6',
        }
        self._assert_uninspected(self.stack())

    def _assert_uninspected(self, calls):
        self.assertEqual([], [one for one in calls if 'mysql-rootfs' in one])
        self.assertNotIn('trove_ceph_verification', _ini(self.conf / 'trove-ceph-storage.conf'))
        (call,) = [one for one in calls if one.startswith('run_process')]
        self.assertTrue(call.endswith(f'trove-ceph-storage.conf  {getpass.getuser()}'), call)

    def test_back_ends_of_others_stay(self):
        self.local_conf['CINDER_ENABLED_BACKENDS'] = 'lvm:lvmdriver-1'
        ended = self.run_phases('pre-install', before='echo "$CINDER_ENABLED_BACKENDS"')
        self.assertEqual('lvm:lvmdriver-1,trove_ceph:rbd,trove_ceph:replica', ended.stdout.strip())
        self.assertEqual(0, ended.returncode, ended.stderr)

    def test_series_of_mysql(self):
        ended = self.run_phases(
            'source', before=f'source {devstack.PLUGIN}/lib/guest; trove_ceph_mysql_series 8.4.6'
        )
        self.assertEqual('8.4\n', ended.stdout)
