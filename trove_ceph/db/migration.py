# SPDX-License-Identifier: Apache-2.0
"""Creation of the tables, their upgrade to the version that this release requires, and back."""

import dataclasses

import alembic.command
import alembic.config
import alembic.migration
import alembic.script
import sqlalchemy as sa

from trove_ceph import exceptions
from trove_ceph.db import tables

#: The version of a database without our tables.
NO_TABLES = 'none'


@dataclasses.dataclass(frozen=True)
class Loss:
    """A table or a column that a downgrade drops.

    :param name: of the table, or of the table and the column with a dot
    :param count: the rows of the table, or those with a value in the column
    """

    name: str
    count: int


def upgrade(engine: sa.Engine, version: str = 'head') -> None:
    """Create and upgrade the tables; idempotent. Trove's own tables are not touched.

    :param version: the target version; by default the one that this release requires
    :raises RecordError: the tables are of a later release
    """
    config = _config()
    found = find_version(engine)
    if found and found not in versions():
        raise exceptions.RecordError(
            f'the tables of trove_ceph have version {found}, which this release does not know; it '
            f'needs {required_version()}: install the later release again, or run '
            f'"trove-ceph-manage db downgrade {required_version()}" with it'
        )
    with engine.begin() as connection:
        config.attributes['connection'] = connection
        alembic.command.upgrade(config, version)


def find_losses(engine: sa.Engine, version: str) -> list[Loss]:
    """Return what a downgrade would drop; nothing is changed.

    :param version: the target version, or NO_TABLES
    :raises RecordError: as ``downgrade`` does
    """
    _require_earlier(engine, version)
    kept = _columns_of(version)
    losses = []
    with engine.connect() as connection:
        found = sa.inspect(connection)
        for name in sorted(set(found.get_table_names()) & set(tables.Base.metadata.tables)):
            table = sa.Table(name, sa.MetaData(), autoload_with=connection)
            if name not in kept:
                losses.append(Loss(name, _count(connection, table)))
                continue
            losses += [
                Loss(f'{name}.{column.name}', _count(connection, table, column.isnot(None)))
                for column in table.columns
                if column.name not in kept[name]
            ]
    return losses


def downgrade(engine: sa.Engine, version: str) -> None:
    """Drop the tables and columns that an earlier version does not have, with what they hold.

    The services must be stopped. Claims and times to retry are converted; nothing else is lost than
    ``find_losses`` tells.

    :param version: the target version, or NO_TABLES to remove all tables of trove_ceph
    :raises RecordError: there is no such version, or the tables are not later than it
    """
    _require_earlier(engine, version)
    config = _config()
    with engine.begin() as connection:
        config.attributes['connection'] = connection
        alembic.command.downgrade(config, 'base' if version == NO_TABLES else version)
        if version == NO_TABLES:
            sa.Table(tables.VERSION_TABLE, sa.MetaData()).drop(connection)


def versions() -> list[str]:
    """Return all versions that this release knows, the earliest first."""
    script = alembic.script.ScriptDirectory.from_config(_config())
    return [revision.revision for revision in script.walk_revisions()][::-1]


def _require_earlier(engine, version):
    found, known = find_version(engine), [NO_TABLES, *versions()]
    if version not in known:
        raise exceptions.RecordError(
            f'there is no version {version} of the tables; expected one of {", ".join(known)}'
        )
    if found is None:
        raise exceptions.RecordError('there are no tables of trove_ceph in this database')
    if found not in known:
        raise exceptions.RecordError(
            f'the tables of trove_ceph have version {found}, which this release does not know; '
            'downgrade them with the release that needs it'
        )
    if known.index(version) >= known.index(found):
        raise exceptions.RecordError(
            f'the tables of trove_ceph have version {found}, which is not later than {version}'
        )


def _columns_of(version):
    """Return the columns of each table of a version, read from an empty database."""
    if version == NO_TABLES:
        return {}
    engine = sa.create_engine('sqlite://', poolclass=sa.pool.StaticPool)
    upgrade(engine, version)
    found = sa.inspect(engine)
    return {
        name: {column['name'] for column in found.get_columns(name)}
        for name in found.get_table_names()
    }


def _count(connection, table, *conditions):
    return connection.scalar(sa.select(sa.func.count()).select_from(table).where(*conditions))


def find_version(engine: sa.Engine) -> str | None:
    """Return the version of the existing tables; None: there are none."""
    with engine.connect() as connection:
        context = alembic.migration.MigrationContext.configure(
            connection, opts={'version_table': tables.VERSION_TABLE}
        )
        return context.get_current_revision()


def required_version() -> str:
    """Return the version that this release requires."""
    version = alembic.script.ScriptDirectory.from_config(_config()).get_current_head()
    assert version is not None
    return version


def _config() -> alembic.config.Config:
    config = alembic.config.Config()
    config.set_main_option('script_location', 'trove_ceph.db:migrations')
    return config
