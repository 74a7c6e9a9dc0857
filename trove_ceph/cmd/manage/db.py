# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage db``: make the tables in Trove's database."""

import argparse
import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from trove_ceph import exceptions
from trove_ceph.cmd.manage.cli_base import TROVE_CONF, CommandGroup, trove_conf

if TYPE_CHECKING:
    import sqlalchemy

OK = 0
OUTDATED = 1
DEFAULT_CONFIG = '/etc/trove/trove.conf'

_EXIT_CODES = """\
exit status:
  0  the tables are there, and of the version that this program needs, or were made so
  1  they are missing, or of another version (version)
  3  the database did not answer, or the configuration file is wrong
"""
_OVERVIEW = """\
What trove_ceph knows of backups is in tables of its own in Trove's database, all of whose names
begin with trove_ceph_. Trove's own tables, and their version, are left alone.
"""
_EXAMPLES = """\
examples:
  Make the tables, or bring them to the version of this program, after each upgrade:
    trove-ceph-manage db sync

"""


def add_commands(areas: Any) -> None:
    """Add ``db`` and its verbs to the areas of ``trove-ceph-manage``."""
    area = CommandGroup(
        areas,
        'db',
        "make the tables of trove_ceph in Trove's database",
        overview=_OVERVIEW,
        examples=_EXAMPLES,
        exit_codes=_EXIT_CODES,
    )
    for name, function, help_text in (
        ('sync', _sync, 'make what is missing'),
        ('version', _version, 'show the version of the tables'),
    ):
        area.add_verb(name, function, help_text).add_argument(
            '--config-file',
            default=trove_conf(DEFAULT_CONFIG)[0],
            metavar='PATH',
            help='where [database] connection is '
            f'(default: the first of ${TROVE_CONF}, else {DEFAULT_CONFIG})',
        )


def _sync(arguments: argparse.Namespace) -> int:
    from trove_ceph.db import migration

    with _engine(arguments.config_file) as engine:
        before = migration.find_version(engine)
        migration.upgrade(engine)
        after = migration.find_version(engine)
    print(f'version {after}' if before == after else f'version {before or "none"} -> {after}')
    return OK


def _version(arguments: argparse.Namespace) -> int:
    from trove_ceph.db import migration

    wanted = migration.required_version()
    with _engine(arguments.config_file) as engine:
        found = migration.find_version(engine)
    print(f'version {found or "none"}' + ('' if found == wanted else f', needed {wanted}'))
    return OK if found == wanted else OUTDATED


@contextlib.contextmanager
def _engine(config_file: str) -> 'Iterator[sqlalchemy.Engine]':
    # Only here: it loads eventlet where that is installed, which tells everybody that it is old.
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
    import oslo_db.exception
    import sqlalchemy.exc
    from oslo_db import options
    from oslo_db.sqlalchemy import enginefacade

    conf = cfg.ConfigOpts()
    conf.register_opts(options.database_opts, 'database')
    try:
        conf([], default_config_files=[config_file])
    except cfg.Error as error:
        raise exceptions.InvalidRequestError(f'{config_file}: {error}') from error
    if not conf.database.connection:
        raise exceptions.InvalidRequestError(f'{config_file}: has no [database] connection')
    facade = enginefacade.transaction_context()
    facade.configure(connection=conf.database.connection, max_retries=1, retry_interval=1)
    try:
        yield facade.writer.get_engine()
    except (oslo_db.exception.DBError, sqlalchemy.exc.SQLAlchemyError) as error:
        raise exceptions.ServiceUnavailableError(f'the database failed: {error}') from error
