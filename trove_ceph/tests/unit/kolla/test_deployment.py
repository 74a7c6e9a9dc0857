# SPDX-License-Identifier: Apache-2.0
"""What Kolla-Ansible's own roles and ours write on hosts, read as the services read it."""

import configparser
import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import fixtures
import yaml
from kolla.common import users
from oslo_config import cfg
from oslotest import base
from trove.common import cfg as trove_cfg

from trove_ceph.conf import qos as qos_conf
from trove_ceph.conf import storage as storage_conf
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.conf import verification as verification_conf
from trove_ceph.imagebuild import cloud_settings
from trove_ceph.storage_service import message_keys
from trove_ceph.tests.unit import kolla
from trove_ceph.tiers import tiers_file
from trove_ceph.trove_adapter import cinder_client

_SERVICES = ('trove-api', 'trove-conductor', 'trove-taskmanager')
_CINDER = ('cinder-api', 'cinder-scheduler', 'cinder-volume', 'cinder-backup')
_ROLE = 'ansible.builtin.include_role'
#: After the deployment: other actions of the role, and the files of Trove and Cinder.
_PLAYS = [
    {'import_playbook': 'trove-ceph.yml'},
    {
        'hosts': 'trove-ceph-storage',
        'gather_facts': False,
        # kolla-ansible sets it for this action only.
        'vars': {'kolla_action_stop_ignore_missing': True},
        'tasks': [
            {_ROLE: {'name': 'trove-ceph', 'tasks_from': tasks}}
            for tasks in ('precheck', 'pull', 'stop')
        ],
    },
    {
        'hosts': 'control',
        'gather_facts': False,
        'tasks': [
            {_ROLE: {'name': 'trove', 'tasks_from': 'merged'}},
            {_ROLE: {'name': 'cinder', 'tasks_from': 'merged'}},
        ],
    },
]


def _ini(path):
    parser = configparser.ConfigParser(interpolation=None, default_section='')
    parser.read(path)
    return parser


def _url(text):
    """Return user, password, hosts and virtual host of a URL of RabbitMQ."""
    found = re.fullmatch(r'rabbit://([^:]+):([^@]+)@([^/]+)/(.*)', text)
    return found.groups()


