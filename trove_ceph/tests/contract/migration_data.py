# SPDX-License-Identifier: Apache-2.0
"""Take filled tables through all versions, forth, back and forth again."""

import datetime
import itertools

import sqlalchemy as sa

from trove_ceph import exceptions
from trove_ceph.db import migration, tables

_TIME = datetime.datetime(2026, 1, 1, 12)
#: In these, a migration moves content into another column, which claims_migration.py covers.
_MOVED = {
    'trove_ceph_backups': {'worker', 'seen_at', 'failures', 'retry_at'},
    'trove_ceph_policy_runs': {'seen_at'},
}


#: The statements that change a database.
_CHANGES = ('CREATE', 'ALTER', 'DROP', 'INSERT', 'UPDATE', 'DELETE')
#: Those before and after which MySQL commits.
_COMMITTED = _CHANGES[:3]
#: To drop a column of SQLite, Alembic copies a table into one with this prefix; MySQL has no copy.
_COPY = '_alembic_tmp_'


class _KilledError(BaseException):
    """The process ends here."""


class MigrationDataContract:
    """Mix into a test case with ``engine``, of an empty database."""

    def our_tables(self):
        """Return the tables of trove_ceph as they are in the database."""
        metadata = sa.MetaData()
        metadata.reflect(self.engine, only=lambda name, _: name in tables.Base.metadata.tables)
        return dict(metadata.tables)

    def fill(self, number):
        """Add a row to each table, with a value in each column."""
        with self.engine.begin() as connection:
            for table in self.our_tables().values():
                values = {column.name: value(column, number) for column in table.columns}
                connection.execute(sa.insert(table).values(**values))

    def rows(self):
        """Return the rows of each table, in the order in which they were added."""
        with self.engine.connect() as connection:
            return {
                name: [
                    dict(row)
                    for row in connection.execute(
                        sa.select(table).order_by(*table.primary_key.columns)
                    ).mappings()
                ]
                for name, table in self.our_tables().items()
            }

    def assert_kept(self, before, after):
        """Check that each row is there, with its values in the columns that are in both."""
        for name in before.keys() & after.keys():
            self.assertEqual(len(before[name]), len(after[name]), name)
            for old, new in zip(before[name], after[name], strict=True):
                shared = (old.keys() & new.keys()) - _MOVED.get(name, set())
                self.assertLess(2, len(shared), name)
                self.assertEqual(
                    {column: old[column] for column in shared},
                    {column: new[column] for column in shared},
                    name,
                )

    def climb(self):
        """Upgrade version by version, filling each; return the rows at the last."""
        before = {}
        for number, version in enumerate(migration.versions()):
            migration.upgrade(self.engine, version)
            self.assertEqual(version, migration.find_version(self.engine))
            self.assert_kept(before, self.rows())
            self.fill(number)
            before = self.rows()
        return before

    def test_no_row_is_lost_on_the_way_up_and_down(self):
        before = self.climb()
        self.assertEqual(set(tables.Base.metadata.tables), set(before))
        for version in migration.versions()[-2::-1]:
            expected = {
                one.name.partition('.')[0::2]
                for one in migration.find_losses(self.engine, version)
                if one.count
            }
            columns = self.names()
            migration.downgrade(self.engine, version)
            self.assertEqual(version, migration.find_version(self.engine))
            after = self.rows()
            self.assert_kept(before, after)
            # Each table and column that is gone was announced, since all of them were filled.
            gone = columns - self.names()
            whole = {(table, '') for table in before.keys() - after.keys()}
            self.assertEqual(expected, whole | {one for one in gone if one[0] in after})
            before = after
        migration.upgrade(self.engine)
        self.assert_kept(before, self.rows())
        self.assertEqual(migration.required_version(), migration.find_version(self.engine))

    def test_an_upgrade_that_is_killed_is_repeated(self):
        known = (migration.NO_TABLES, *migration.versions())
        kills = [
            self.check_kills(migration.upgrade, before, after)
            for before, after in itertools.pairwise(known)
        ]
        # At least once in each, which has a statement and records its version.
        self.assertLess(0, min(kills))

    def test_a_downgrade_that_is_killed_is_repeated(self):
        kills = [
            self.check_kills(migration.downgrade, before, after)
            for before, after in itertools.pairwise(migration.versions()[::-1])
        ]
        self.assertLess(0, min(kills))

    def check_kills(self, change, before, after):
        """Kill a change between each two statements; return how often.

        Each run is killed after one statement, and the next one continues.
        """
        self.go_to(before)
        change(self.engine, after)
        expected = self.whole_state()
        self.go_to(before)
        kills = 0
        while self.is_killed(change, after):
            kills += 1
            self.assertGreater(99, kills, f'no run makes progress from {before} to {after}')
        self.assertEqual(expected, self.whole_state())
        return kills

    def go_to(self, version):
        """Bring the tables to a version, with one row in each."""
        known = (migration.NO_TABLES, *migration.versions())
        found = known.index(migration.find_version(self.engine) or migration.NO_TABLES)
        if found < known.index(version):
            migration.upgrade(self.engine, version)
        elif found > known.index(version):
            migration.downgrade(self.engine, version)
        with self.engine.begin() as connection:
            for table in self.our_tables().values():
                connection.execute(sa.delete(table))
        self.fill(1)

    def is_killed(self, change, version):
        """Kill a change after its first statement that is committed; return whether it has more."""
        committed, copied = [], []

        def strike(connection, _cursor, statement, *_rest):
            words = statement.split()
            if words[0] not in _CHANGES or any(f'{name} ' in f'{statement} ' for name in copied):
                return
            if committed:
                raise _KilledError
            if words[0] in _COMMITTED:
                connection.connection.commit()
                committed.append(statement)
            if words[2].startswith(_COPY):
                copied.append(words[2].removeprefix(_COPY))

        sa.event.listen(self.engine, 'before_cursor_execute', strike)
        try:
            change(self.engine, version)
        except _KilledError:
            return True
        finally:
            sa.event.remove(self.engine, 'before_cursor_execute', strike)
        return False

    def whole_state(self):
        """Return the version, the tables with columns and indexes, and their rows."""
        found = sa.inspect(self.engine)
        shape = {
            name: (
                {one['name']: (str(one['type']), one['nullable']) for one in columns},
                sorted(one['name'] for one in found.get_indexes(name)),
                sorted(one['name'] for one in found.get_unique_constraints(name)),
            )
            for name in self.our_tables()
            for columns in [found.get_columns(name)]
        }
        return migration.find_version(self.engine), shape, self.rows()

    def names(self):
        """Return all columns, each with its table."""
        return {
            (name, column.name) for name, table in self.our_tables().items() for column in table.c
        }

    def test_all_tables_are_removed(self):
        with self.engine.begin() as connection:
            connection.execute(sa.text('CREATE TABLE backups (id VARCHAR(36))'))
        migration.upgrade(self.engine)
        self.fill(1)
        losses = migration.find_losses(self.engine, migration.NO_TABLES)
        self.assertEqual(set(tables.Base.metadata.tables), {one.name for one in losses})
        self.assertEqual({1}, {one.count for one in losses})
        migration.downgrade(self.engine, migration.NO_TABLES)
        self.assertEqual(['backups'], sa.inspect(self.engine).get_table_names())
        self.assertIsNone(migration.find_version(self.engine))
        migration.upgrade(self.engine)
        self.assertEqual({()}, {tuple(rows) for rows in self.rows().values()})

    def test_the_same_tables_whichever_way_they_came(self):
        migration.upgrade(self.engine)
        before = self.names()
        migration.downgrade(self.engine, migration.versions()[0])
        migration.upgrade(self.engine)
        self.assertEqual(before, self.names())

    def test_impossible_downgrades(self):
        def refused(version):
            error = self.assertRaises(
                exceptions.RecordError, migration.downgrade, self.engine, version
            )
            return str(error)

        self.assertIn('there are no tables', refused('0001'))
        migration.upgrade(self.engine, '0004')
        self.assertIn('no version 0099 of the tables; expected one of none, 0001', refused('0099'))
        self.assertIn('have version 0004, which is not later than 0004', refused('0004'))
        self.assertIn('have version 0004, which is not later than 0007', refused('0007'))
        self.assertEqual('0004', migration.find_version(self.engine))

    def test_tables_of_a_later_release(self):
        migration.upgrade(self.engine)
        self.fill(1)
        before = self.rows()
        with self.engine.begin() as connection:
            table = sa.table(tables.VERSION_TABLE, sa.column('version_num'))
            connection.execute(sa.update(table).values(version_num='0999'))
        for change in (migration.upgrade, lambda engine: migration.downgrade(engine, '0001')):
            error = self.assertRaises(exceptions.RecordError, change, self.engine)
            self.assertIn('have version 0999, which this release does not know', str(error))
        self.assertEqual(before, self.rows())


def value(column, number):
    kind = column.type
    if isinstance(kind, sa.JSON) or 'LONGTEXT' in str(kind):
        return {'number': number} if isinstance(kind, sa.JSON) else f'{{"number": {number}}}'
    if isinstance(kind, sa.DateTime):
        return _TIME + datetime.timedelta(minutes=number)
    if isinstance(kind, sa.Boolean):
        return bool(number % 2)
    if isinstance(kind, (sa.Float, sa.Numeric)):
        return number + 0.5
    if isinstance(kind, sa.Integer):
        # A truth value is a small integer in MySQL.
        return number % 2 if 'TINYINT' in str(kind) else number + 1
    # In the order of the numbers, and within the shortest column.
    return f'{number:02d}{column.name}'[: kind.length or 200]
