# SPDX-License-Identifier: Apache-2.0
"""What the playbook refuses, and which variable or file it names."""

import json
import re
import shutil
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph.tests.unit import kolla

_PASSWORD = 'trove_ceph_guest_rabbitmq_password'
_KEY = 'trove_ceph_inst_rpc_key_encr_key'
#: Variables that are wrong, and what the message says. Others have the values of the deployment.
_VALUES = (
    ({'trove_ceph_image_url': ''}, r'^trove_ceph_image_url is not set: .*globals\.d'),
    ({'trove_ceph_management_networks': []}, r'^trove_ceph_management_networks is not set'),
    ({_PASSWORD: ''}, rf'^{_PASSWORD} has no value: .*kolla-genpwd'),
    ({_PASSWORD: None}, rf'^{_PASSWORD} has no value'),
    ({_KEY: None}, rf'^{_KEY} has no value: .*kolla-genpwd'),
    ({_PASSWORD: '{{ rabbitmq_password }}'}, rf'{_PASSWORD}.* and rabbitmq_password have the same'),
    ({'trove_ceph_vhost': 'trove'}, r'^trove_ceph_vhost is trove, .*of its own'),
    ({'trove_ceph_vhost': '/'}, r'^trove_ceph_vhost is /, '),
    ({'openstack_release': '2025.2'}, r'^openstack_release is 2025\.2, .*Trove 25 \(2026\.1\)'),
    ({'kolla_base_distro': 'rocky'}, r'^kolla_base_distro is rocky, .*debian'),
)
#: Files below the directory of overrides that are missing, and what creates them.
_FILES = (
    ('trove-ceph/tiers.yaml', 'copy etc/trove-ceph/tiers.yaml'),
    ('trove-ceph/storage-keys.json', 'trove-ceph-manage storage keys create'),
    ('trove-ceph/ceph.conf', 'copy the ceph.conf'),
    (f'trove-ceph/{kolla.KEYRING}', 'ceph auth get client.trove-ceph-storage'),
    ('trove.conf', 'copy etc/kolla/config/trove.conf'),
    ('trove/trove-api.conf', 'copy etc/kolla/config/trove/trove-api.conf'),
    ('trove-guestagent.conf', 'copy etc/kolla/config/trove-guestagent.conf'),
)
#: The service does not answer.
_NO_ANSWER = (
    r'^trove_ceph_storage on control01 does not answer in the virtual host trove-ceph '
    r'\(trove_ceph_vhost\) of RabbitMQ at control01: Login was refused\. .*'
    r'trove_ceph_storage_rabbitmq_password'
)


class RefusalsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.deployment = kolla.Deployment(Path(self.useFixture(fixtures.TempDir()).path))

    def refusals(self, cases):
        """Run tasks of the role with wrong variables; return the messages, None for a success.

        :param cases: names of files of tasks, with the variables
        """
        message = {
            'said': "{{ said + [(ansible_failed_result.results | default([ansible_failed_result]) "
            "| selectattr('failed', 'defined') | selectattr('failed') | first).msg] }}"
        }
        blocks = [
            {
                'block': [
                    {
                        'ansible.builtin.include_role': {'name': 'trove-ceph', 'tasks_from': tasks},
                        'vars': values,
                    },
                    {'ansible.builtin.set_fact': {'said': '{{ said + [none] }}'}},
                ],
                'rescue': [{'ansible.builtin.set_fact': message}],
            }
            for tasks, values in cases
        ]
        report = self.deployment.root / 'report.json'
        write = {'content': '{{ said | to_json }}', 'dest': str(report), 'mode': '0644'}
        # Unlike in kolla-ansible, these variables give way to those of the cases.
        files = ['globals.yml', 'passwords.yml', 'globals.d/trove-ceph.yml']
        play = {
            'hosts': 'control01',
            'gather_facts': False,
            'vars': {'said': [], 'CONFIG_DIR': str(self.deployment.config)},
            'vars_files': [str(self.deployment.config / name) for name in files],
            'tasks': [*blocks, {'ansible.builtin.copy': write}],
        }
        playbook = self.deployment.add_playbook('refusals.yml', [play])
        words = ('ansible-playbook', '--inventory', str(self.deployment.inventory), str(playbook))
        self.deployment.run(*words, ENGINE_FAILS='1')
        found = json.loads(report.read_text())
        self.assertEqual(len(cases), len(found))
        return [message and ' '.join(message.split()) for message in found]

    def without(self, name):
        """Return variables for which one file of the operator is missing."""
        directory = self.deployment.root / 'without' / name.replace('/', '_')
        shutil.copytree(self.deployment.config / 'config', directory)
        (directory / name).unlink()
        return {'node_custom_config': str(directory)}

    def test_refusals(self):
        root = f'{self.deployment.root}/srv/mysql-8.4'
        cases = [('inputs', {}, None)]
        cases += [('inputs', values, expected) for values, expected in _VALUES]
        for name, remedy in _FILES:
            expected = f'/{name} is missing on the deployment host: .*{remedy}'
            cases.append(('inputs', self.without(name), expected))
        hosts = rf'^control01 has no {root}/usr/sbin/mysqld, which trove_ceph_mysqld_roots names'
        cases.append(('precheck', {'trove_ceph_mysqld_roots': {'8.4': root}}, hosts))
        cases.append(('answer', {'trove_ceph_answer_retries': 0}, _NO_ANSWER))
        said = self.refusals([(tasks, values) for tasks, values, _ in cases])
        for message, (_, values, expected) in zip(said, cases, strict=True):
            if expected is None:
                self.assertIsNone(message)
            else:
                self.assertRegex(message or f'accepted: {values}', expected)

    def test_inventory_without_the_group(self):
        text = self.deployment.inventory.read_text()
        self.deployment.inventory.write_text(
            re.sub(r'(?m)^\[trove-ceph-storage:children\]\ncontrol\nstorage\n', '', text)
        )
        [message] = self.refusals([('inputs', {})])
        self.assertIn('no host in the group trove-ceph-storage', message)
