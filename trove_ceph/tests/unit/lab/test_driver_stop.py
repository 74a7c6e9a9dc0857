# SPDX-License-Identifier: Apache-2.0
"""Stopping the lab, and giving back what is the lab's and nothing else."""

import argparse
import contextlib
import io
import os
from pathlib import Path
from unittest import mock

import fixtures
from driver import stop, up
from driver.errors import LabError

from trove_ceph.tests.unit.lab.lab_process import LabTestCase

_LIBVIRT = '/run/libvirt/libvirt-sock'
_QEMU = 'max_core = 0\n# BEGIN trove-ceph lab\nuser = "root"\n# END trove-ceph lab\nvnc_tls = 1\n'


class StopTestCase(LabTestCase):
    """No command leaves the test: each is recorded and answered here."""

    def setUp(self):
        super().setUp()
        self.commands = []
        self.domains = {}
        self.paths = {_LIBVIRT}
        self.ceph_code = 0
        self.qemu_conf = self.directory / 'qemu.conf'
        exists = os.path.exists
        for name, value in (
            ('subprocess.run', self._run),
            ('shutil.which', lambda name: f'/usr/bin/{name}'),
            ('os.geteuid', lambda: 0),
            (
                'os.path.exists',
                lambda path: (
                    path in self.paths
                    or (path != _LIBVIRT and not str(path).startswith('/sys/') and exists(path))
                ),
            ),
            ('driver.up.LOCK', str(self.directory / 'lock')),
            ('driver.stop.QEMU_CONF', self.qemu_conf),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))

    def _run(self, command, **_options):
        words = [str(word) for word in command]
        words[0] = Path(words[0]).name
        self.commands.append(words)
        done = mock.Mock(returncode=0, stdout='', stderr='')
        if words[:3] == ['virsh', '-q', 'list']:
            done.stdout = '\n'.join(self.domains) + '\n'
        elif words[:3] == ['virsh', '-q', 'dumpxml']:
            done.stdout = f"<domain><log file='{self.domains[words[3]]}'/></domain>"
        elif words[0] == 'ceph-cluster':
            done.returncode, done.stderr = self.ceph_code, 'osd.1 is busy'
        return done

    def _verbs(self):
        reading = (['virsh', '-q', 'list'], ['virsh', '-q', 'dumpxml'])
        return [words for words in self.commands if words[:3] not in reading]

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

    def _guest(self, name, root):
        self.domains[name] = f'{root}/state/nova/instances/u/console.log'


class DownTest(StopTestCase):
    def test_nova_does_not_see_its_guests_go(self):
        self._supervisord()
        self._guest('instance-00000001', self.root)
        self._do(stop.down)
        control = f'{self.root}/etc/supervisord.conf'
        self.assertEqual(
            [
                ['supervisorctl', '-c', control, 'stop', 'nova-compute'],
                ['virsh', '-q', 'destroy', 'instance-00000001'],
            ],
            self._verbs(),
        )

    def test_every_process_of_the_lab_ends_and_no_other(self):
        supervisord, orphan = self._supervisord(), self.sleep(root=self.root)
        other = self.sleep(root='/opt/another')
        self._do(stop.down)
        self.assertEqual((-15, -15), (supervisord.wait(5), orphan.wait(5)))
        self.assertIsNone(other.poll())

    def test_guests_of_others_are_left_alone(self):
        self._guest('instance-00000001', '/var/lib')
        self._guest('instance-00000002', f'{self.root}-two')
        self.domains['win11'] = str(self.root / 'x')
        self._do(stop.down)
        self.assertEqual([], self._verbs())

    def test_bridges_are_removed(self):
        self.paths.add('/sys/class/net/br-mgmt')
        self._do(stop.down)
        self.assertEqual([['ip', 'link', 'delete', 'br-mgmt']], self._verbs())

    def test_data_stays(self):
        kept = self.write('state/ceph/osd.0/block.img')
        self._do(stop.down)
        self.assertTrue(kept.exists())

    def test_twice(self):
        self.paths.clear()
        self._do(stop.down)
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


class CleanTest(StopTestCase):
    def setUp(self):
        super().setUp()
        self.write('state/ceph/ceph.conf')
        self.settings.cache.mkdir()
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
        self.ceph_code = 1
        error = self.assertRaises(LabError, self._do, stop.clean)
        self.assertIn('could not remove', str(error))
        self.assertTrue((self.root / 'state/ceph/ceph.conf').exists())
        self.ceph_code = 0
        self._do(stop.clean)
        self.assertFalse(self.root.exists())

    def test_guests_are_forgotten(self):
        self._guest('instance-00000001', self.root)
        self._guest('instance-00000002', '/var/lib')
        self._do(stop.clean)
        self.assertEqual(
            [['destroy', 'instance-00000001'], ['undefine', 'instance-00000001']],
            [words[2:] for words in self._verbs() if words[0] == 'virsh'],
        )

    def test_libvirt_gets_its_configuration_back(self):
        self.qemu_conf.write_text(_QEMU)
        self._do(stop.clean)
        self.assertEqual('max_core = 0\nvnc_tls = 1\n', self.qemu_conf.read_text())
        self._do(stop.clean)
        self.assertEqual('max_core = 0\nvnc_tls = 1\n', self.qemu_conf.read_text())
