# SPDX-License-Identifier: Apache-2.0
"""Golden volumes of a real MySQL: what is in them, and how they are built on a real Ceph."""

import contextlib
import os
import subprocess
import threading

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.golden import build, disk_file, initialisation
from trove_ceph.guestagent import restored_server
from trove_ceph.host import commands, filesystem, workspace
from trove_ceph.mysql import installation
from trove_ceph.storage import golden, image_types, tasks
from trove_ceph.tests.functional import (
    base,
    ceph,
    inspecting,
    local_disk,
    mysqld,
    storage,
    test_mysql_on_rbd,
)

SIZE_GIB = 1
NEW = restored_server.Passwords('new-root-1A', 'new-admin-1A', 'new-remote-1A')
ADMIN = {'user': 'os_admin', 'password': NEW.admin}
INIT_FILE = 'restored.sql'
TIMEOUT_SEC = 240


def first_start(server):
    """Start a server as the guest agent does on a clone, and return it."""
    user = installation.Rootfs(mysqld.rootfs()).user()
    # A guest runs it under the id of the files.
    command = ['chown', '-R', f'{user[1]}:{user[2]}', str(server.volume)]
    subprocess.run(command, check=True, timeout=TIMEOUT_SEC)
    server.prepare_run()
    path = server.log.parent / INIT_FILE
    path.write_text(''.join(f'{one};\n' for one in restored_server.statements(NEW)))
    server.options.update(
        {
            'init_file': f'/run/mysqld/{INIT_FILE}',
            # As in the templates of the guests.
            'innodb_data_file_path': 'ibdata1:10M:autoextend',
            **restored_server.OPTIONS,
        }
    )
    server.start()
    return server


def rows(server, statement):
    with server.connect(**ADMIN) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


class ContentTest(base.FunctionalTestCase):
    """The content, in a file of this host; needs no Ceph."""

    def setUp(self):
        super().setUp()
        self.settings = inspecting.settings(self.directory / 'i')
        build.HostContent(self.settings).clear_killed()

    @contextlib.contextmanager
    def made(self):
        """Yield the directory that becomes a volume, and the file with its file system."""
        with workspace.Workspace(build.PREFIX, self.settings.directory) as space:
            volume = initialisation.Initialiser(self.settings).initialise(
                inspecting.VERSION, space.path, lambda: None
            )
            disk_file.make(volume, SIZE_GIB * units.Gi, space.path / 'disk')
            yield volume, space.path / 'disk'
        self.assertEqual([], list(self.settings.directory.iterdir()))

    def test_a_server_starts_on_it_with_an_identity_of_its_own(self):
        with self.made() as (_, disk):
            # As the guest finds it on a larger volume.
            os.truncate(disk, 2 * SIZE_GIB * units.Gi)
            with local_disk.mounted(disk, self.directory / 'mounted') as volume:
                host = filesystem.HostStorage()
                found = host.find_mount(str(volume))
                host.grow_filesystem(found[0], str(volume), 'xfs')
                self.assertGreater(host.free_bytes(str(volume)), 1.5 * SIZE_GIB * units.Gi)
                self.assertEqual(golden.OWNER_ID, (volume / 'data').stat().st_uid)
                self.assertEqual([], [*(volume / 'data').glob('*.pem')])
                self.assertFalse((volume / 'data' / 'auto.cnf').exists())
                server = first_start(mysqld.durable_server(volume, self.directory / 'r'))
                try:
                    self._check(server)
                finally:
                    server.stop()
                self.assertNotEqual([], [*(volume / 'data').glob('*.pem')])

    def _check(self, server):
        self.assertEqual((('',),), rows(server, 'SELECT @@GLOBAL.gtid_executed'))
        accounts = {
            f'{user}@{host}' for user, host in rows(server, 'SELECT User, Host FROM mysql.user')
        }
        self.assertEqual(
            {'root@localhost', 'os_admin@localhost'},
            {one for one in accounts if not one.startswith('mysql.')},
        )
        server.connect(user='root', password=NEW.root).close()
        databases = {name for (name,) in rows(server, 'SHOW DATABASES')}
        self.assertEqual({'information_schema', 'mysql', 'performance_schema', 'sys'}, databases)
        # The first transaction of a client is the first one of the server.
        rows(server, 'CREATE DATABASE shop')
        ((executed,),) = rows(server, 'SELECT @@GLOBAL.gtid_executed')
        ((uuid,),) = rows(server, 'SELECT @@server_uuid')
        self.assertEqual(f'{uuid}:1', executed)

    def test_its_file_system_is_that_of_a_guest(self):
        with self.made() as (_, disk):
            own = self.directory / 'own'
            with own.open('xb') as file:
                file.truncate(SIZE_GIB * units.Gi)
            filesystem.HostStorage().make_xfs(str(own), 'trove-data', TIMEOUT_SEC)
            described = [
                commands.run('xfs_db', '-r', '-c', 'info', path).replace(str(path), 'disk').split()
                for path in (own, disk)
            ]
            self.assertEqual(*described)
            commands.run('xfs_repair', '-n', disk)
            own.unlink()

    def test_it_takes_little_space(self):
        with self.made() as (_, disk):
            self.assertLess(disk.stat().st_blocks * 512, 400 * units.Mi)


