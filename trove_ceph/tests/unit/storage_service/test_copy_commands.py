# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage storage remove-copies`` with a running service and a database."""

import json
import uuid

from trove_ceph.db import backups, claims, migration
from trove_ceph.storage import image_types, names, tasks
from trove_ceph.tests.unit.db import database
from trove_ceph.tests.unit.storage_service import bus_case
from trove_ceph.tests.unit.storage_service.service_world import MIB

CLONE = image_types.ImageRef('volumes', 'volume-1')


class RemoveCopiesTest(bus_case.CommandTestCase):
    words = ('storage', 'remove-copies')

    def setUp(self):
        super().setUp()
        self.serve('one')
        path = f'{self.config}.sqlite'
        self.facade = database.facade(path)
        self.trove_config = f'{self.config}.trove'
        with open(self.trove_config, 'w') as config:
            config.write(f'[database]\nconnection = sqlite:///{path}\n')
        with self.facade.writer.get_engine().begin() as connection:
            for name in ('instances', 'backups'):
                connection.exec_driver_sql(f'CREATE TABLE {name} (id VARCHAR(36))')
        self.know(names.parse(self.vault.name).id)
        work = tasks.CopyTask(self.image.snapshot('s'), self.vault)
        self.api.run('copy', work, bus_case.TIMEOUT_SEC)
        # Of other uses of the pool.
        for name in ('other', names.image_name('restore', str(uuid.uuid4()))):
            image = image_types.ImageRef('vault', name)
            self.world.storage.create_image(image, MIB, image_types.ImageOptions())

    def know(self, owner_id):
        with self.facade.writer.get_engine().begin() as connection:
            connection.exec_driver_sql('INSERT INTO instances VALUES (?)', (owner_id,))

    def remove(self, *words):
        """Return the exit status, and the copies and the outcome of each image by its name."""
        arguments = ('vault', '--trove-conf', self.trove_config, '-f', 'json', *words)
        status, text = self.command(*arguments)
        return status, {one['image']: (one['copies'], one['outcome']) for one in json.loads(text)}

    def images(self):
        return {one.image.name for one in self.world.storage.list_images('vault')}

    def test_lists_and_deletes(self):
        before = self.images()
        listed = {str(self.vault): (1, 'would be deleted')}
        self.assertEqual((2, listed), self.remove())
        self.assertIn('nothing was changed: restore what is needed', self.err)
        self.assertEqual(before, self.images())
        deleted = {str(self.vault): (1, 'deleted')}
        self.assertEqual((0, deleted), self.remove('--yes-delete-copies'))
        self.assertEqual(before - {self.vault.name}, self.images())
        self.assertEqual([], self.world.storage.list_trash('vault'))
        self.assertEqual((0, {}), self.remove())
        self.assertEqual('There are no copies.\n', self.err)

    def test_is_refused_while_a_backup_is_recorded(self):
        migration.upgrade(self.facade.writer.get_engine())
        store = backups.BackupStore(self.facade)
        claim = store.begin_taking('b', 'i', 'project', claims.Claimant('worker'))
        store.record_taken(claim, 'snapshot', 'cinder', 1.0)
        # It has no copy.
        self.assertEqual(2, self.remove()[0])
        self.assertIn('restore what is needed', self.err)
        self.record_copy()
        for words in ((), ('--yes-delete-copies',)):
            status, found = self.remove(*words)
            self.assertEqual((2, {str(self.vault): (1, 'would be deleted')}), (status, found))
            self.assertIn('backups with copies are recorded (1 in vault)', self.err)
        self.assertIn(self.vault.name, self.images())
        migration.downgrade(self.facade.writer.get_engine(), migration.NO_TABLES)
        self.assertEqual(0, self.remove('--yes-delete-copies')[0])

    def record_copy(self):
        with self.facade.writer.get_engine().begin() as connection:
            connection.exec_driver_sql(
                "UPDATE trove_ceph_backups SET vault_pool = 'vault', vault_image = 'x'"
            )

    def test_an_image_from_which_clones_read_stays(self):
        storage = self.world.storage
        storage.clone(self.vault.snapshot('s'), CLONE, image_types.ImageOptions())
        stays = {str(self.vault): (1, f'stays: has children {CLONE}')}
        self.assertEqual((1, stays), self.remove('--yes-delete-copies'))
        self.assertIn(self.vault.name, self.images())
        storage.flatten(CLONE)
        self.assertEqual(0, self.remove('--yes-delete-copies')[0])

    def test_an_image_of_another_trove_stays(self):
        other = str(uuid.uuid4())
        image = image_types.ImageRef('vault', names.image_name('vault', other))
        self.world.storage.create_image(image, MIB, image_types.ImageOptions())
        status, found = self.remove('--yes-delete-copies')
        expected = {
            str(self.vault): (1, 'deleted'),
            str(image): (0, f'stays: this Trove knows no instance or backup {other}'),
        }
        self.assertEqual((1, expected), (status, found))
        self.assertEqual(
            (0, {str(image): (0, 'deleted')}),
            self.remove('--yes-delete-copies', '--include-unknown'),
        )

    def test_an_image_that_is_open_stays(self):
        with self.world.storage.open_writer(self.vault):
            status, found = self.remove('--yes-delete-copies')
        self.assertEqual(1, status)
        self.assertIn('stays: has clients', found[str(self.vault)][1])

    def test_deletes_nothing_without_the_database(self):
        words = ('vault', '--yes-delete-copies', '--trove-conf', '/nowhere.conf')
        self.assertEqual(3, self.command(*words)[0])
        self.assertIn(self.vault.name, self.images())
