# SPDX-License-Identifier: Apache-2.0
import json
import re
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph.tests.unit.cmd.manage import command

_SHIPPED = Path(__file__).parents[5] / 'etc' / 'trove-ceph' / 'hci.yaml'
_SECRET = '457eb676-33da-42ec-9a8c-9293d545c337'


class RenderTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.file, self.output = directory / 'hci.yaml', directory / 'output'
        self.file.write_text(_SHIPPED.read_text())

    def run_command(self, *words, status=0):
        result = command.run('hci', 'render', str(self.file), '--output', str(self.output), *words)
        self.assertEqual(status, result.status, result)
        return result

    def content(self):
        return {
            str(path.relative_to(self.output)): path.read_text()
            for path in self.output.rglob('*')
            if path.is_file()
        }

    def test_writes_the_files_and_does_not_write_them_again(self):
        out = self.run_command().out
        found = self.content()
        self.assertIn('written: ceph/osds/hci-1.yaml\n', out)
        self.assertIn(f'{len(found)} written, 0 unchanged\n', out)
        self.assertIn('osd_memory_target 8589934592', found['ceph/config.sh'])
        again = json.loads(self.run_command('-f', 'json').out)
        self.assertEqual(([], len(found)), (again['changed'], len(again['unchanged'])))
        self.assertEqual(found, self.content())

    def test_options_are_in_the_files_and_their_heads(self):
        self.run_command(
            *('--rbd-user', 'nova', '--rbd-secret-uuid', _SECRET, '--nova-pool', 'roots'),
            *('--osds-per-device', '2', '--vcpus-per-osd', '3', '--huge-pages'),
        )
        found = self.content()
        nova = found['hosts/hci-1/etc/nova/nova.conf.d/90-trove-ceph-hci.conf']
        for line in (
            'rbd_user = nova',
            f'rbd_secret_uuid = {_SECRET}',
            'images_rbd_pool = roots',
            '# from hci.yaml with --osds-per-device 2 --vcpus-per-osd 3, SHA-256 ',
        ):
            self.assertIn(line, nova)
        self.assertIn('osds_per_device: 2', found['ceph/osds/hci-1.yaml'])
        self.assertIn('hosts/hci-1/etc/tmpfiles.d/trove-ceph-hci.conf', found)

    def test_names_that_no_file_may_have(self):
        for option, value, expected in (
            ('--rbd-user', 'client.nova', 'without "client."'),
            ('--rbd-user', '', 'a user of Ceph'),
            ('--nova-pool', 'my pool', 'a name of letters'),
            ('--nova-pool', 'vms\nrbd_user = admin', 'a name of letters'),
            ('--rbd-secret-uuid', _SECRET[:-1], f'a UUID such as {_SECRET}'),
            ('--rbd-secret-uuid', f'{_SECRET}\n', 'a UUID'),
        ):
            result = self.run_command(option, value, status=2)
            self.assertIn(f'argument {option}: must be ', result.err)
            self.assertIn(expected, result.err)
            self.assertFalse(self.output.exists())

    def test_a_plan_that_must_not_be_deployed_is_not_written(self):
        result = self.run_command('--guests-per-host', '27', status=2)
        self.assertIn('the plan must not be deployed', result.err)
        self.assertIn('27 databases', result.err)
        self.assertFalse(self.output.exists())

    def test_files_of_another_origin(self):
        path = self.output / 'ceph' / 'config.sh'
        path.parent.mkdir(parents=True)
        path.write_text('mine\n')
        result = self.run_command(status=2)
        self.assertIn('ceph/config.sh were not written by this command', result.err)
        self.assertEqual({'ceph/config.sh': 'mine\n'}, self.content())
        self.run_command('--force')
        self.assertIn('ceph config set', self.content()['ceph/config.sh'])

    def test_files_of_a_host_that_is_gone(self):
        self.run_command()
        text = re.sub(r'\n  hci-5: .*', '', self.file.read_text())
        self.file.write_text(text)
        out = self.run_command().out
        self.assertIn('left over from an earlier run: devstack/hci-5/local.conf\n', out)
        self.assertIn('left over from an earlier run: ceph/osds/hci-5.yaml\n', out)


class SettingsTest(base.BaseTestCase):
    def run_command(self, *words):
        result = command.run('hci', 'settings', *words)
        self.assertEqual(0, result.status, result)
        return result.out

    def test_table(self):
        out = self.run_command()
        self.assertRegex(out, r'\| sysctl +\| vm.swappiness +\| kept +\| 1 ')
        self.assertRegex(out, r'\| osd_enable_op_tracker +\| dropped +\| - ')

    def test_document(self):
        found = {one['name']: one for one in json.loads(self.run_command('-f', 'json'))}
        self.assertIn('mClock', str(found['osd_mclock_profile']['sources']))
        self.assertEqual('125829120', found['net.core.rmem_max']['seeds'][0]['value'])
        self.assertIsNone(found['net.core.rmem_max']['value'])

    def test_filters(self):
        words = ('--area', 'ceph', '--verdict', 'added', '-f', 'json')
        found = json.loads(self.run_command(*words))
        self.assertEqual({('ceph', 'added')}, {(one['area'], one['verdict']) for one in found})