class DeployTest(base.BaseTestCase):
    """One run deploys everything; the tests are one class, since a run takes half a minute."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = fixtures.TempDir()
        cls.directory.setUp()
        cls.addClassCleanup(cls.directory.cleanUp)
        cls.deployment = kolla.Deployment(Path(cls.directory.path))
        for role in ('trove', 'cinder'):
            cls.deployment.add_merging_tasks(role)
        for service in (*_SERVICES, *_CINDER):
            cls.deployment.node('control01', service).mkdir()
        playbook = cls.deployment.add_playbook('all.yml', _PLAYS)
        words = ('--configdir', str(cls.deployment.config), '--playbook', str(playbook))
        inventory = str(cls.deployment.inventory)
        cls.deployment.run('kolla-ansible', 'deploy', '--inventory', inventory, *words)

    def parse(self, path, *registers):
        """Return the configuration in a file, with these functions that register options."""
        conf = cfg.ConfigOpts()
        for register in registers:
            register(conf)
        conf([], default_config_files=[str(path)])
        return conf

    def parse_trove(self, service):
        def register(conf):
            for option in trove_cfg.common_opts + trove_cfg.path_opts:
                conf.register_opt(option)
            conf.register_opts(trove_cfg.network_opts, 'network')
            conf.register_opts(trove_cfg.mysql_opts, 'mysql')
            conf.register_opts(trove_cfg.service_credentials_opts, 'service_credentials')

        name = 'trove-guestagent.conf' if service is None else 'trove.conf'
        path = self.deployment.node('control01', service or 'trove-taskmanager', name)
        return path, self.parse(path, taskmanager_conf.register, register)

    def all_known(self, path, conf, sections):
        for section in sections:
            for name in _ini(path)[section]:
                conf[section][name]

    def test_trove(self):
        for service in _SERVICES:
            path, conf = self.parse_trove(service)
            self.assertEqual('trove_ceph.taskmanager.manager.Manager', conf.taskmanager_manager)
            self.assertEqual('trove_ceph.conductor.manager.Manager', conf.conductor_manager)
            self.assertEqual('cinder', conf.storage_strategy)
            self.assertEqual('/etc/trove/trove-guestagent.conf', conf.guest_config)
            self.assertEqual([kolla.NETWORK], conf.management_networks)
            self.assertFalse(conf.network.network_isolation)
            self.assertEqual('/dev/vdb', conf.mysql.device_path)
            self.assertTrue(conf.service_credentials.password)
            self.all_known(path, conf, ('network', 'mysql', 'trove_ceph_storage'))
            for name in self.shipped_options() - {'transport_url'}:  # of oslo.messaging
                conf[name]
        self.assertTrue(
            (
                kolla.ETC
                / Path(conf.template_path).relative_to('/var/lib/kolla/venv/share/trove-ceph')
            ).is_dir()
        )

    def test_services_of_trove_have_keys_of_their_own_for_messages(self):
        found = [self.parse_trove(service)[1] for service in _SERVICES]
        for name in ('taskmanager_rpc_encr_key', 'inst_rpc_key_encr_key'):
            (option,) = (one for one in trove_cfg.common_opts if one.name == name)
            (key,) = {conf[name] for conf in found}
            self.assertGreaterEqual(len(key), 16)
            self.assertNotEqual(option.default, key)

    def shipped_options(self):
        section = (kolla.ETC / 'kolla/config/trove.conf').read_text().split('[network]')[0]
        return set(re.findall(r'(?m)^(\w+) =', section))

    def test_trove_api_alone_restores_from_the_vault(self):
        clients = {name: self.parse_trove(name)[1].remote_cinder_client for name in _SERVICES}
        expected = f'{cinder_client.__name__}.{cinder_client.cinder_client.__name__}'
        self.assertEqual(expected, clients['trove-api'])
        self.assertNotIn(expected, (clients['trove-conductor'], clients['trove-taskmanager']))

    def test_guests_have_no_credentials_of_others(self):
        path, conf = self.parse_trove(None)
        for name in ('username', 'password'):
            self.assertEqual('', conf.service_credentials[name])
        passwords = yaml.safe_load((self.deployment.config / 'passwords.yml').read_text())
        text = path.read_text()
        known = {name for name, value in passwords.items() if value and str(value) in text}
        self.assertEqual({'trove_ceph_guest_rabbitmq_password'}, known)
        self.assertFalse(conf.network.network_isolation)
        self.assertEqual('/dev/vdb', conf.device_path)
        self.assertEqual('mysql', conf.mysql.docker_image)
        self.all_known(path, conf, ('network', 'mysql', 'service_credentials'))

    def test_users_are_apart(self):
        trove = _ini(self.parse_trove('trove-taskmanager')[0])
        storage = _ini(self.storage_conf('control01'))
        urls = [
            _url(one)
            for one in (
                trove['DEFAULT']['transport_url'],
                _ini(self.parse_trove(None)[0])['DEFAULT']['transport_url'],
                storage['trove_ceph_storage']['transport_url'],
                trove['trove_ceph_storage']['transport_url'],
                storage['oslo_messaging_notifications']['transport_url'],
            )
        ]
        self.assertEqual(
            [
                ('trove', 'trove'),
                ('trove-guest', 'trove'),
                ('trove-ceph-storage', 'trove-ceph'),
                ('trove-ceph-caller', 'trove-ceph'),
                ('trove-ceph-events', '/'),
            ],
            [(user, vhost) for user, _, _, vhost in urls],
        )
        self.assertEqual(5, len({password for _, password, _, _ in urls}))
        cinder = self.deployment.node('control01', 'cinder-api', 'cinder.conf')
        user, password, hosts, _ = _url(_ini(cinder)['DEFAULT']['transport_url'])
        for other in urls:
            # Password and virtual host change, and nothing else.
            self.assertNotEqual((user, password), other[:2])
            self.assertEqual(
                hosts.replace(f'{user}:{password}', f'{other[0]}:{other[1]}'), other[2]
            )

    def storage_conf(self, host):
        return self.deployment.node(host, 'trove-ceph-storage', 'trove-ceph-storage.conf')

    def parse_storage(self, host):
        registers = (storage_conf.register, qos_conf.register, verification_conf.register)
        path = self.storage_conf(host)
        conf = self.parse(path, *registers)
        sections = {'trove_ceph_storage', 'trove_ceph_verification'} & set(_ini(path).sections())
        self.all_known(path, conf, sections)
        return conf

    def test_storage_service(self):
        conf = self.parse_storage('control01')
        self.assertEqual({}, conf.trove_ceph_verification.mysqld_roots)
        self.assertTrue(conf.trove_ceph_qos.enabled)
        files = self.config_json('control01')['config_files']
        authorities = files.pop()
        self.assertEqual('/var/lib/kolla/share/ca-certificates', authorities['dest'])
        directory = self.deployment.node('control01', 'trove-ceph-storage')
        self.assertTrue((directory / Path(authorities['source']).name / 'root.crt').is_file())
        targets = {one['dest'] for one in files}
        section = conf.trove_ceph_storage
        for needed in (section.key_file, section.ceph_conf, section.tiers_file):
            self.assertIn(needed, targets)
        self.assertIn(f'/etc/ceph/ceph.{section.ceph_user}.keyring', targets)
        for one in files:
            name = Path(one['source']).name
            self.assertTrue((directory / name).is_file())
            self.assertEqual(('trove', '0600'), (one['owner'], one['perm']))

    def test_storage_service_with_inspections(self):
        conf = self.parse_storage('storage01')
        root = f'{self.deployment.root}/srv/mysql-9.7.4'
        self.assertEqual({'9.7.4': root}, conf.trove_ceph_verification.mysqld_roots)
        owners = {one['owner'] for one in self.config_json('storage01')['config_files']}
        self.assertEqual({'root'}, owners)
        self.assertEqual('fuse loop xfs', self.deployment.node('storage01', 'modules').read_text())
        self.assertFalse(self.deployment.node('control01', 'modules').exists())

    def config_json(self, host):
        path = self.deployment.node(host, 'trove-ceph-storage', 'config.json')
        return json.loads(path.read_text())

    def test_config_json_is_accepted(self):
        """By the program that each container of Kolla begins with."""
        for host in ('control01', 'storage01'):
            self.assertEqual('', self.validate(self.config_json(host)))
        broken = self.config_json('control01')
        del broken['config_files'][0]['perm']
        self.assertIn('InvalidConfig: Config needs', self.validate(broken))

    def validate(self, config):
        """Return what the program says; it configures the logging of its process."""
        path = Path(sys.prefix) / 'share/kolla/docker/base/set_configs.py'
        code = (
            'import json, runpy, sys; '
            'runpy.run_path(sys.argv[1])["validate_config"](json.load(sys.stdin))'
        )
        words = [sys.executable, '-W', 'ignore', '-c', code, str(path)]
        done = subprocess.run(words, input=json.dumps(config), capture_output=True, text=True)
        self.assertEqual(bool(done.stderr), bool(done.returncode))
        return done.stderr

    def test_owner_of_the_callers_files_is_the_user_of_the_images(self):
        path = kolla.ETC / 'kolla/ansible/roles/trove-ceph/defaults/main.yml'
        defaults = yaml.safe_load(path.read_text())
        uid = users.USERS['trove-user']['uid']
        self.assertEqual(str(uid), defaults['trove_ceph_caller_uid'])

    def test_commands(self):
        [program, *arguments] = self.config_json('storage01')['command'].split()
        self.assertEqual('trove-ceph-storage', program)
        config = arguments[0].removeprefix('--config-file=')
        targets = {one['dest'] for one in self.config_json('storage01')['config_files']}
        self.assertIn(config, targets)
        # Without inspections it gives up root.
        unprivileged = self.config_json('control01')['command'].split()
        self.assertEqual('setpriv', unprivileged[0])
        self.assertIn('--reuid=trove', unprivileged)
        self.assertEqual([program, *arguments], unprivileged[-2:])

    def containers(self):
        compared = {}
        for call in self.deployment.calls('kolla_container'):
            if call['action'] != 'pull_image':
                self.assertEqual('trove_ceph_storage', call['name'])
            if call['action'] != 'stop_container':
                image = f'{kolla.REGISTRY}trove-ceph-storage:2026.1-debian-trixie'
                self.assertEqual(image, call['image'])
            compared.setdefault((call['privileged'], call['action']), call)
        return compared

    def test_containers(self):
        containers = self.containers()
        actions = {action for _, action in containers}
        creating = {'compare_container', 'recreate_or_restart_container'}
        self.assertEqual({*creating, 'pull_image', 'stop_container'}, actions)
        for action in creating:
            plain, privileged = (containers[one, action] for one in (False, True))
            self.assertEqual(
                ('private', 'host'), (plain['cgroupns_mode'], privileged['cgroupns_mode'])
            )
            volumes = [one for one in plain['volumes'] if one]
            self.assertEqual(
                [
                    '/var/lib/kolla/config_files/',
                    '/etc/localtime',
                    '/var/log/kolla/',
                    '/var/lib/trove-ceph/',
                ],
                [one.split(':')[1] for one in volumes],
            )
            root = f'{self.deployment.root}/srv/mysql-9.7.4'
            more = set(filter(None, privileged['volumes'])) - set(volumes)
            for needed in ('/dev:/dev', '/sys/fs/cgroup:/sys/fs/cgroup', f'{root}:{root}:ro'):
                self.assertIn(needed, more)

    def test_restart_outlasts_the_jobs(self):
        [default] = [one.default for one in storage_conf.OPTS if one.name == 'stop_timeout_sec']
        call = self.containers()[True, 'recreate_or_restart_container']
        self.assertGreater(call['graceful_timeout'], default)

    def test_both_ends_declare_queues_alike(self):
        sections = [
            dict(_ini(path)['oslo_messaging_rabbit'])
            for path in (self.parse_trove('trove-taskmanager')[0], self.storage_conf('control01'))
        ]
        for section in sections:
            self.assertEqual('true', section['rabbit_quorum_queue'])
            # It gives names to queues of one end only.
            del section['use_queue_manager']
        self.assertEqual(*sections)

    def test_bus_has_tls(self):
        guest = _ini(self.parse_trove(None)[0])
        for section, authority in (
            (guest, f'/{cloud_settings.BUS_CA}'),
            (_ini(self.storage_conf('control01')), '/etc/ssl/certs/ca-certificates.crt'),
        ):
            self.assertEqual('true', section['oslo_messaging_rabbit']['ssl'])
            self.assertEqual(authority, section['oslo_messaging_rabbit']['ssl_ca_file'])
        self.assertIn(':5671/', guest['DEFAULT']['transport_url'])
        self.assertIn('true', guest['oslo_messaging_rabbit']['rabbit_quorum_queue'])

    def test_notifications(self):
        conf = self.parse_storage('control01')
        cinder = _ini(self.deployment.node('control01', 'cinder-volume', 'cinder.conf'))
        section = cinder['oslo_messaging_notifications']
        self.assertEqual('messagingv2', section['driver'])
        self.assertEqual(conf.trove_ceph_qos.notification_topics, section['topics'].split(','))

    def test_cinder_backends_are_those_of_the_tiers(self):
        found = _ini(self.deployment.node('control01', 'cinder-volume', 'cinder.conf'))
        enabled = found['DEFAULT']['enabled_backends'].split(',')
        tiers = tiers_file.load(str(kolla.ETC / 'trove-ceph/tiers.yaml')).tiers
        expected = {
            tier.volume_type.backend: tier.pool for tier in tiers.values() if tier.volume_type
        }
        self.assertEqual(
            {'rbd-1': 'volumes', **expected}, {name: found[name]['rbd_pool'] for name in enabled}
        )
        for name in enabled:
            self.assertEqual(name, found[name]['volume_backend_name'])
            self.assertEqual('cinder', found[name]['rbd_user'])

    def test_callers_have_keys_and_tiers(self):
        _, conf = self.parse_trove('trove-taskmanager')
        [mount] = [one for one in self.trove_volumes() if one.endswith(':/etc/trove-ceph/:ro')]
        directory = Path(mount.split(':')[0])
        key_file = directory / Path(conf.trove_ceph_storage.key_file).name
        self.assertEqual(0o600, stat.S_IMODE(key_file.stat().st_mode))
        message_keys.KeyFile(str(key_file)).load()
        tiers_file.load(str(directory / Path(conf.trove_ceph_backup.tiers_file).name))
        # Hosts without callers get no key for them.
        self.assertFalse(self.deployment.node('storage01', 'trove-ceph').exists())

    def trove_volumes(self):
        shipped = yaml.safe_load((self.deployment.config / 'globals.d/trove-ceph.yml').read_text())
        [path] = re.findall(r"~ '([^']*)'\]", shipped['trove_extra_volumes'])
        return [f'{self.deployment.node("control01")}{path}']

    def test_permissions_are_those_of_the_document(self):
        text = (kolla.CHECKOUT / 'doc/source/admin/message-bus.rst').read_text()
        documented = re.findall(r'# rabbitmqctl ((?:[^\n\\]|\\\n|\\.)*)', text)
        documented = {
            ' '.join(one.replace('\\\n', ' ').replace("'", '').split()) for one in documented
        }
        self.assertEqual(14, len(documented))
        made = set(self.rabbitmq_commands())
        self.assertEqual(set(), documented - made)
        streams = [one for one in made - documented if 'stream-retention-policy' not in one]
        self.assertEqual([], streams)

    def rabbitmq_commands(self):
        """Yield the commands that the modules of the toolbox stand for."""
        for call in self.deployment.calls('kolla_toolbox'):
            name, values = call['module_name'], call['module_args']
            self.assertRegex(values['node'], '^rabbit@.')
            if name == 'rabbitmq_vhost':
                yield f'add_vhost {values["name"]}'
            elif name == 'rabbitmq_policy':
                yield (
                    f'set_policy -p {values["vhost"]} --apply-to {values["apply_to"]} '
                    f'{values["name"]} {values["pattern"]} {json.dumps(values["tags"])}'
                )
            else:
                yield from self.user_commands(values)

    def user_commands(self, values):
        yield f'add_user {values["user"]}'
        # The module sets no password otherwise when the user exists.
        self.assertEqual('always', values['update_password'])
        for one in values['permissions']:
            yield (
                f'set_permissions -p {one["vhost"]} {values["user"]} {one["configure_priv"]} '
                f'{one["write_priv"]} {one["read_priv"]}'
            )
        for one in values['topic_permissions']:
            yield (
                f'set_topic_permissions -p {one["vhost"]} {values["user"]} {one["exchange"]} '
                f'{one["write_priv"]} {one["read_priv"]}'
            )

    def test_topic_permissions_are_of_an_exchange_that_exists(self):
        [exchange] = json.loads(self.deployment.definitions.read_text())['exchanges']
        conf = _ini(self.deployment.node('control01', 'trove-taskmanager', 'trove.conf'))
        self.assertEqual(
            (conf['DEFAULT']['control_exchange'], 'trove', 'topic'),
            (exchange['name'], exchange['vhost'], exchange['type']),
        )
        # With quorum queues, Trove's services declare it durable, and could not otherwise.
        self.assertEqual('true', conf['oslo_messaging_rabbit']['rabbit_quorum_queue'])
        self.assertTrue(exchange['durable'])

    def test_streams_are_limited(self):
        made = [one for one in self.rabbitmq_commands() if 'stream-retention-policy' in one]
        self.assertEqual(2, len(made))
        for command, vhost in zip(made, ('trove', 'trove-ceph'), strict=True):
            self.assertIn(f'-p {vhost} ', command)
            self.assertRegex('trove-ceph-storage_fanout', command.split()[6])

    def test_the_service_is_asked(self):
        calls = [one for one in self.deployment.engine_calls() if 'rabbitmqctl' not in one]
        self.assertEqual({'root', 'trove'}, {call.split()[2] for call in calls})
        for call in calls:
            self.assertIn('trove_ceph_storage trove-ceph-manage storage status', call)
