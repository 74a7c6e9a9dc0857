# SPDX-License-Identifier: Apache-2.0
"""Stopping the lab, and giving back what is the lab's and nothing else."""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import fixtures
from driver import processes, stop, up
from driver.errors import LabError
from oslotest import base

from trove_ceph.host import processes as processes_of_host
from trove_ceph.tests.unit.lab import LAB
from trove_ceph.tests.unit.lab.lab_process import LabTestCase

_DATABASE = 'state/ovn/switch.db'
_QEMU = 'max_core = 0\n# BEGIN trove-ceph lab\nuser = "root"\n# END trove-ceph lab\nvnc_tls = 1\n'


class StopTestCase(LabTestCase):
    """No command leaves the test: each is recorded and answered here."""

    def setUp(self):
        super().setUp()
        self.commands = []
        self.devices = set()
        self.interfaces = []
        self.codes = {}
        self.libvirt = self.directory / 'libvirt'
        exists = os.path.exists
        for name, value in (
            ('subprocess.run', self._run),
            ('shutil.which', lambda name: f'/usr/bin/{name}'),
            ('os.geteuid', lambda: 0),
            (
                'os.path.exists',
                lambda path: (
                    Path(path).name in self.devices
                    if str(path).startswith('/sys/class/net/')
                    else exists(path)
                ),
            ),
            ('driver.up.LOCK', str(self.directory / 'lock')),
            ('driver.stop.LIBVIRT', self.libvirt),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))

    def _run(self, command, **_options):
        words = [str(word) for word in command]
        words[0] = Path(words[0]).name
        self.commands.append(words)
        done = mock.Mock(returncode=self.codes.get(words[0], 0), stdout='', stderr='it is busy')
        if words[0] == 'ovsdb-tool' and not done.returncode:
            self.assertEqual(['query', f'{self.root}/{_DATABASE}'], words[1:3])
            self.assertEqual('Interface', json.loads(words[3])[1]['table'])
            done.stdout = json.dumps([{'rows': [{'name': name} for name in self.interfaces]}])
        return done

    def _verbs(self):
        return [words for words in self.commands if words[0] != 'ovsdb-tool']

    def _removed_devices(self):
        return [words[3] for words in self.commands if words[:3] == ['ip', 'link', 'delete']]

    def _do(self, command, cache=False):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            self.assertEqual(0, command(self.settings, argparse.Namespace(cache=cache)))
        return out.getvalue()

    def _supervisord(self):
        process = self.sleep('supervisord', '-c', f'{self.root}/etc/supervisord.conf')
        self.write('run/supervisord.pid', str(process.pid))
        self.write('ansible/bin/supervisorctl')
        return process

    def _order_of_ends(self):
        """Record which processes are ended, in order."""
        ended, end = [], processes.end

        def record(pids, timeout_sec):
            ended.extend(pids)
            return end(pids, timeout_sec)

        self.useFixture(fixtures.MonkeyPatch('driver.processes.end', record))
        return ended


