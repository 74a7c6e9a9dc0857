# SPDX-License-Identifier: Apache-2.0
"""Stopping the lab, and removing only what belongs to it."""

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
    """No command is executed: each is recorded and answered here."""

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
        args = [str(argument) for argument in command]
        args[0] = Path(args[0]).name
        self.commands.append(args)
        done = mock.Mock(returncode=self.codes.get(args[0], 0), stdout='', stderr='it is busy')
        if args[0] == 'ovsdb-tool' and not done.returncode:
            self.assertEqual(['query', f'{self.root}/{_DATABASE}'], args[1:3])
            self.assertEqual('Interface', json.loads(args[3])[1]['table'])
            done.stdout = json.dumps([{'rows': [{'name': name} for name in self.interfaces]}])
        return done

    def _other_commands(self):
        return [args for args in self.commands if args[0] != 'ovsdb-tool']

    def _removed_devices(self):
        return [args[3] for args in self.commands if args[:3] == ['ip', 'link', 'delete']]

    def _do(self, command, cache=False, results=False):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            args = argparse.Namespace(cache=cache, results=results)
            self.assertEqual(0, command(self.settings, args))
        return out.getvalue()

    def _supervisord(self):
        process = self.sleep('supervisord', '-c', f'{self.root}/etc/supervisord.conf')
        self.write('run/supervisord.pid', str(process.pid))
        self.write('ansible/bin/supervisorctl')
        return process

    def _record_terminated(self):
        """Return a list to which terminated processes are added, in order."""
        terminated, terminate = [], processes.terminate

        def record(pids, timeout_sec):
            terminated.extend(pids)
            return terminate(pids, timeout_sec)

        self.useFixture(fixtures.MonkeyPatch('driver.processes.terminate', record))
        return terminated


class DownTest(StopTestCase):
    def test_stops_nova_before_its_guests(self):
        supervisord = self._supervisord()
        guest = self.guest('instance-00000001', self.root)
        terminated, calls = self._record_terminated(), []
        run = self._run

        def record(command, **options):
            calls.append((command[-2:], guest.poll()))
            return run(command, **options)

        self.useFixture(fixtures.MonkeyPatch('subprocess.run', record))
        self._do(stop.down)
        self.assertEqual([(['stop', 'nova-compute'], None)], calls)
        self.assertEqual([guest.pid, supervisord.pid], terminated)
        self.assertEqual(-15, guest.wait(5))

    def test_stops_an_orphaned_nova_before_its_guests(self):
        service = self.sleep(root=self.root)
        nova = self.sleep_as('nova-compute', root=self.root)
        guest = self.guest('instance-00000001', self.root)
        terminated = self._record_terminated()
        self._do(stop.down)
        self.assertEqual([nova.pid, guest.pid, service.pid], terminated)

    def test_stops_all_processes_of_the_lab_and_no_other(self):
        supervisord, orphan = self._supervisord(), self.sleep(root=self.root)
        other = self.sleep(root='/opt/another')
        self._do(stop.down)
        self.assertEqual((-15, -15), (supervisord.wait(5), orphan.wait(5)))
        self.assertIsNone(other.poll())

    def test_leaves_foreign_guests_alone(self):
        others = [
            self.guest('instance-00000001', '/var/lib'),
            self.guest('instance-00000002', f'{self.root}-two'),
            self.guest('win11', self.root),
        ]
        ours = self.guest('instance-00000001', self.root)
        self._do(stop.down)
        self.assertEqual(-15, ours.wait(5))
        self.assertEqual([None] * 3, [guest.poll() for guest in others])

    def test_removes_bridges_and_taps_of_the_switch(self):
        self.write(_DATABASE)
        self.devices = {'eth0', 'br-mgmt', 'ovs-netdev', 'tap-ours', 'tap-other', 'br-other'}
        # It also has a tap whose guest is gone, and a port that must stay.
        self.interfaces = ['br-mgmt', 'eth0', 'tap-ours', 'tap-gone']
        self._do(stop.down)
        self.assertEqual(['tap-ours', 'br-mgmt', 'ovs-netdev'], self._removed_devices())

    def test_removes_bridges_despite_a_broken_switch_database(self):
        self.write(_DATABASE)
        self.devices = {'br-mgmt', 'tap-ours'}
        self.codes['ovsdb-tool'] = 1
        self._do(stop.down)
        self.assertEqual(['br-mgmt'], self._removed_devices())

    def test_clears_interrupted_inspections(self):
        self.write('venv/bin/python')
        self.write('run/verification/inspect-1/owner')
        self._do(stop.down)
        expected = ['python', '-W', 'ignore', '-c', stop.CLEAR_INSPECTIONS]
        self.assertEqual([[*expected, f'{self.root}/run/verification']], self.commands)

    def test_works_without_packages(self):
        self.write(_DATABASE)
        self.devices = {'br-mgmt'}
        self.useFixture(fixtures.MonkeyPatch('shutil.which', lambda name: None))
        self._do(stop.down)
        self.assertEqual([['ip', 'link', 'delete', 'br-mgmt']], self.commands)

    def test_keeps_foreign_bridges(self):
        self.devices = {'br-int', 'br-ex'}
        self._do(stop.down)
        self.assertEqual([], self.commands)

    def test_keeps_data(self):
        kept = self.write('state/ceph/osd.0/block.img')
        self._do(stop.down)
        self.assertTrue(kept.exists())

    def test_can_be_repeated(self):
        self._supervisord()
        self._do(stop.down)
        self.commands.clear()
        self._do(stop.down)
        self.assertEqual([], self.commands)

    def test_refuses_during_another_run(self):
        with up.exclusive():
            error = self.assertRaises(LabError, self._do, stop.down)
        self.assertIn('another run is in progress', str(error))
        self._do(stop.down)

    def test_without_root(self):
        self.useFixture(fixtures.MonkeyPatch('os.geteuid', lambda: 1000))
        self.assertIn('root is needed', str(self.assertRaises(LabError, self._do, stop.clean)))
        self.assertEqual([], self.commands)


