# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import stat
import subprocess
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.mysql import installation, mysqld


class FakeInstallation:
    """A stand-in for mysqld: a shell script that receives the options."""

    def __init__(self, script):
        self.script = script
        self.options = []

    def paths(self, volume, run):
        return '/inside/data', '/inside/run'

    def user(self):
        return 'mysql', os.geteuid(), os.getegid()

    def spawn(self, options, volume, run, environment, console):
        self.options.append(list(options))
        return subprocess.Popen(
            ['sh', '-c', self.script, 'sh', *options],
            env=environment,
            stdout=console,
            stderr=console,
        )

    def disclose(self):
        return {'version': 'Ver 9.7.4'}


class MysqldTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.place = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def server(self, script='exit 0', options=None, my_cnf=None):
        self.source = FakeInstallation(script)
        return mysqld.Mysqld(self.source, self.place, self.place / 'run', options, my_cnf)

    def test_given_options_come_before_paths_and_after_defaults(self):
        my_cnf = self.place / 'given.cnf'
        my_cnf.write_text('[mysqld]\n')
        server = self.server(options={'skip_networking': False, 'datadir': '/x'}, my_cnf=my_cnf)

        server.ensure_initialised()

        (options,) = self.source.options
        self.assertEqual('--defaults-file=/inside/run/my.cnf', options[0])
        self.assertEqual('[mysqld]\n', (self.place / 'run' / 'my.cnf').read_text())
        self.assertLess(options.index('--skip-networking'), options.index('--skip_networking=OFF'))
        self.assertLess(options.index('--datadir=/x'), options.index('--datadir=/inside/data'))
        self.assertEqual('--initialize-insecure', options[-1])

    def test_socket_is_private(self):
        """Root has no password, so access to the socket is a login."""
        run, owned = self.place / 'deep' / 'run', []
        # The directory exists from an earlier start; it is private before its owner changes.
        run.mkdir(mode=0o777, parents=True)
        server = mysqld.Mysqld(FakeInstallation(''), self.place, run)

        def own(path, uid, gid):
            owned.append((path, uid, gid, stat.S_IMODE(path.stat().st_mode)))

        with mock.patch('os.chown', own):
            server.prepare_run()

        self.assertEqual([(run, os.geteuid(), os.getegid(), 0o700)], owned)

    def test_existing_data_is_not_initialised(self):
        server = self.server()
        server.data.mkdir()
        (server.data / 'ibdata1').touch()

        server.ensure_initialised()

        self.assertEqual([], self.source.options)

    def test_failed_initialisation_leaves_no_data(self):
        server = self.server('echo out of memory; exit 1')

        error = self.assertRaises(exceptions.ServerFailedError, server.ensure_initialised)

        self.assertIn('out of memory', str(error))
        self.assertFalse(server.data.exists())

    def test_failed_start_is_reported_with_the_log(self):
        server = self.server('echo unknown variable; exit 1')
        server.data.mkdir()
        (server.data / 'ibdata1').touch()

        error = self.assertRaises(exceptions.ServerFailedError, server.__enter__)

        self.assertIn('unknown variable', str(error))
        self.assertIsNone(server.pid)

    def test_refused_option(self):
        script = """echo "[ERROR] unknown variable 'old_size=50M'."; exit 1"""
        server = self.server(script, {'old': 1, 'old_size': '50M'})

        self.assertEqual('old_size', server.find_refused_option())

    def test_other_refusal_is_an_error(self):
        server = self.server('echo no memory; exit 1', {'a': 1})

        error = self.assertRaises(exceptions.ServerFailedError, server.find_refused_option)

        self.assertIn('no memory', str(error))

    def test_all_options_accepted(self):
        self.assertIsNone(self.server(options={'a': 1}).find_refused_option())


class InstallationTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.cache = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def test_newest_rootfs(self):
        for age, name in enumerate(('mysql-rootfs-b', 'mysql-rootfs-a', 'guest-c')):
            (self.cache / name / 'rootfs').mkdir(parents=True)
            os.utime(self.cache / name, (1000 - age, 1000 - age))
        (self.cache / 'mysql-rootfs-half-built').mkdir()

        self.assertEqual(
            self.cache / 'mysql-rootfs-b' / 'rootfs', installation.find_newest_rootfs(self.cache)
        )

    def test_empty_cache(self):
        self.assertIsNone(installation.find_newest_rootfs(self.cache / 'missing'))

    def test_user_of_a_rootfs(self):
        (self.cache / 'etc').mkdir()
        (self.cache / 'etc' / 'passwd').write_text(
            'root:x:0:0::/:\nmysql:x:999:998::/var/lib/mysql:/usr/sbin/nologin\n'
        )

        self.assertEqual(('mysql', 999, 998), installation.Rootfs(self.cache).user())

    def test_a_rootfs_without_mysql(self):
        (self.cache / 'etc').mkdir()
        (self.cache / 'etc' / 'passwd').write_text('root:x:0:0::/:\n')

        self.assertRaises(exceptions.ServerFailedError, installation.Rootfs(self.cache).user)

    def test_user_in_place_is_that_of_the_process_or_the_given_one(self):
        here = installation.InPlace().user()
        self.assertEqual((str(os.geteuid()), os.geteuid(), os.getegid()), here)
        self.assertEqual(('1001', 1001, 1002), installation.InPlace((1001, 1002)).user())