class DownTest(StopTestCase):
    def test_nova_does_not_see_its_guests_go(self):
        supervisord = self._supervisord()
        guest = self.guest('instance-00000001', self.root)
        ended, told = self._order_of_ends(), []
        run = self._run

        def note(command, **options):
            told.append((command[-2:], guest.poll()))
            return run(command, **options)

        self.useFixture(fixtures.MonkeyPatch('subprocess.run', note))
        self._do(stop.down)
        self.assertEqual([(['stop', 'nova-compute'], None)], told)
        self.assertEqual([guest.pid, supervisord.pid], ended)
        self.assertEqual(-15, guest.wait(5))

    def test_nova_left_by_a_dead_supervisord_does_not_see_them_go_either(self):
        service = self.sleep(root=self.root)
        nova = self.sleep_as('nova-compute', root=self.root)
        guest = self.guest('instance-00000001', self.root)
        ended = self._order_of_ends()
        self._do(stop.down)
        self.assertEqual([nova.pid, guest.pid, service.pid], ended)

    def test_every_process_of_the_lab_ends_and_no_other(self):
        supervisord, orphan = self._supervisord(), self.sleep(root=self.root)
        other = self.sleep(root='/opt/another')
        self._do(stop.down)
        self.assertEqual((-15, -15), (supervisord.wait(5), orphan.wait(5)))
        self.assertIsNone(other.poll())

    def test_guests_of_others_are_left_alone(self):
        others = [
            self.guest('instance-00000001', '/var/lib'),
            self.guest('instance-00000002', f'{self.root}-two'),
            self.guest('win11', self.root),
        ]
        ours = self.guest('instance-00000001', self.root)
        self._do(stop.down)
        self.assertEqual(-15, ours.wait(5))
        self.assertEqual([None] * 3, [guest.poll() for guest in others])

    def test_bridges_and_taps_that_the_switch_knows_are_removed(self):
        self.write(_DATABASE)
        self.devices = {'eth0', 'br-mgmt', 'ovs-netdev', 'tap-ours', 'tap-other', 'br-other'}
        # It also knows a tap that went with its guest, and a port that nobody may remove.
        self.interfaces = ['br-mgmt', 'eth0', 'tap-ours', 'tap-gone']
        self._do(stop.down)
        self.assertEqual(['tap-ours', 'br-mgmt', 'ovs-netdev'], self._removed_devices())

    def test_broken_database_of_the_switch(self):
        self.write(_DATABASE)
        self.devices = {'br-mgmt', 'tap-ours'}
        self.codes['ovsdb-tool'] = 1
        self._do(stop.down)
        self.assertEqual(['br-mgmt'], self._removed_devices())

    def test_inspections_that_were_cut_off_give_back_what_they_held(self):
        self.write('venv/bin/python')
        self.write('run/verification/inspect-1/owner')
        self._do(stop.down)
        expected = ['python', '-W', 'ignore', '-c', stop.CLEAR_INSPECTIONS]
        self.assertEqual([[*expected, f'{self.root}/run/verification']], self.commands)

    def test_packages_are_gone(self):
        self.write(_DATABASE)
        self.devices = {'br-mgmt'}
        self.useFixture(fixtures.MonkeyPatch('shutil.which', lambda name: None))
        self._do(stop.down)
        self.assertEqual([['ip', 'link', 'delete', 'br-mgmt']], self.commands)

    def test_bridges_of_others_stay_where_the_lab_has_none(self):
        self.devices = {'br-int', 'br-ex'}
        self._do(stop.down)
        self.assertEqual([], self.commands)

    def test_data_stays(self):
        kept = self.write('state/ceph/osd.0/block.img')
        self._do(stop.down)
        self.assertTrue(kept.exists())

    def test_twice(self):
        self._supervisord()
        self._do(stop.down)
        self.commands.clear()
        self._do(stop.down)
        self.assertEqual([], self.commands)

    def test_while_another_run_is_under_way(self):
        with up.exclusive():
            error = self.assertRaises(LabError, self._do, stop.down)
        self.assertIn('another run is under way', str(error))
        self._do(stop.down)

    def test_without_root(self):
        self.useFixture(fixtures.MonkeyPatch('os.geteuid', lambda: 1000))
        self.assertIn('root is needed', str(self.assertRaises(LabError, self._do, stop.clean)))
        self.assertEqual([], self.commands)


class ClearInspectionsTest(base.BaseTestCase):
    def test_what_runs_in_the_environment_of_the_lab(self):
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        for name, owner in (('inspect-1', '1 0'), ('inspect-2', processes_of_host.identity(1))):
            (directory / name).mkdir()
            (directory / name / 'owner').write_text(owner)
        command = [sys.executable, '-W', 'ignore', '-c', stop.CLEAR_INSPECTIONS, str(directory)]
        subprocess.run(command, check=True)
        self.assertEqual(['inspect-2'], os.listdir(directory))


