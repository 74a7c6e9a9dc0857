# SPDX-License-Identifier: Apache-2.0
"""The benchmark's targets with a real MySQL, on a local disk and on a real Ceph."""

import contextlib
import dataclasses
import functools
import json
import signal
import subprocess
import sys

import pymysql
import rbd

from trove_ceph import exceptions
from trove_ceph.host import workspace
from trove_ceph.tests.functional import base, ceph, mysqld, ports
from trove_ceph.tests.functional import workspace as workspace_of_tests
from trove_ceph_bench import targets
from trove_ceph_bench.targets import database

POOL = 'volumes-nvme'
SMALL = mysqld.SMALL
READY_TIMEOUT_SEC = 120

# Enters a target and reports it; the rest is up to the test.
OWNER = """
import json, pathlib, sys, time
from trove_ceph_bench import targets
settings = targets.Settings(directory=pathlib.Path(sys.argv[1]))
with targets.create('killed', json.loads(sys.argv[2]), settings):
    print('entered', flush=True)
    time.sleep(1000)
"""


def run(address, statement):
    """Run one statement as a client would and return its rows."""
    address_options = {'unix_socket': address.unix_socket} if address.unix_socket else {}
    with (
        pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            database=address.database,
            autocommit=True,
            **address_options,
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
        return cursor.fetchall()


def is_orphan(device):
    """Return whether a loop device is over the file of a removed export, which has no path."""
    backing_file = workspace.SYSFS / device.removeprefix('/dev/') / 'loop' / 'backing_file'
    try:
        return backing_file.read_text() == '/\n'
    except OSError:
        return False


class TargetsTestCase(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        self.sandboxes = self.directory / 'sandboxes'
        self.disk = self.directory / 'disk'
        for path in (self.sandboxes, self.disk):
            path.mkdir()
        self.settings = targets.Settings(directory=self.sandboxes)

    def spec(self, on, **more):
        source = {'rootfs': str(mysqld.rootfs())}
        return {'server': {'mysqld': source, 'options': SMALL, 'on': on, **more}}

    def local(self, **more):
        return self.spec({'local': str(self.disk)}, **more)

    def make(self, spec):
        return targets.create('t', spec, self.settings)

    def assert_nothing_left(self):
        self.assertEqual([], workspace.members(self.sandboxes))
        self.assertEqual([], workspace.mounts(self.sandboxes))
        self.assertEqual([], workspace.loop_devices(self.sandboxes))
        self.assertEqual([], list(self.sandboxes.iterdir()))
        self.assertEqual([], list(self.disk.iterdir()))


class ServerOnLocalDiskTest(TargetsTestCase):
    def test_serves_while_entered_and_leaves_nothing(self):
        with self.make(self.local()) as target:
            ((schema, rows),) = run(
                target.address,
                'SELECT DATABASE(), COUNT(*) FROM information_schema.tables'
                ' WHERE table_schema = DATABASE()',
            )
            self.assertEqual((target.address.database, 0), (schema, rows))
            self.assertIsNone(target.image)
            self.assertEqual(1, len(list(self.disk.iterdir())))
            disclosed = json.loads(json.dumps(target.disclose()))
            self.assertEqual('67108864', disclosed['mysql']['variables']['innodb_buffer_pool_size'])
            self.assertTrue(disclosed['mysql']['durable'])

        self.assert_nothing_left()

    def test_restart_keeps_data_and_processor_time(self):
        with self.make(self.local()) as target:
            run(target.address, 'CREATE TABLE t (a INT PRIMARY KEY)')
            run(target.address, 'INSERT INTO t VALUES (1)')
            before = target.cpu_sec()

            self.assertTrue(target.restart())

            self.assertEqual(((1,),), run(target.address, 'SELECT a FROM t'))
            self.assertGreater(target.cpu_sec(), before)
        self.assert_nothing_left()

    def test_leaves_nothing_after_an_exception(self):
        with contextlib.suppress(KeyboardInterrupt):
            with self.make(self.local()):
                raise KeyboardInterrupt

        self.assert_nothing_left()

    def test_reports_a_server_that_does_not_start(self):
        target = self.make(self.local(options={'no_such_option': 1}))

        error = self.assertRaises(exceptions.TargetUnavailableError, target.__enter__)

        self.assertIn('no_such_option', str(error))
        self.assert_nothing_left()

    def test_stock_profile_omits_options_that_this_mysql_refuses(self):
        flavor = {'ram_mib': 512, 'vcpus': 1}
        with self.make(self.local(profile='stock', flavor=flavor, options={})) as target:
            disclosed = target.disclose()

        self.assertIn('innodb_log_files_in_group', disclosed['refused_options'])
        self.assertEqual('150M', disclosed['options']['innodb_buffer_pool_size'])
        self.assertEqual('100', disclosed['mysql']['variables']['max_connections'])

    def test_profile_of_trove_ceph(self):
        flavor = {'ram_mib': 768, 'vcpus': 1}
        with self.make(
            self.local(profile='trove-ceph', flavor=flavor, options={'innodb_io_capacity': 777})
        ) as target:
            variables = target.disclose()['mysql']['variables']

        self.assertEqual('O_DIRECT', variables['innodb_flush_method'])
        self.assertEqual('777', variables['innodb_io_capacity'])
        self.assertEqual('3000', variables['innodb_io_capacity_max'])

    def test_runs_a_program_of_this_host_with_an_option_file(self):
        # mysqld's user must reach its data directory and socket.
        self.directory.chmod(0o711)
        root = mysqld.rootfs()
        program = self.directory / 'mysqld'
        libraries = f'{root}/usr/lib/x86_64-linux-gnu:{root}/lib/x86_64-linux-gnu'
        program.write_text(
            f'#!/bin/sh\nexec {root}/lib64/ld-linux-x86-64.so.2 --library-path {libraries}'
            f' {root}/usr/sbin/mysqld "$@"\n'
        )
        program.chmod(0o755)
        my_cnf = self.directory / 'my.cnf'
        my_cnf.write_text(f'[mysqld]\nbasedir={root}/usr\nmax_connections=33\n')
        spec = self.local(mysqld={'binary': str(program)}, my_cnf=str(my_cnf))

        with self.make(spec) as target:
            variables = target.disclose()['mysql']['variables']

        self.assertEqual('33', variables['max_connections'])
        self.assert_nothing_left()


class ServerOnRbdTest(TargetsTestCase):
    def setUp(self):
        super().setUp()
        self.cluster = ceph.shared_cluster()

    def on_rbd(self, **more):
        disk = {'pool': POOL, 'size_gib': 1, 'conf': str(self.cluster.conf), **more}
        return self.spec({'rbd': disk})

    def images(self):
        """Return the benchmark's images; other tests have other images."""
        with self.cluster.pool(POOL) as pool:
            return [name for name in rbd.RBD().list(pool) if name.startswith('trove-ceph-scratch')]

    def test_serves_from_an_image_and_leaves_nothing(self):
        options = {'rbd_qos_iops_limit': 4000}
        with self.make(self.on_rbd(direct=True, image_options=options)) as target:
            self.assertEqual(((1,),), run(target.address, 'SELECT 1'))
            self.assertEqual([target.image.name], self.images())
            disclosed = json.loads(json.dumps(target.disclose()))

        (pool,) = disclosed['ceph']['pools']
        self.assertEqual((POOL, 2, 16), (pool['name'], pool['size'], pool['pg_num']))
        self.assertEqual('nvme', pool['crush_rule']['device_class'])
        self.assertEqual({'rbd_qos_iops_limit': '4000'}, disclosed['ceph']['image']['options'])
        self.assertEqual('xfs', disclosed['storage']['fstype'])
        self.assertIn('noatime', disclosed['storage']['options'])
        self.assertEqual([], self.images())
        self.assert_nothing_left()

    @base.long
    def test_two_servers_stop_in_any_order(self):
        first, second = self.make(self.on_rbd()), self.make(self.on_rbd())
        first.__enter__()
        second.__enter__()

        # The later one was started while the first one's volume was mounted.
        first.__exit__(None, None, None)
        self.assertEqual(((1,),), run(second.address, 'SELECT 1'))
        self.assertEqual([second.image.name], self.images())
        self.assertEqual(1, len(workspace.loop_devices(self.sandboxes)))
        second.__exit__(None, None, None)

        self.assertEqual([], self.images())
        self.assert_nothing_left()

    def test_reports_a_missing_pool(self):
        target = self.make(self.on_rbd(pool='no-such-pool'))

        error = self.assertRaises(exceptions.TargetUnavailableError, target.__enter__)

        self.assertIn('no-such-pool', str(error))
        self.assert_nothing_left()

    @base.long
    def test_clears_remains_of_a_killed_owner(self):
        command = [sys.executable, '-c', OWNER, str(self.sandboxes), json.dumps(self.on_rbd())]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
            try:
                self.assertEqual('entered\n', owner.stdout.readline())
            finally:
                owner.send_signal(signal.SIGKILL)
        self.assertEqual(1, len(self.images()))
        self.assertIn('mysqld', [program for _, program in workspace.members(self.sandboxes)])
        self.assertNotEqual([], workspace.mounts(self.sandboxes))
        (device,) = workspace.loop_devices(self.sandboxes)

        with self.make(self.local()):
            self.assertEqual([], self.images())
            self.assertFalse(is_orphan(device))
            self.assertEqual(1, len(list(self.sandboxes.iterdir())))

        self.assert_nothing_left()


@functools.cache
def listening_server():
    """Return a server for all tests, and its port; it ends with the workspace.

    The cache keeps it alive: the collection of a target that is lost removes its directory.
    """
    directory = workspace_of_tests.shared() / 'listening'
    disk = directory / 'disk'
    disk.mkdir(parents=True)
    port = ports.free_port()
    listen = {'skip_networking': 'OFF', 'port': port, 'bind_address': '127.0.0.1'}
    source = {'rootfs': str(mysqld.rootfs())}
    spec = {'mysqld': source, 'options': listen | SMALL, 'on': {'local': str(disk)}}
    target = targets.create('t', {'server': spec}, targets.Settings(directory=directory))
    return target.__enter__(), port


class DsnTest(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        server, port = listening_server()
        self.root = dataclasses.replace(server.address, database='mysql')
        self.dsn = f'mysql://tenant@127.0.0.1:{port}'
        run(self.root, "CREATE USER tenant IDENTIFIED BY 'right'")
        self.addCleanup(run, self.root, 'DROP USER tenant')

    def tenant(self, password='right'):
        settings = targets.Settings(environment={'SECRET': password})
        return targets.create('t', {'dsn': self.dsn, 'password_env': 'SECRET'}, settings)

    def schemas(self):
        return sorted(row[0] for row in run(self.root, f"SHOW DATABASES LIKE '{database.PREFIX}%'"))

    def test_has_a_schema_of_its_own_inside_the_block(self):
        escaped = database.PREFIX.replace('_', r'\_')
        run(self.root, f'GRANT ALL ON `{escaped}%`.* TO tenant')
        own = self.schemas()
        run(self.root, f'CREATE DATABASE {database.PREFIX}left_by_a_killed_run')

        with self.tenant() as target:
            run(target.address, 'CREATE TABLE t (a INT)')
            self.assertEqual(sorted([target.address.database, *own]), self.schemas())
            self.assertNotIn('"right"', json.dumps(target.disclose()))
            self.assertFalse(target.restart())

        self.assertEqual(own, self.schemas())

    def test_wrong_password(self):
        error = self.assertRaises(exceptions.TargetUnavailableError, self.tenant('wrong').__enter__)

        self.assertIn('check the password', str(error))

    def test_error_names_the_missing_privilege(self):
        error = self.assertRaises(exceptions.TargetUnavailableError, self.tenant().__enter__)

        self.assertIn(r"GRANT ALL ON `trove\_ceph\_bench\_%`.* TO 'tenant'", str(error))
