# SPDX-License-Identifier: Apache-2.0
"""What ``trove-ceph-manage hci render`` writes for Kolla-Ansible, against its own variables."""

from pathlib import Path

import yaml
from oslotest import base

from trove_ceph.hci.workload import RootDisk
from trove_ceph.tests.unit import kolla
from trove_ceph.tests.unit.hci import deployment, sample

_GLOBALS = 'kolla/globals.d/trove-ceph-hci.yml'
_OVERRIDES = 'kolla/config/'


def _variables():
    """Return what an operator may override: the variables of all hosts."""
    files = (kolla.PLAYBOOKS / 'group_vars/all').glob('*.yml')
    return {name: value for one in files for name, value in yaml.safe_load(one.read_text()).items()}


def _tasks():
    return (kolla.PLAYBOOKS / 'roles/nova/tasks/config.yml').read_text()


class HciTest(base.BaseTestCase):
    def test_globals_are_variables_of_kolla_ansible(self):
        known = _variables()
        for root_disk in RootDisk:
            made = deployment.make(workload=sample.workload(root_disk=root_disk))
            given = yaml.safe_load(deployment.rendered(made)[_GLOBALS])
            self.assertTrue(given)
            self.assertEqual(set(), set(given) - set(known))

    def test_switches_and_names_are_as_in_kolla_ansible(self):
        known = _variables()
        given = yaml.safe_load(deployment.rendered(deployment.make())[_GLOBALS])
        for name, value in given.items():
            is_switch = isinstance(known[name], bool)
            self.assertEqual(is_switch, value in ('yes', 'no'), name)

    def test_overrides_are_files_that_kolla_ansible_merges(self):
        tasks = (kolla.PLAYBOOKS / 'roles/nova-cell/tasks/config.yml').read_text()
        made = deployment.make()
        paths = [path for path in deployment.rendered(made) if path.startswith(_OVERRIDES)]
        scheduler = f'{_OVERRIDES}nova/nova-scheduler.conf'
        paths.remove(scheduler)
        self.assertIn('"{{ node_custom_config }}/nova/{{ item.key }}.conf"', _tasks())
        self.assertEqual(len(made.inventory.hosts), len(paths))
        for path in paths:
            service, host, name = Path(path.removeprefix(_OVERRIDES)).parts
            self.assertIn(host, [one.name for one in made.inventory.hosts])
            merged = f'{{{{ node_custom_config }}}}/{service}/{{{{ inventory_hostname }}}}/{name}'
            self.assertIn(f'"{merged}"', tasks)
