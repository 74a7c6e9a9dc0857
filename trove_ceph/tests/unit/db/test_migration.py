# SPDX-License-Identifier: Apache-2.0

import json

import alembic.autogenerate
import alembic.migration
import fixtures
import sqlalchemy as sa
from oslotest import base

from trove_ceph.db import migration, tables
from trove_ceph.tests.contract import claims_migration, migration_data
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.db import database


class MigrationTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        self.engine = database.facade(self.path).writer.get_engine()

    def test_creates_tables_beside_those_of_trove(self):
        with self.engine.begin() as connection:
            connection.execute(sa.text('CREATE TABLE backups (id VARCHAR(36))'))
            connection.execute(sa.text('CREATE TABLE alembic_version (version_num TEXT)'))
            connection.execute(sa.text("INSERT INTO alembic_version VALUES ('trove')"))
        self.assertIsNone(migration.find_version(self.engine))
        migration.upgrade(self.engine)
        self.assertEqual(migration.required_version(), migration.find_version(self.engine))
        migration.upgrade(self.engine)
        with self.engine.connect() as connection:
            found = connection.scalar(sa.text('SELECT version_num FROM alembic_version'))
        self.assertEqual('trove', found)
        self.assertEqual(
            {'backups', 'alembic_version', tables.VERSION_TABLE, *tables.Base.metadata.tables},
            set(sa.inspect(self.engine).get_table_names()),
        )

    def test_migrated_tables_match_the_models(self):
        migration.upgrade(self.engine)
        with self.engine.connect() as connection:
            context = alembic.migration.MigrationContext.configure(
                connection, opts={'version_table': tables.VERSION_TABLE, 'compare_type': True}
            )
            difference = alembic.autogenerate.compare_metadata(context, tables.Base.metadata)
        self.assertEqual([], difference)

    def test_table_names_have_our_prefix(self):
        for name in (*tables.Base.metadata.tables, tables.VERSION_TABLE):
            self.assertTrue(name.startswith('trove_ceph_'), name)


class ClaimsMigrationTest(claims_migration.ClaimsMigrationContract, base.BaseTestCase):
    def setUp(self):
        super().setUp()
        path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        self.facade = database.facade(path)
        self.engine = self.facade.writer.get_engine()


class MigrationDataTest(migration_data.MigrationDataContract, base.BaseTestCase):
    def setUp(self):
        super().setUp()
        path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        self.engine = database.facade(path).writer.get_engine()


class CommandTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir())
        self.configure(f'sqlite:///{self.directory.join("trove.sqlite")}')

    def configure(self, url):
        self.config = self.directory.join('trove.conf')
        with open(self.config, 'w') as config:
            config.write(f'[database]\nconnection = {url}\n')

    def command(self, *words):
        """Run a command; return its exit status and output."""
        result = command.run('db', *words, '--config-file', self.config, '-f', 'json')
        self.err = result.err
        return result.status, json.loads(result.out) if result.out.strip() else result.err

    def test_sync(self):
        required = migration.required_version()
        needed = {'needed_version': required}
        self.assertEqual((1, {'version': None} | needed), self.command('version'))
        self.assertEqual((0, {'version': required, 'version_before': None}), self.command('sync'))
        self.assertEqual(
            (0, {'version': required, 'version_before': required}), self.command('sync')
        )
        self.assertEqual((0, {'version': required} | needed), self.command('version'))

    def test_downgrade(self):
        self.command('sync')
        lost = {'dropped': 'trove_ceph_replicas', 'count': 0}
        status, listed = self.command('downgrade', '0011')
        self.assertEqual((2, True), (status, lost in listed))
        self.assertIn('nothing was changed: stop trove-taskmanager and trove-api', self.err)
        required = migration.required_version()
        self.assertEqual(required, self.command('version')[1]['version'])
        status, listed = self.command('downgrade', '0011', '--yes-drop-it')
        self.assertEqual((0, True), (status, lost in listed))
        self.assertEqual('The tables have version 0011.\n', self.err)
        self.assertEqual((0, {'version': required, 'version_before': '0011'}), self.command('sync'))

    def test_downgrade_that_drops_the_volume_type_of_replicas(self):
        self.command('sync')
        lost = {'dropped': 'trove_ceph_replication_policies.replica_volume_type', 'count': 0}
        status, listed = self.command('downgrade', '0014', '--yes-drop-it')
        self.assertEqual((0, True), (status, lost in listed))

    def test_downgrade_while_a_replica_takes_over(self):
        text = self.refuse_downgrade('0017', 'taking_over')
        self.assertIn('in the failovers replacement-1 a replica may be taking over', text)

    def test_downgrade_while_a_resize_returns(self):
        for number, state in enumerate(('requested', 'returning', 'starting')):
            text = self.refuse_downgrade('0021', state, f'replacement-{number}', 'resize')
            self.assertIn(f'replacement-{number} have not ended', text)

    def refuse_downgrade(self, version, state, name='replacement-1', kind='failover'):
        """Refuse a downgrade because of a replacement; return the error."""
        self.command('sync')
        engine = database.facade(self.directory.join('trove.sqlite')).writer.get_engine()
        table = tables.ReplacementRow.__table__
        values = {column.name: migration_data.value(column, 1) for column in table.columns}
        values |= {'replacement_id': name, 'state': state, 'kind': kind}
        values |= {'open_instance_id': name}
        with engine.begin() as connection:
            connection.execute(sa.insert(table).values(**values))
        status, text = self.command('downgrade', version, '--yes-drop-it')
        self.assertEqual(3, status)
        required = migration.required_version()
        self.assertEqual(required, self.command('version')[1]['version'])
        return text

    def test_removal(self):
        self.command('sync')
        status, listed = self.command('downgrade', 'none', '--yes-drop-it')
        self.assertEqual((0, len(tables.Base.metadata.tables)), (status, len(listed)))
        self.assertIsNone(self.command('version')[1]['version'])

    def test_impossible_downgrade(self):
        self.command('sync')
        status, text = self.command('downgrade', '0099', '--yes-drop-it')
        self.assertEqual(3, status)
        self.assertIn('there is no version 0099', text)

    def test_unusable_configurations(self):
        self.configure('sqlite:////nowhere/at/all.sqlite')
        status, text = self.command('sync')
        self.assertEqual(3, status)
        self.assertIn('the database failed', text)
        self.configure('')
        self.assertEqual(3, self.command('sync')[0])
        self.config = self.directory.join('missing.conf')
        self.assertEqual(3, self.command('sync')[0])
