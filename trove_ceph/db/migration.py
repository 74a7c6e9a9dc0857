# SPDX-License-Identifier: Apache-2.0
"""Making the tables, and bringing them to the version that this code needs."""

import alembic.command
import alembic.config
import alembic.migration
import alembic.script
import sqlalchemy as sa

from trove_ceph.db import tables


def upgrade(engine: sa.Engine, version: str = 'head') -> None:
    """Make what is missing; harmless when nothing is. Trove's own tables are left alone.

    :param version: to which the tables are brought; by default the one that this code needs
    """
    config = _config()
    with engine.begin() as connection:
        config.attributes['connection'] = connection
        alembic.command.upgrade(config, version)


def find_version(engine: sa.Engine) -> str | None:
    """Return the version of the tables that are there; None when there are none."""
    with engine.connect() as connection:
        context = alembic.migration.MigrationContext.configure(
            connection, opts={'version_table': tables.VERSION_TABLE}
        )
        return context.get_current_revision()


def required_version() -> str:
    """Return the version that this code needs."""
    version = alembic.script.ScriptDirectory.from_config(_config()).get_current_head()
    assert version is not None
    return version


def _config() -> alembic.config.Config:
    config = alembic.config.Config()
    config.set_main_option('script_location', 'trove_ceph.db:migrations')
    return config
