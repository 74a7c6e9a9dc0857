# SPDX-License-Identifier: Apache-2.0
"""The services accept the lab's configuration of backups."""

import json
import shlex
from pathlib import Path

import fixtures
import jinja2
import yaml
from oslo_config import cfg
from oslo_utils import importutils
from oslotest import base

from trove_ceph.cmd.manage import options, shell
from trove_ceph.conf import storage as storage_conf
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.conf import verification as verification_conf
from trove_ceph.storage_service import message_keys, transport
from trove_ceph.strategies.guests import hot_spec
from trove_ceph.taskmanager import guest_factory
from trove_ceph.tests.unit.lab import LAB
from trove_ceph.tiers import tiers_file
from trove_ceph.trove_adapter import cinder_client
from trove_ceph_tempest_plugin import config as tempest_conf
from trove_ceph_tempest_plugin import placement

ROOTS = {'mysql_version': '9.7.4', 'path': '/var/cache/trove-ceph/mysql-rootfs-1/rootfs'}


class SettingsTestCase(base.BaseTestCase):
    def render(self, template, **variables):
        """Render a role's template as Ansible does; missing variables are empty."""
        role = LAB / 'roles' / template.partition('/')[0] / 'templates'
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader([role, LAB / 'templates']),
            trim_blocks=True,
            undefined=jinja2.ChainableUndefined,
        )
        return environment.get_template(template.partition('/')[2]).render(**variables)

    def read(self, text, *registers):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'conf'
        path.write_text(text)
        conf = cfg.ConfigOpts()
        for register in registers:
            register(conf)
        conf([], default_config_files=[str(path)])
        return conf

    def storage(self, **variables):
        text = self.render('storage_service/trove-ceph-storage.conf.j2', **variables)
        return self.read(text, storage_conf.register, verification_conf.register)


def _storage():
    """Return the back ends of the lab."""
    found = yaml.safe_load((LAB / 'group_vars' / 'all.yml').read_text())
    return {name: found[name] for name in ('storage_backends', 'replica_backend')}