class CleanTest(StopTestCase):
    def setUp(self):
        super().setUp()
        self.write('state/ceph/ceph.conf')
        self.settings.cache.mkdir()
        (self.settings.cache / 'lock').touch()
        self.precious = self.directory / 'precious'
        self.precious.touch()

    def test_cache_stays_unless_asked_for(self):
        self.assertIn(f'the cache {self.settings.cache} stays', self._do(stop.clean))
        self.assertFalse(self.root.exists())
        self.assertTrue(self.settings.cache.exists())
        self.assertNotIn('stays', self._do(stop.clean, cache=True))
        self.assertFalse(self.settings.cache.exists())
        self.assertTrue(self.precious.exists())

    def test_ceph_gives_its_devices_back_before_its_files_go(self):
        self._do(stop.clean)
        home = f'{self.root}/state/ceph'
        self.assertEqual([['ceph-cluster', '--root', home, 'destroy']], self._verbs())

    def test_nothing_is_removed_while_ceph_holds_it(self):
        self.codes['ceph-cluster'] = 1
        error = self.assertRaises(LabError, self._do, stop.clean)
        self.assertIn('could not remove', str(error))
        self.assertTrue((self.root / 'state/ceph/ceph.conf').exists())
        self.codes.clear()
        self._do(stop.clean)
        self.assertFalse(self.root.exists())

    def _define(self, name, place):
        definition = self.libvirt / 'qemu' / f'{name}.xml'
        definition.parent.mkdir(parents=True, exist_ok=True)
        definition.write_text(f"<domain><log file='{place}/state/console.log'/></domain>")
        return definition

    def test_guests_are_forgotten(self):
        ours = self._define('instance-00000001', self.root)
        others = [
            self._define('instance-00000002', '/var/lib'),
            self._define('instance-00000003', f'{self.root}-two'),
            self._define('instance-00000004', f'/mnt{self.root}'),
            self._define('windows', self.root),
        ]
        self._do(stop.down)
        self.assertTrue(ours.exists())
        self._do(stop.clean)
        self.assertFalse(ours.exists())
        self.assertEqual([True] * 4, [definition.exists() for definition in others])

    def test_key_is_forgotten(self):
        folder = self.libvirt / 'secrets'
        folder.mkdir(parents=True)
        other = folder / '00000000-6d0e-4c39-9a41-5d1c7f0b7e52.xml'
        for path in (other, *(folder / f'{stop.SECRET_UUID}.{end}' for end in ('xml', 'base64'))):
            path.touch()
        self._do(stop.clean)
        self.assertEqual([other], list(folder.iterdir()))

    def test_name_of_the_key_is_that_of_the_playbook(self):
        variables = (LAB / 'group_vars/all.yml').read_text()
        self.assertIn(f'cinder_secret_uuid: {stop.SECRET_UUID}\n', variables)

    def test_libvirt_gets_its_configuration_back(self):
        conf = self.libvirt / 'qemu.conf'
        conf.parent.mkdir()
        conf.write_text(_QEMU)
        self._do(stop.clean)
        self.assertEqual('max_core = 0\nvnc_tls = 1\n', conf.read_text())
        self._do(stop.clean)
        self.assertEqual('max_core = 0\nvnc_tls = 1\n', conf.read_text())

    def test_place_without_the_mark_is_left_alone(self):
        self.settings.mark.unlink()
        process = self.sleep(root=self.root)
        error = self.assertRaises(LabError, self._do, stop.clean)
        self.assertIn(f'{self.root} has no .trove-ceph-lab', str(error))
        self.assertTrue((self.root / 'state/ceph/ceph.conf').exists())
        self.assertIsNone(process.poll())
        self.assertEqual([], self.commands)

    def test_cache_without_its_lock_is_left_alone(self):
        (self.settings.cache / 'lock').unlink()
        precious = self.settings.cache / 'precious'
        precious.touch()
        error = self.assertRaises(LabError, self._do, stop.clean, cache=True)
        self.assertIn(f'{self.settings.cache} has no lock', str(error))
        self.assertTrue(precious.exists())
        self.assertTrue((self.root / 'state/ceph/ceph.conf').exists())
        self._do(stop.clean)
        self.assertFalse(self.root.exists())

    def test_place_that_is_a_file(self):
        self.settings.values['root'] = str(self.precious)
        self.assertRaises(LabError, self._do, stop.clean)
        self.assertTrue(self.precious.exists())

    def test_mark_goes_last_so_that_an_interruption_can_be_made_good(self):
        for number in range(20):
            self.write(f'file{number}')
        (self.root / 'link').symlink_to(self.directory)
        removed, unlink = [], os.unlink

        def record(path, **options):
            removed.append(os.path.basename(path))
            unlink(path, **options)

        with mock.patch('os.unlink', record):
            self._do(stop.clean)
        self.assertEqual((23, '.trove-ceph-lab'), (len(removed), removed[-1]))
        # Interrupted after the mark, before the directory.
        self.root.mkdir()
        self._do(stop.clean)
        self.assertFalse(self.root.exists())
        self.assertTrue(self.precious.exists())
