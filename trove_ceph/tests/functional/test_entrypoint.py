# SPDX-License-Identifier: Apache-2.0
"""An interrupted first start of the MySQL container ends like an undisturbed one."""

import concurrent.futures
import os
import random
import subprocess
import time

import fixtures
import pymysql

from trove_ceph.tests.functional import base, container

# Characters with a special meaning for shells, SQL strings and printf.
PASSWORD = "it's \\ a 100%s \"pass`word$'"
ENVIRONMENT = {
    'MYSQL_ROOT_PASSWORD': PASSWORD,
    'MYSQL_DATABASE': 'my_shop',
    'MYSQL_USER': "o'neil",
    'MYSQL_PASSWORD': 'p\\w',
}
# Trove's settings; with them the template of the image is used.
TEMPLATE_FITS = ('--innodb-data-file-path=ibdata1:10M:autoextend',)
REPLICATION = ('--gtid-mode=ON', '--enforce-gtid-consistency=ON', '--log-bin=binlog')
ACCESS_DENIED = 1045
MAX_COMMANDS = 100


class EntrypointTestCase(base.FunctionalTestCase):
    """Create containers and check the result of their first start."""

    def make_container(
        self, name='c', volume=None, environment=None, options=TEMPLATE_FITS, **more
    ):
        directory = self.directory / name
        return self.useFixture(
            container.Container(
                volume or directory / 'volume',
                directory,
                environment or ENVIRONMENT,
                (*options, *REPLICATION),
                **more,
            )
        )

    def assert_denied(self, box, **credentials):
        error = self.assertRaises(
            pymysql.err.OperationalError, box.query, 'SELECT 1', **credentials
        )
        self.assertEqual(ACCESS_DENIED, error.args[0])

    def assert_first_start_right(self, box):
        """Assert the results of an undisturbed first start: accounts, database, sound server."""
        box.wait_until_ready()
        box.wait_until_settled()
        self.assert_denied(box, password='wrong')
        self.assert_denied(box, password='')
        accounts = box.query(
            "SELECT User, Host FROM mysql.user WHERE User NOT LIKE 'mysql.%' ORDER BY 1, 2"
        )
        self.assertEqual((("o'neil", '%'), ('root', '%'), ('root', 'localhost')), accounts)
        login = {'user': "o'neil", 'password': 'p\\w', 'database': 'my_shop'}
        box.query('CREATE TABLE IF NOT EXISTS t (a INT PRIMARY KEY)', **login)
        box.query('REPLACE INTO t VALUES (1)', **login)
        self.assertEqual(((1,),), box.query('SELECT * FROM t', **login))
        checked = box.query('CHECK TABLE mysql.user, mysql.db, my_shop.t')
        self.assertEqual({'OK'}, {row[3] for row in checked})

    def assert_has_elliptic_certificates(self, box):
        """Assert that a running server uses the certificates of the entrypoint."""
        box.wait_until_ready()
        ((_name, valid_until),) = box.query("SHOW GLOBAL STATUS LIKE 'Ssl_server_not_after'")
        self.assertTrue(valid_until)
        # Those of mysqld with RSA keys are longer, and one is for a client.
        self.assertLess(len((box.data / 'ca.pem').read_text()), 1000)
        self.assertFalse((box.data / 'client-key.pem').exists())
        self.assertEqual([], [*box.data.glob('*first-start*')])

    def assert_survives_kill(self, box):
        """Kill the container, start it again and check all results of a first start."""
        box.kill()
        box.start()
        self.assert_first_start_right(box)
        box.kill()