class BackupSettingsTest(SettingsTestCase):
    def taskmanager(self, **variables):
        text = self.render('trove/taskmanager.conf.j2', tiers_file='/etc/tiers', **variables)

        def register(conf):
            taskmanager_conf.register(conf)
            conf.register_opts([cfg.StrOpt('taskmanager_manager')])

        return self.read(text, register)

    def test_setting_chooses_the_task_manager(self):
        ours = self.taskmanager(lab_backups='trove_ceph', lab_quiesce='ddl')
        self.assertEqual('trove_ceph.taskmanager.manager.Manager', ours.taskmanager_manager)
        self.assertEqual(
            ('ddl', '/etc/tiers'),
            (ours.trove_ceph_backup.quiesce, ours.trove_ceph_backup.tiers_file),
        )
        stock = self.taskmanager(lab_backups='stock', lab_quiesce='none')
        self.assertEqual('trove.taskmanager.manager.Manager', stock.taskmanager_manager)

    def cinder(self, *names, **variables):
        """Return options as Cinder reads them."""

        def register(conf):
            conf.register_opts([cfg.StrOpt(name) for name in names])

        text = self.render('cinder/cinder.conf.j2', **_storage(), **variables)
        return self.read(text, register)

    def test_each_volume_type_has_a_back_end(self):
        content = yaml.safe_load(self.render('ceph/tiers.yaml.j2', **_storage()))
        tiers = tiers_file.parse(content).tiers
        types = {one.volume_type.backend: one for one in tiers.values() if one.volume_type}
        enabled = self.cinder('enabled_backends', 'default_volume_type', host_name='lab')
        self.assertEqual(set(types), set(enabled.enabled_backends.split(',')))
        source = types[enabled.default_volume_type]
        replicas = tiers[source.replicas_on]
        self.assertEqual((2, 1), (source.copies, replicas.copies))
        self.assertEqual(source.device_class, replicas.device_class)
        self.assertIs(replicas, types['nvme-replica'])

    def test_copies_of_cinder_volume_form_a_cluster(self):
        for count, expected in ((1, None), (2, 'lab-cluster'), (3, 'lab-cluster')):
            conf = self.cinder('cluster', host_name='lab', lab_cinder_volume_services=count)
            self.assertEqual(expected, conf.cluster)

    def test_setting_chooses_the_cinder_client_of_the_api(self):
        def register(conf):
            conf.register_opts([cfg.StrOpt('remote_cinder_client')])

        for backups, expected in (
            ('trove_ceph', cinder_client.cinder_client),
            ('stock', None),
        ):
            conf = self.read(self.render('trove/trove-api.conf.j2', lab_backups=backups), register)
            named = conf.remote_cinder_client
            self.assertEqual(expected, named and importutils.import_class(named))

    def test_inspects_backups_with_the_cached_mysql(self):
        conf = self.storage(inspecting=ROOTS, run='/opt/lab/run').trove_ceph_verification
        self.assertEqual({'9.7.4': ROOTS['path']}, conf.mysqld_roots)
        self.assertEqual('/opt/lab/run/verification', conf.directory)
        self.assertGreaterEqual(conf.memory_mib, 512)

    def test_inspects_nothing_without_a_root_file_system(self):
        self.assertEqual({}, self.storage(inspecting={}).trove_ceph_verification.mysqld_roots)

    def tempest(self, **variables):
        """Return the options of the scenarios."""
        text = self.render(
            'tempest/tempest.conf.j2',
            **{
                'lab_backups': 'trove_ceph',
                'keeps_warm_guests': False,
                'keeps_hot_guests': False,
                'has_stock_datastore': False,
                'stock_datastore': 'mysql-stock',
            }
            | variables,
            storage_backends=[{'name': 'nvme', 'pool': 'p', 'iops': {}}],
            replica_backend={'name': 'nvme-replica', 'pool': 'r'},
        )

        def register(conf):
            conf.register_opts(tempest_conf.OPTS, group=tempest_conf.GROUP)

        return self.read(text, register).trove_ceph

    def test_scenario_of_reads_has_as_many_replicas_as_fit(self):
        self.assertEqual(3, self.tempest(most_replicas=3).read_replicas)

    def test_scenarios_of_backups_follow_the_setting(self):
        for backups, expected in (('trove_ceph', True), ('stock', False)):
            self.assertEqual(expected, self.tempest(lab_backups=backups).backups)

    def test_scenarios_know_where_replicas_are(self):
        found = self.tempest()
        self.assertEqual(['nvme'], found.volume_types)
        expected = placement.parse(found.placement)
        self.assertEqual(placement.Expected('p', 'nvme', 2, 'osd'), expected['nvme'])
        self.assertEqual(placement.Expected('r', 'nvme', 1, 'osd'), expected['nvme-replica'])

    def test_scenarios_of_warm_guests_follow_the_lab(self):
        self.assertEqual('', self.tempest().guests_command)
        command = shlex.split(self.tempest(keeps_warm_guests=True, venv='/venv').guests_command)
        self.assertEqual('/venv/bin/trove-ceph-manage', command[0])
        name, rest = shell.CommandManager().find_command(command[1:])[1:]
        self.assertEqual('guests list', name)
        self.assertEqual(['-f', 'json'], rest[-2:])

    def test_scenarios_run_the_command_of_operators(self):
        variables = {'etc': '/lab/etc', 'venv': '/venv'}
        self.assertEqual('', self.tempest(lab_backups='stock', **variables).manage_command)
        command = shlex.split(self.tempest(**variables).manage_command)
        files = '/lab/etc/trove/trove.conf:/lab/etc/trove-taskmanager.conf'
        self.assertEqual(
            ['env', f'{options.TROVE_CONF}={files}', '/venv/bin/trove-ceph-manage'], command
        )

    def test_automatic_failover_is_enabled(self):
        self.assertTrue(self.taskmanager().trove_ceph_failover.enabled)

    def test_scenarios_of_hot_guests_follow_the_lab(self):
        self.assertFalse(self.tempest().hot_guests)
        self.assertTrue(self.tempest(keeps_hot_guests=True).hot_guests)

    def test_scenario_of_troves_own_agent_follows_the_lab(self):
        self.assertEqual('', self.tempest().stock_datastore)
        self.assertEqual('mysql-stock', self.tempest(has_stock_datastore=True).stock_datastore)

    def test_pools_have_hot_guests(self):
        text = self.render(
            'trove/warm-guests.conf.j2',
            lab_warm_guests=2,
            lab_hot_guests=1,
            lab_volume_gib=2,
            versions={'stdout_lines': ['9.7.4']},
            storage_backends=[{'name': 'nvme', 'pool': 'p', 'iops': {}}],
        )
        conf = self.read(text, taskmanager_conf.register)
        self.assertEqual(('mysql/9.7.4:db.small',), tuple(conf.trove_ceph_guests.pools))
        self.assertEqual(hot_spec.HotVolume('nvme', 2), guest_factory.hot_volume(conf))


