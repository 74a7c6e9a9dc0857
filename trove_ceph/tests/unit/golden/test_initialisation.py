# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import struct

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.golden import initialisation
from trove_ceph.host import bubblewrap
from trove_ceph.mysql import fixed_options
from trove_ceph.verification import report

ROOT = pathlib.Path('/srv/mysql-9.7')
LOG = """\
2026-11-25T10:00:00.000000Z 6 [Note] [MY-010454] [Server] A temporary password is generated for \
root@localhost: secret
2026-11-25T10:00:01.000000Z 0 [ERROR] [MY-012592] [InnoDB] Operating system error number 28.
"""


class FakeProcess:
    """mysqld --initialize, which ends when it is waited for."""

    stdin = stdout = None

    def __init__(self, code):
        self._code = code
        self.killed = False

    def wait(self, _timeout_sec):
        return self._code

    def kill(self):
        self.killed = True


class InitialiseTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.code = 0
        self.version = (9, 7, 4)
        #: The files of the data directory, besides those that a server needs.
        self.files = ['auto.cnf']
        self.log = ''
        self.spawned = []
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.host.bubblewrap.spawn', self.spawn))
        self.useFixture(fixtures.MonkeyPatch('os.chown', lambda *_: None))

    def spawn(self, command, view, limits, group, environment, outside, errors):
        self.spawned.append((command, view, limits))
        (view.writable['/run/mysqld'] / 'mysqld.log').write_text(self.log)
        data = view.writable['/var/lib/mysql'] / 'data'
        data.mkdir()
        (data / 'ibdata1').write_bytes(bytes(4096))
        number = self.version[0] * 10000 + self.version[1] * 100 + self.version[2]
        (data / 'mysql.ibd').write_bytes(struct.pack('>8xI84x', number))
        for name in self.files:
            (data / name).write_text('x')
        self.process = FakeProcess(self.code)
        return self.process

    def initialise(self, version='9.7.4', check=lambda: None):
        settings = report.InspectionSettings(
            roots={'9.7': ROOT},
            directory=self.directory,
            memory_bytes=2**30,
            bytes_per_sec=0,
            time_limit_sec=60,
            deep=False,
            sample_tables=1,
            sample_bytes=1,
        )
        return initialisation.Initialiser(settings).initialise(version, self.directory, check)

    def test_a_directory_for_a_volume(self):
        volume = self.initialise()
        self.assertEqual(['data'], os.listdir(volume))
        self.assertEqual(0o755, volume.stat().st_mode & 0o777)
        ((command, view, limits),) = self.spawned
        self.assertEqual((ROOT, {}), (view.root, dict(view.read_only)))
        self.assertGreater(limits.uid, report.FIRST_UID)
        self.assertEqual(['mysqld', '--no-defaults', '--initialize'], command[:3])
        self.assertIn('--skip-log-bin=ON', command)
        path = fixed_options.INITIAL['innodb_data_file_path']
        self.assertIn(f'--innodb-data-file-path={path}', command)

    def test_no_identity_is_left(self):
        volume = self.initialise()
        self.assertEqual({'ibdata1', 'mysql.ibd'}, set(os.listdir(volume / 'data')))

    def test_refuses_keys_that_all_instances_would_share(self):
        self.files = ['private_key.pem', 'ca.pem']
        error = self.assertRaises(exceptions.ServerFailedError, self.initialise)
        self.assertIn('made ca.pem, private_key.pem, which', str(error))

    def test_refuses_another_version_than_that_of_the_guests(self):
        self.version = (9, 7, 3)
        error = self.assertRaises(exceptions.NotInspectableError, self.initialise)
        self.assertIn('for MySQL 9.7.4 is of version 9.7.3: add an entry 9.7.4', str(error))

    def test_refuses_a_version_without_a_server(self):
        self.assertRaises(exceptions.NotInspectableError, self.initialise, '8.4.6')
        self.assertEqual([], self.spawned)

    def test_a_server_that_fails(self):
        self.code, self.log = 1, LOG
        error = self.assertRaises(exceptions.ServerFailedError, self.initialise)
        self.assertIn('exit code 1: MY-012592 Operating system error number 28.', str(error))
        self.assertNotIn('secret', str(error))

    def test_a_sandbox_that_fails(self):
        self.code = 1
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.host.bubblewrap.find_error', lambda *_: 'bwrap: no')
        )
        error = self.assertRaises(exceptions.ServerFailedError, self.initialise)
        self.assertIn('exit code 1: bwrap: no', str(error))

    def test_stops_the_server_when_asked(self):
        def stop():
            raise exceptions.CanceledError('canceled')

        self.assertRaises(exceptions.CanceledError, self.initialise, check=stop)
        self.assertTrue(self.process.killed)

    def test_the_view_of_the_server(self):
        """It has nothing of the host but its own directories."""
        self.initialise()
        ((_, view, _),) = self.spawned
        self.assertIsInstance(view, bubblewrap.View)
        self.assertEqual(
            {
                '/var/lib/mysql': self.directory / 'volume',
                '/run/mysqld': self.directory / 'run',
            },
            dict(view.writable),
        )