class FirstStartTest(EntrypointTestCase):
    """Undisturbed first starts."""

    def test_starts_from_the_template(self):
        box = self.make_container()
        box.start()
        self.assert_first_start_right(box)
        self.assertIn('unpacking the initialised data directory', box.log())
        self.assert_has_elliptic_certificates(box)

    def test_accounts_are_no_transactions_of_the_server(self):
        box = self.make_container()
        box.start()
        box.wait_until_ready()
        self.assertEqual((('',),), box.query('SELECT @@gtid_executed'))

    def test_initialises_if_the_template_does_not_fit(self):
        box = self.make_container(options=('--lower-case-table-names=1',))
        box.start()
        self.assert_first_start_right(box)
        self.assertIn('initialising a data directory', box.log())
        self.assertEqual(((1,),), box.query('SELECT @@lower_case_table_names'))

    def test_password_from_a_file(self):
        # The guest agent hides the password of Trove by an empty one.
        environment = {
            'MYSQL_ROOT_PASSWORD': '',
            'MYSQL_ROOT_PASSWORD_FILE': '/var/lib/mysql/secret',
        }
        box = self.make_container(environment=environment)
        (box.volume / 'secret').write_text('from-file\n')
        box.start()
        box.environment['MYSQL_ROOT_PASSWORD'] = 'from-file'
        box.wait_until_ready()
        self.assert_denied(box, password='')

    def test_no_password_option(self):
        box = self.make_container(environment={'MYSQL_DATABASE': 'x'})
        box.start()
        self.assertEqual(1, box.wait_for_end())
        self.assertIn('MYSQL_ROOT_PASSWORD', box.log())
        self.assertEqual([], os.listdir(box.data))

    def test_empty_password_and_local_root_only(self):
        environment = {'MYSQL_ALLOW_EMPTY_PASSWORD': '1', 'MYSQL_ROOT_HOST': ''}
        box = self.make_container(environment=environment)
        box.start()
        box.wait_until_ready()
        hosts = box.query("SELECT Host FROM mysql.user WHERE User = 'root'")
        self.assertEqual((('localhost',),), hosts)

    def test_random_password(self):
        box = self.make_container(environment={'MYSQL_RANDOM_ROOT_PASSWORD': '1'})
        box.start()
        deadline = time.monotonic() + container.READY_TIMEOUT_SEC
        while 'GENERATED ROOT PASSWORD: ' not in box.log() and time.monotonic() < deadline:
            time.sleep(container.POLL_SEC)
        self.assertIn('GENERATED ROOT PASSWORD: ', box.log())
        generated = box.log().split('GENERATED ROOT PASSWORD: ')[1].splitlines()[0]
        box.environment['MYSQL_ROOT_PASSWORD'] = generated
        box.wait_until_ready()
        self.assert_denied(box, password='')

    def test_hooks_and_time_zones(self):
        environment = ENVIRONMENT | {'MYSQL_INITDB_SKIP_TZINFO': ''}
        box = self.make_container(environment=environment)
        (box.hooks / '1.sql').write_text(
            'CREATE TABLE hooked (a INT); INSERT INTO hooked VALUES (7)'
        )
        (box.hooks / '2.sh').write_text("docker_process_sql -e 'INSERT INTO hooked VALUES (8)'\n")
        box.start()
        self.assert_first_start_right(box)
        rows = box.query('SELECT a FROM my_shop.hooked ORDER BY a')
        self.assertEqual(((7,), (8,)), rows)
        zone = box.query("SELECT CONVERT_TZ('2026-01-01 00:00:00', 'UTC', 'Europe/Rome')")
        self.assertEqual('2026-01-01 01:00:00', str(zone[0][0]))

    def test_starts_as_root(self):
        box = self.make_container(user='0:0')
        box.start()
        self.assert_first_start_right(box)
        self.assertEqual(999, (box.data / 'mysql.ibd').stat().st_uid)


class LaterStartTest(EntrypointTestCase):
    """Later starts, which change nothing."""

    def test_keeps_a_changed_password(self):
        box = self.make_container()
        box.start()
        box.wait_until_ready()
        box.wait_until_settled()
        box.query("ALTER USER 'root'@'localhost' IDENTIFIED BY 'changed'")
        box.query("DROP USER 'root'@'%'", password='changed')
        box.kill()
        box.start()
        given, box.environment['MYSQL_ROOT_PASSWORD'] = PASSWORD, 'changed'
        box.wait_until_ready()
        self.assert_denied(box, password=given)
        hosts = box.query("SELECT Host FROM mysql.user WHERE User = 'root'")
        self.assertEqual((('localhost',),), hosts)

    def test_creates_accounts_once_even_if_the_marker_stays(self):
        box = self.make_container()
        box.start()
        box.wait_until_ready()
        box.wait_until_settled()
        box.query("DROP USER 'root'@'%'")
        box.kill()
        # As after a power cut just before the removal of the marker.
        note = box.data / '.first-start.accounts'
        note.touch()
        os.chown(note, container.UID, container.UID)
        box.start()
        box.wait_until_ready()
        box.wait_until_settled()
        hosts = box.query("SELECT Host FROM mysql.user WHERE User = 'root'")
        self.assertEqual((('localhost',),), hosts)

    def test_ignores_a_stale_socket_lock(self):
        box = self.make_container()
        box.start()
        box.wait_until_ready()
        box.wait_until_settled()
        box.kill()
        # The pid of tini, which runs in every container but is no server.
        (self.directory / 'c' / 'run' / 'mysqld.sock.lock').write_text('1\n')
        box.start()
        self.assert_first_start_right(box)


