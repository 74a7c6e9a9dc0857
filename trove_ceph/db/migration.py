# SPDX-License-Identifier: Apache-2.0
"""Creation of the tables and their upgrade to the version that this release requires."""

import alembic.command
import alembic.config
import alembic.migration
import alembic.script
import sqlalchemy as sa

from trove_ceph.db import tables


def upgrade(engine: sa.Engine, version: str = 'head') -> None:
    """Create and upgrade the tables; idempotent. Trove's own tables are not touched.

    :param version: the target version; by default the one that this release requires
    """
    config = _config()
    with engine.begin() as connection:
        config.attributes['connection'] = connection
        alembic.command.upgrade(config, version)


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