class ClearInspectionsTest(base.BaseTestCase):
    def test_code_that_runs_in_the_labs_environment(self):
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

    def test_keeps_the_cache_unless_requested(self):
        self.assertIn(f'{self.settings.cache} stays', self._do(stop.clean))
        self.assertFalse(self.root.exists())
        self.assertTrue(self.settings.cache.exists())
        self.assertNotIn('stays', self._do(stop.clean, cache=True))
        self.assertFalse(self.settings.cache.exists())
        self.assertTrue(self.precious.exists())

    def test_keeps_results_of_benchmarks_unless_requested(self):
        result = self.write('bench/quick-20260101-000000/run.json')
        for _attempt in range(2):
            self.assertIn(f'{self.settings.results} stays', self._do(stop.clean))
            self.assertEqual({self.settings.mark, self.settings.results}, set(self.root.iterdir()))
            self.assertTrue(result.exists())
        self.assertNotIn(str(self.settings.results), self._do(stop.clean, results=True))
        self.assertFalse(self.root.exists())

    def test_ceph_detaches_its_devices_before_files_are_removed(self):
        self._do(stop.clean)
        home = f'{self.root}/state/ceph'
        self.assertEqual([['ceph-cluster', '--root', home, 'destroy']], self._other_commands())

    def test_removes_nothing_if_ceph_cannot_be_destroyed(self):
        self.codes['ceph-cluster'] = 1
        error = self.assertRaises(LabError, self._do, stop.clean)
        self.assertIn('could not remove', str(error))
        self.assertTrue((self.root / 'state/ceph/ceph.conf').exists())
        self.codes.clear()
        self._do(stop.clean)
        self.assertFalse(self.root.exists())

    def _define(self, name, root):
        definition = self.libvirt / 'qemu' / f'{name}.xml'
        definition.parent.mkdir(parents=True, exist_ok=True)
        definition.write_text(f"<domain><log file='{root}/state/console.log'/></domain>")
        return definition

    def test_removes_definitions_of_guests(self):
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

    def test_removes_the_secret(self):
        folder = self.libvirt / 'secrets'
        folder.mkdir(parents=True)
        other = folder / '00000000-6d0e-4c39-9a41-5d1c7f0b7e52.xml'
        for path in (other, *(folder / f'{stop.SECRET_UUID}.{end}' for end in ('xml', 'base64'))):
            path.touch()
        self._do(stop.clean)
        self.assertEqual([other], list(folder.iterdir()))

    def test_id_of_the_secret_matches_the_playbook(self):
        variables = (LAB / 'group_vars/all.yml').read_text()
        self.assertIn(f'cinder_secret_uuid: {stop.SECRET_UUID}\n', variables)

    def test_restores_libvirts_configuration(self):
        conf = self.libvirt / 'qemu.conf'
        conf.parent.mkdir()
        conf.write_text(_QEMU)
        self._do(stop.clean)
        self.assertEqual('max_core = 0\nvnc_tls = 1\n', conf.read_text())
        self._do(stop.clean)
        self.assertEqual('max_core = 0\nvnc_tls = 1\n', conf.read_text())

    def test_leaves_a_directory_without_the_mark_alone(self):
        self.settings.mark.unlink()
        process = self.sleep(root=self.root)
        error = self.assertRaises(LabError, self._do, stop.clean)
        self.assertIn(f'{self.root} has no file .trove-ceph-lab', str(error))
        self.assertTrue((self.root / 'state/ceph/ceph.conf').exists())
        self.assertIsNone(process.poll())
        self.assertEqual([], self.commands)

    def test_leaves_a_cache_without_its_lock_alone(self):
        (self.settings.cache / 'lock').unlink()
        precious = self.settings.cache / 'precious'
        precious.touch()
        error = self.assertRaises(LabError, self._do, stop.clean, cache=True)
        self.assertIn(f'{self.settings.cache} has no file lock', str(error))
        self.assertTrue(precious.exists())
        self.assertTrue((self.root / 'state/ceph/ceph.conf').exists())
        self._do(stop.clean)
        self.assertFalse(self.root.exists())

    def test_refuses_a_root_that_is_a_file(self):
        self.settings.values['root'] = str(self.precious)
        self.assertRaises(LabError, self._do, stop.clean)
        self.assertTrue(self.precious.exists())

    def test_removes_the_mark_last(self):
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