@base.long
class InterruptedFirstStartTest(EntrypointTestCase):
    """First starts that are killed at every step, and at any time in between."""

    def setUp(self):
        super().setUp()
        # Containers are independent of each other, and mysqld starts on one processor.
        self.pair = self.enterContext(concurrent.futures.ThreadPoolExecutor(2))

    def test_survives_a_kill_before_each_command(self):
        reached = []
        for number in range(1, MAX_COMMANDS, 2):
            halts = list(self.pair.map(self.kill_before, (number, number + 1)))
            reached += filter(None, halts)
            if None in halts:
                break
        commands = {line.split()[0] for line in reached}
        self.assertEqual(
            {'chmod', 'mkdir', 'mv', 'openssl', 'rm', 'rmdir', 'sync', 'tar'}, commands
        )

    def kill_before(self, number):
        """Return the command before which a container was killed; None if it has fewer commands."""
        box = self.make_container(f'c{number}')
        box.start(halt_before=number)
        halted_before = box.wait_until_halted()
        if halted_before is not None:
            self.assert_survives_kill(box)
        return halted_before

    def test_survives_a_kill_while_the_database_is_moved_up(self):
        undisturbed = self.make_container()
        undisturbed.start(halt_before=MAX_COMMANDS)
        undisturbed.wait_until_ready()
        moves = [one.startswith('mv -t ') for one in undisturbed.commands()]
        undisturbed.kill()
        for moved in (1, 5, None):
            box = self.make_container(f'moved-{moved}')
            box.start(halt_before=moves.index(True) + 1)
            self.assertIn('.first-start.commit', box.wait_until_halted())
            box.kill()
            # What the command does until it is killed.
            for entry in sorted((box.data / '.first-start.commit').iterdir())[:moved]:
                entry.rename(box.data / entry.name)
            box.start()
            self.assert_first_start_right(box)
            box.kill()

    def assert_survives_kills_after(self, delays, **options):
        """Kill containers the given seconds after their start, at least one before it is ready."""

        def kill(number, delay_sec):
            box = self.make_container(f'c{number}', **options)
            box.start()
            time.sleep(delay_sec)
            was_ready = box.accepts()
            self.assert_survives_kill(box)
            return was_ready

        self.assertIn(False, list(self.pair.map(kill, range(len(delays)), delays)))

    def test_survives_repeated_kills(self):
        box = self.make_container()
        kills = 0
        for number in range(2, MAX_COMMANDS, 3):
            box.start(halt_before=number)
            if box.wait_until_halted() is None:
                break
            box.kill()
            kills += 1
        self.assertGreater(kills, 1)
        self.assert_survives_kill(box)

    def test_survives_a_kill_after_any_delay(self):
        # In each run at another moment of each part of the start.
        delays = [0.1 + (step + random.random()) * 0.3 for step in range(8)]
        self.assert_survives_kills_after(delays)

    def test_survives_a_kill_during_initialisation(self):
        delays = [0.5 + step * 0.7 for step in range(4)]
        self.assert_survives_kills_after(delays, options=('--lower-case-table-names=1',))

    def test_survives_a_kill_in_a_hook(self):
        box = self.make_container()
        (box.hooks / '1.sql').write_text(
            'CREATE TABLE hooked (a INT); INSERT INTO hooked VALUES (7)'
        )
        blocking = box.hooks / '2.sh'
        blocking.write_text('sleep 1000\n')
        box.start()
        deadline = time.monotonic() + container.READY_TIMEOUT_SEC
        while 'running /docker-entrypoint-initdb.d/2.sh' not in box.log():
            self.assertLess(time.monotonic(), deadline, box.log())
            time.sleep(container.POLL_SEC)
        box.kill()
        blocking.unlink()
        box.start()
        self.assert_first_start_right(box)
        self.assertEqual(((7,),), box.query('SELECT a FROM my_shop.hooked'))


@base.long
class PowerCutTest(EntrypointTestCase):
    """First starts on a file system that loses all data that was not synced."""

    def make_volume(self, name):
        image = self.directory / f'{name}.img'
        with open(image, 'wb') as stream:
            stream.truncate(512 << 20)
        subprocess.run(['mkfs.xfs', '-q', str(image)], check=True)
        mountpoint = self.directory / f'{name}.volume'
        mountpoint.mkdir()
        volume = self.useFixture(MountedImage(image, mountpoint))
        os.chown(mountpoint, container.UID, container.UID)
        return volume

    def test_power_cut_before_commands(self):
        for number in range(1, MAX_COMMANDS, 4):
            volume = self.make_volume(f'v{number}')
            box = self.make_container(f'c{number}', volume=volume.path)
            subprocess.run(['sync', '--file-system', str(volume.path)], check=True)
            box.start(halt_before=number)
            halted_before = box.wait_until_halted()
            volume.shut_down()
            box.kill()
            volume.remount()
            box.data.mkdir(exist_ok=True)
            box.start()
            self.assert_first_start_right(box)
            box.kill()
            if halted_before is None:
                return
        self.fail('the entrypoint did not end')


class MountedImage(fixtures.Fixture):
    """An XFS image, mounted through a loop device that is detached with its last mount."""

    def __init__(self, image, path):
        super().__init__()
        self.path = path
        self._image = image

    def _setUp(self):
        self._mount()
        self.addCleanup(subprocess.run, ['umount', str(self.path)], check=True)

    def _mount(self):
        # Its copy has the same UUID.
        options = ['-o', 'loop,nouuid']
        subprocess.run(['mount', *options, str(self._image), str(self.path)], check=True)

    def shut_down(self):
        """Shut the file system down without writing its log, like a power cut."""
        subprocess.run(['xfs_io', '-x', '-c', 'shutdown', str(self.path)], check=True)

    def remount(self):
        """Recover the file system as after a power cut.

        A container of another test may have been started meanwhile. Its mount namespace has a copy
        of this mount, so that the file system that was shut down lives on, and would be mounted
        again. So a copy of the image is mounted.
        """
        subprocess.run(['umount', str(self.path)], check=True)
        copy = self._image.with_suffix('.copy')
        subprocess.run(['cp', '--sparse=always', str(self._image), str(copy)], check=True)
        copy.replace(self._image)
        self._mount()