class GoldenVolumeTest(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        self.cluster = ceph.shared_cluster()
        self.storage = storage.connect(self, self.cluster)
        self.volume = golden.GoldenVolume(test_mysql_on_rbd.POOL, inspecting.VERSION, SIZE_GIB)
        self.work = tasks.GoldenTask.of(self.volume)
        self.builds = self.directory / 'i'
        settings = inspecting.settings(self.builds)
        self.builder = build.Builder(
            self.storage,
            inspecting.inspector(self.cluster.conf, self.builds),
            lambda: build.HostContent(settings),
        )
        self.addCleanup(self.remove)

    def build(self, note=lambda *_: None, **options):
        self.builder.build(self.work, image_types.ImageOptions(), note=note, **options)

    def remove(self):
        with contextlib.suppress(exceptions.NotFoundError):
            for name in self.storage.describe(self.volume.image).snapshot_names:
                self.storage.remove_snapshot(self.volume.image.snapshot(name))
            self.storage.remove(self.volume.image)

    def assert_nothing_left(self):
        self.assertRaises(exceptions.NotFoundError, self.storage.describe, self.volume.image)
        self.assert_nothing_left_here()

    def assert_nothing_left_here(self):
        clone = self.work.inspection.clone
        self.assertRaises(exceptions.NotFoundError, self.storage.describe, clone)
        self.assertEqual([], list(self.builds.iterdir()))
        self.assertEqual([], workspace.members(self.builds))

    def test_built_cloned_and_flattened(self):
        self.build()
        self.assert_nothing_left_here()
        facts = self.storage.describe(self.volume.image)
        self.assertEqual(golden.State.READY, golden.state_of(facts))
        self.assertEqual(self.volume, golden.find_content(facts))
        self.assertLess(facts.used_bytes, 600 * units.Mi)
        self.build()
        self.assertEqual(facts.image_id, self.storage.describe(self.volume.image).image_id)
        # As a creation does it.
        clone = image_types.ImageRef(self.volume.pool, self.directory.name)
        ready = self.volume.snapshot(golden.State.READY)
        self.storage.clone(ready, clone, image_types.ImageOptions())
        self.addCleanup(self.storage.remove, clone)
        with test_mysql_on_rbd.mounted(
            self.cluster, clone.name, self.directory / 'mounted'
        ) as volume:
            server = first_start(mysqld.durable_server(volume, self.directory / 'r'))
            try:
                rows(server, 'CREATE DATABASE shop')
                self.storage.flatten(clone)
                self.assertIsNone(self.storage.describe(clone).parent)
                # The golden volume is not needed any more.
                self.remove()
                rows(server, 'CREATE TABLE shop.orders (number INT PRIMARY KEY)')
            finally:
                server.stop()

    @base.long
    def test_a_build_that_is_canceled_leaves_nothing(self):
        for phase in ('initialising', 'writing', 'inspecting'):
            cancel = threading.Event()

            def note(name, *_, at=phase, cancel=cancel):
                if name == at:
                    cancel.set()

            self.assertRaises(exceptions.CanceledError, self.build, note, cancel=cancel)
            self.assert_nothing_left()

    def test_a_version_without_a_server_is_refused(self):
        self.volume = golden.GoldenVolume(test_mysql_on_rbd.POOL, '9.7.99', SIZE_GIB)
        self.work = tasks.GoldenTask.of(self.volume)
        error = self.assertRaises(exceptions.NotInspectableError, self.build)
        self.assertIn('add an entry 9.7.99', str(error))
        self.assert_nothing_left()
