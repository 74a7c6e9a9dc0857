# SPDX-License-Identifier: Apache-2.0
"""The keys of Trove's services for messages in a new lab and in an older one."""

import re

import yaml
from oslotest import base
from trove.common import cfg as trove_cfg

from trove_ceph.tests.unit.lab import LAB

KEY_OF_KEYS = 'inst_rpc_key_encr_key'


class TroveKeysTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.keys = yaml.safe_load((LAB / 'group_vars/all.yml').read_text())['trove_keys']
        self.tasks = yaml.safe_load((LAB / 'roles/trove/tasks/main.yml').read_text())

    def _find(self, name):
        (found,) = (at for at, task in enumerate(self.tasks) if task['name'].startswith(name))
        return found

    def test_each_is_a_secret_of_its_own(self):
        files = [re.search(r"secrets ~ '/(\S+) '", text)[1] for text in self.keys.values()]
        self.assertEqual(['trove-taskmanager', 'trove-instances'], files)
        text = (LAB / 'roles/trove/templates/trove.conf.j2').read_text()
        for name, key in (('taskmanager_rpc_encr_key', 'taskmanager'), (KEY_OF_KEYS, 'instances')):
            self.assertIn(f'\n{name} = {{{{ trove_keys.{key} }}}}\n', text)

    def test_instances_of_an_older_lab_keep_theirs(self):
        at = self._find('Keep the key of an older lab')
        self.assertLess(at, self._find('Write the configuration'))
        self.assertLess(at, self._find('Prepare the database'))
        self.assertEqual('trove_schema.stat.exists', self.tasks[at]['when'])
        copy = self.tasks[at]['ansible.builtin.copy']
        self.assertIs(False, copy['force'])
        self.assertEqual('{{ secrets }}/trove-instances', copy['dest'])
        (option,) = (one for one in trove_cfg.common_opts if one.name == KEY_OF_KEYS)
        self.assertEqual(option.default, copy['content'].rstrip('\n'))