class TransportTest(SettingsTestCase):
    """The lab's processes reach the storage service, and its guests do not."""

    ADDRESS = '10.20.0.1:5672'

    def setUp(self):
        super().setUp()
        group_vars = yaml.safe_load((LAB / 'group_vars' / 'all.yml').read_text())
        passwords = {name: f'{name}-secret' for name in group_vars['rabbit_passwords']}
        self.variables = {'rabbit': self.ADDRESS, 'rabbit_passwords': passwords}
        for name, value in group_vars.items():
            if name.endswith('transport_url'):
                template = jinja2.Template(value, undefined=jinja2.StrictUndefined)
                self.variables[name] = template.render(**self.variables)
        self.key_file = self.useFixture(fixtures.TempDir()).join('keys.json')
        message_keys.create(self.key_file)
        self.variables['storage_key_file'] = self.key_file

    def urls(self, conf):
        parsed = transport.find_url(conf)
        (host,) = parsed.hosts
        return host.username, parsed.virtual_host

    def test_service_and_caller_share_a_virtual_host(self):
        service = self.storage(**self.variables)
        transport.check(service)
        self.assertEqual(('trove-ceph-storage', 'trove-ceph'), self.urls(service))
        # The task manager reads both files.
        text = self.render('trove/trove.conf.j2', **self.variables)
        common = next(line for line in text.splitlines() if line.startswith('transport_url'))
        text = self.render('trove/taskmanager.conf.j2', **self.variables)
        caller = self.read(
            text.replace('[DEFAULT]', f'[DEFAULT]\n{common}', 1), taskmanager_conf.register
        )
        transport.check(caller)
        self.assertEqual(('trove-ceph-caller', 'trove-ceph'), self.urls(caller))

    def test_guests_do_not_know_the_service(self):
        text = self.render('trove/trove-guestagent.conf.j2', **self.variables)
        self.assertIn(f'rabbit://trove-guest:guest-secret@{self.ADDRESS}/trove\n', text)
        self.assertNotIn('trove-ceph', text)
        for name in ('openstack', 'trove', 'storage', 'caller', 'events'):
            self.assertNotIn(f'{name}-secret', text)

    def test_each_user_is_defined_and_guests_have_no_other_permission(self):
        template = LAB / 'roles' / 'base' / 'templates' / 'rabbitmq-definitions.json.j2'
        text = jinja2.Template(template.read_text(), undefined=jinja2.StrictUndefined).render(
            **self.variables, volume_events_topic='trove-ceph-qos', has_durable_exchanges=False
        )
        definitions = json.loads(text)
        users = {one['name'] for one in definitions['users']}
        for name, value in self.variables.items():
            if name.endswith('transport_url'):
                self.assertIn(value.removeprefix('rabbit://').partition(':')[0], users, name)
        guests = [one for one in definitions['permissions'] if one['user'] == 'trove-guest']
        self.assertEqual(['trove'], [one['vhost'] for one in guests])
