# SPDX-License-Identifier: Apache-2.0
"""Backups inspected by a real server on clones of them: sound, damaged, and interrupted ones."""

import contextlib
import os
import pathlib
import stat
import subprocess
import sys
import threading
import time
import uuid

import rados
import rbd

from trove_ceph import exceptions
from trove_ceph.host import workspace
from trove_ceph.storage import image_types, tasks
from trove_ceph.storage.ceph import keyring, lock_store
from trove_ceph.tests.functional import (
    base,
    inspect_process,
    inspecting,
    mysqld,
    storage,
    test_mysql_on_rbd,
    test_storage_service,
)
from trove_ceph.verification import report as verification

PAGE_BYTES = 16384
# The snapshot of a stopped database with some rows, created by the first test that needs it.
SOUND = 'sound'
SOUND_IMAGE = 'sound-database'

_made = set()


def overwrite_orders(data):
    path = data / 'shop' / 'orders.ibd'
    with path.open('r+b') as table:
        for page in range(4, path.stat().st_size // PAGE_BYTES):
            table.seek(page * PAGE_BYTES + 1000)
            table.write(os.urandom(500))


class VerificationTestCase(test_mysql_on_rbd.WritersTestCase):
    mode = verification.NAMESPACES
    #: Enough to recover a small database, on a busy machine too.
    recovery_sec = 30

    def setUp(self):
        super().setUp()
        self.storage = storage.connect(self, self.cluster)
        self.check_id = str(uuid.uuid4())
        self.inspections = self.directory / 'i'
        self.inspector = self.make_inspector()

    def make_inspector(self, directory=None, **options):
        place = directory or self.inspections
        return inspecting.inspector(self.cluster.conf, place, mode=self.mode, **options)

    def work(self, snapshot, **options):
        image = image_types.ImageRef(test_mysql_on_rbd.POOL, self.image)
        return tasks.InspectTask(
            image.snapshot(snapshot), self.check_id, inspecting.VERSION, **options
        )

    def inspect(self, work, **options):
        found = self.inspector.inspect(work, image_types.ImageOptions(), **options)
        self.assert_nothing_left(work)
        return found

    def assert_nothing_left(self, work):
        self.assertRaises(exceptions.NotFoundError, self.storage.describe, work.clone)
        self.assertEqual([], list(self.inspections.iterdir()))
        self.assertEqual([], workspace.members(self.inspections))
        self.assertEqual([], workspace.mounts(self.inspections))
        self.assertEqual([], workspace.loop_devices(self.inspections))

    def snapshot(self, name):
        self._snapshot(name)
        self.addCleanup(self._remove_snapshot, name)

    def _remove_snapshot(self, name):
        with self.cluster.pool(test_mysql_on_rbd.POOL) as pool, rbd.Image(pool, self.image) as one:
            one.remove_snap(name)

    def make_sound_backup(self):
        """Give the image a stopped database with some rows, and create a snapshot."""
        if SOUND not in _made:
            new = test_mysql_on_rbd.new_database(self.cluster)
            self._clone(new, test_mysql_on_rbd.NEW, SOUND_IMAGE)
            with self.serving(SOUND_IMAGE) as source:
                for writer in self._start_writers(source):
                    writer.end()
            self._snapshot(SOUND, SOUND_IMAGE)
            _made.add(SOUND)
        self._remove_image(self.image)
        self._clone(SOUND_IMAGE, SOUND, self.image)
        self.snapshot('backup')

    def _clone(self, parent, snapshot, name):
        with self.cluster.pool(test_mysql_on_rbd.POOL) as pool:
            rbd.RBD().clone(pool, parent, snapshot, pool, name)

    @contextlib.contextmanager
    def serving(self, image=None):
        """Run a server on an image, and unmap the image afterwards."""
        directory = self.directory / 'source'
        with (
            test_mysql_on_rbd.mounted(self.cluster, image or self.image, directory) as volume,
            mysqld.durable_server(volume, directory / 'run') as source,
        ):
            yield source

    def damage(self, how, **options):
        """Change the volume of a stopped database, and inspect a snapshot of it."""
        directory = self.directory / 'damage'
        with test_mysql_on_rbd.mounted(self.cluster, self.image, directory) as volume:
            how(volume / 'data')
        self.snapshot('damaged')
        return self.inspect(self.work('damaged', **options))

    def kill_at(self, phase, directory=None):
        snapshot = self.work('backup').snapshot
        process = subprocess.Popen(
            [
                *(sys.executable, '-W', 'ignore', inspect_process.__file__),
                *(str(self.cluster.conf), str(directory or self.inspections), self.mode),
                *(snapshot.pool, snapshot.image, snapshot.name, self.check_id),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            for line in process.stdout:
                if line.strip() == phase:
                    break
            else:
                self.fail(f'it ended with {process.wait()} before {phase}')
            process.kill()


class Contract:
    """The findings of inspections in each mode of isolation."""

    isolation = ''

    def test_finds_a_backup_sound(self):
        self.make_sound_backup()

        found = self.inspect(self.work('backup'))

        self.assertTrue(found.ok, found)
        self.assertEqual(self.isolation, found.isolation)
        self.assertEqual(found.tables, found.tables_checked)
        self.assertRegex(found.gtid_executed, '^[0-9a-f-]{36}:1-[0-9]+$')

    def test_finds_an_overwritten_table(self):
        self.make_sound_backup()

        found = self.damage(overwrite_orders)

        self.assertEqual(verification.CORRUPT, found.verdict, found)
        self.assertIn('table shop.orders', found.reasons[0])
        # InnoDB's dump of the page contains the rows.
        self.assertNotIn('xxxx', found.reasons[0])
        self.assertIsNotNone(found.gtid_executed)
        self.assertLess(found.tables_checked, found.tables)

    def test_finds_an_overwritten_redo_log(self):
        with self.serving() as source:
            self._start_writers(source)
            source.kill()

        def overwrite(data):
            for log in (data / '#innodb_redo').iterdir():
                with log.open('r+b') as redo:
                    redo.write(os.urandom(64 * 1024))

        found = self.damage(overwrite)

        self.assertEqual(verification.CORRUPT, found.verdict, found)
        self.assertIn('recovery failed', found.reasons[0])
        self.assertIsNone(found.gtid_executed)

    def test_finds_missing_files(self):
        self.make_sound_backup()

        found = self.damage(lambda data: (data / 'mysql.ibd').unlink())

        self.assertEqual(
            (verification.INCOMPLETE, ('mysql.ibd is not there',)), (found.verdict, found.reasons)
        )

    def test_reports_a_missing_file_system(self):
        name = f'{self.image}-blank'
        self.cluster.create_image(test_mysql_on_rbd.POOL, name, 64)
        blank = image_types.ImageRef(test_mysql_on_rbd.POOL, name)
        self.storage.create_snapshot(blank.snapshot('s'))
        work = tasks.InspectTask(blank.snapshot('s'), self.check_id, inspecting.VERSION)

        found = self.inspect(work)

        self.storage.remove_snapshot(blank.snapshot('s'))
        self.storage.remove(blank)
        self.assertEqual(verification.INCOMPLETE, found.verdict)
        self.assertIn('holds nothing, expected XFS', found.reasons[0])

    def test_can_be_canceled_and_has_a_time_limit(self):
        self.make_sound_backup()
        cancel = threading.Event()

        def note(phase, *_):
            if phase == 'recovering':
                cancel.set()

        self.assertRaises(
            exceptions.CanceledError,
            self.inspector.inspect,
            self.work('backup'),
            image_types.ImageOptions(),
            cancel,
            note=note,
        )
        self.assert_nothing_left(self.work('backup'))
        # The limit passes when the tables are checked; opening the clone is not affected.
        limit_sec = self.recovery_sec
        deadline = time.monotonic() + limit_sec

        def linger(phase, *_):
            if phase == 'checking':
                threading.Event().wait(max(0.0, deadline - time.monotonic()))

        found = self.inspect(self.work('backup', time_limit_sec=limit_sec), note=linger)
        self.assertEqual(verification.UNFINISHED, found.verdict, found)

    def test_repeats_an_inspection_killed_with_a_server(self):
        """The inspection is repeated on the same host."""
        self.make_sound_backup()
        self.kill_at('checking')

        found = self.inspect(self.work('backup'))

        self.assertTrue(found.ok, found)


class VerificationTest(Contract, VerificationTestCase):
    isolation = 'namespace'

    def test_finds_missing_and_unexpected_transactions(self):
        self.make_sound_backup()
        found = self.inspect(self.work('backup'))
        self.assertTrue(found.ok, found)
        source, _, last = found.gtid_executed.partition(':1-')

        equal = self.inspect(self.work('backup', expected_gtid=found.gtid_executed, exact=True))
        more = f'{source}:1-{int(last) + 3}'
        lacking = self.inspect(self.work('backup', expected_gtid=more))
        less = f'{source}:1-{int(last) - 2}'
        exceeding = self.inspect(self.work('backup', expected_gtid=less, exact=True))

        self.assertTrue(equal.ok, equal)
        self.assertEqual(verification.INCOMPLETE, lacking.verdict)
        self.assertIn(f'{source}:{int(last) + 1}-{int(last) + 3}', lacking.reasons[0])
        self.assertEqual(found.gtid_executed, lacking.gtid_executed)
        self.assertEqual(verification.CORRUPT, exceeding.verdict)
        self.assertIn(f'{source}:{int(last) - 1}-{last}', exceeding.reasons[0])
        self.assertRaises(
            exceptions.InvalidRequestError,
            self.inspector.inspect,
            self.work('backup', expected_gtid='yesterday'),
            image_types.ImageOptions(),
        )
        self.assert_nothing_left(self.work('backup'))

    def test_samples_an_overwritten_large_table(self):
        self.make_sound_backup()
        self.inspector = self.make_inspector(sample_bytes=9000)
        sound = self.inspect(self.work('backup', deep=False))
        self.assertTrue(sound.ok, sound)
        self.assertGreater(sound.tables_in_part, 0)

        found = self.damage(overwrite_orders, deep=False)

        self.assertEqual(verification.CORRUPT, found.verdict, found)
        self.assertIn('table shop.orders', found.reasons[0])
        self.assertNotIn('xxxx', found.reasons[0])

    def test_prepared_xa_transactions(self):
        """They survive the crash, and are listed in the form that statements take."""
        with self.serving() as source:
            source.query('CREATE DATABASE shop')
            source.query('CREATE TABLE shop.orders (id INT PRIMARY KEY)')
            with source.connect() as connection, connection.cursor() as cursor:
                for statement in (
                    "XA START X'74782731',X'6272',7",
                    'INSERT INTO shop.orders VALUES (1)',
                    "XA END X'74782731',X'6272',7",
                    "XA PREPARE X'74782731',X'6272',7",
                ):
                    cursor.execute(statement)
                source.kill()
        self.snapshot('prepared')

        found = self.inspect(self.work('prepared'))

        self.assertTrue(found.ok, found)
        self.assertEqual(("X'74782731',X'6272',7",), found.prepared_xa)
        self.assertEqual(1, found.prepared_xa_count)

    def test_refuses_a_version_without_a_server(self):
        self.make_sound_backup()
        work = tasks.InspectTask(self.work('backup').snapshot, self.check_id, '8.0.36')

        error = self.assertRaises(
            exceptions.NotInspectableError, self.inspector.inspect, work, image_types.ImageOptions()
        )

        self.assertIn('MySQL 8.0.36', str(error))
        self.assert_nothing_left(work)

    def test_other_users_cannot_reach_its_server(self):
        self.make_sound_backup()
        # All directories above the server's own one are open to all users.
        self.directory.chmod(0o711)
        results = []

        def note(phase, *_):
            if phase == 'checking' and not results:
                (working,) = self.inspections.iterdir()
                run, data = working / 'run', working / 'volume' / 'data'
                found, owner = run.stat(), data.stat()
                results.append(stat.S_IMODE(found.st_mode))
                results.append((found.st_uid, found.st_gid) == (owner.st_uid, owner.st_gid))
                results.extend(map(self._stat_as_nobody, (working, run / 'mysqld.sock')))

        found = self.inspect(self.work('backup'), note=note)

        self.assertTrue(found.ok, found)
        self.assertEqual([0o700, True, 'seen', 'PermissionError'], results)

    def _stat_as_nobody(self, path):
        """Return the result for another user of this host who accesses a file."""
        code = (
            'import os, sys\n'
            'try: os.stat(sys.argv[1]); print("seen")\n'
            'except OSError as error: print(type(error).__name__)'
        )
        python = ['/usr/bin/python3', '-I', '-c', code, str(path)]
        command = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', *python]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    @base.long
    def test_killed_inspection_can_be_repeated(self):
        """At each phase; the last kill comes while a server runs."""
        self.make_sound_backup()
        work = self.work('backup')
        for phase in ('cloning', 'opening', 'recovering', 'checking'):
            self.kill_at(phase)
            found = self.inspect(work)
            self.assertTrue(found.ok, found)

    def test_fences_an_inspection_killed_on_another_host(self):
        """Nothing cleans up there: the next inspection here fences it."""
        self.make_sound_backup()
        elsewhere = self.directory / 'elsewhere'
        self.kill_at('checking', elsewhere)
        self.assertNotEqual([], workspace.members(elsewhere))

        found = self.inspect(self.work('backup'))

        self.assertTrue(found.ok, found)
        self.make_inspector(elsewhere).clear_killed()
        self.assertEqual([], workspace.members(elsewhere))
        self.assertEqual([], list(elsewhere.iterdir()))

    def test_restarted_service_resumes_an_inspection(self):
        self.make_sound_backup()
        one = self.serve('one')
        work = self.work('backup', deep=True)
        one.request('start', operation_id='verify', work=work)
        self.wait_for(one, lambda _: self.servers())
        one.kill()
        self.assertNotEqual([], workspace.mounts(self.inspections))

        other = self.serve('other')
        self.wait_for(other, lambda found: found.state is tasks.JobState.INTERRUPTED)
        other.request('start', operation_id='verify', work=work)
        done = self.wait_for(other, lambda found: not found.state.is_active)

        self.assertEqual((tasks.JobState.DONE, 2), (done.state, done.attempt), done)
        self.assertTrue(done.result.ok, done.result)
        self.assert_nothing_left(work)

    def servers(self):
        return [pid for pid, name in workspace.members(self.inspections) if name == 'mysqld']

    def serve(self, name):
        """Start a copy of the service on this host."""
        config = self.directory / f'{name}.conf'
        config.write_text(
            '[trove_ceph_storage]\n'
            f'ceph_conf = {self.cluster.conf}\n'
            f'pools = {test_mysql_on_rbd.POOL}\n'
            f'lock_duration_sec = {test_storage_service.LOCK_SEC}\n'
            '[trove_ceph_verification]\n'
            f'mysqld_roots = 9.7:{mysqld.rootfs()}\n'
            f'directory = {self.inspections}\n'
        )
        served = test_storage_service.ServerProcess(name, config)
        self.addCleanup(self._forget)
        self.addCleanup(served.close)
        # The connections to Ceph are made at the first request.
        served.request('list_jobs')
        return served

    def _forget(self):
        with self.cluster.pool(test_mysql_on_rbd.POOL) as context:
            context.set_namespace(lock_store.NAMESPACE)
            with contextlib.suppress(rados.ObjectNotFound):
                context.remove_object(lock_store.OBJECT)

    def wait_for(self, served, condition):
        deadline = time.monotonic() + test_storage_service.TIMEOUT_SEC
        while True:
            found = served.request('find_job', operation_id='verify')
            if condition(found):
                return found
            self.assertLess(time.monotonic(), deadline, found)
            time.sleep(0.1)


@base.long
class VirtualMachineTest(Contract, VerificationTestCase):
    mode = verification.VM
    isolation = 'vm (tcg)'
    # An emulated machine boots first.
    recovery_sec = 150

    def test_only_qemu_has_the_ceph_key(self):
        self.make_sound_backup()
        key = keyring.find_key(str(self.cluster.conf), storage.USER)
        self.assertGreater(len(key), 20)
        seen = []

        def note(phase, *_):
            if phase == 'reading':
                for pid, name in workspace.members(self.inspections):
                    process = pathlib.Path('/proc', str(pid))
                    for file in ('cmdline', 'environ'):
                        self.assertNotIn(key.encode(), (process / file).read_bytes())
                    seen.append(name)
                for path in self.inspections.rglob('*'):
                    if path.is_file():
                        self.assertNotIn(key.encode(), path.read_bytes())

        found = self.inspect(self.work('backup', deep=False), note=note)

        self.assertTrue(found.ok, found)
        self.assertIn('qemu-system-x86', ' '.join(seen))
