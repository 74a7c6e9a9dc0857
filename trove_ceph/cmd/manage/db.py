# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage db``: create and upgrade the tables of trove_ceph in Trove's database."""

import argparse
import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, columns, options

if TYPE_CHECKING:
    import sqlalchemy

_EXIT_CODES = """\
exit status:
  0  the tables have the version that this program needs, or were upgraded to it
  1  the tables are missing, or have another version (version)
  2  the command line is wrong
  3  the database did not answer, or the configuration file is wrong
"""


class Group(base.Group):
    """Create and upgrade the tables of trove_ceph in Trove's database.

    trove_ceph keeps its records of backups in tables of its own, whose names begin with
    trove_ceph_. Trove's own tables, and their version, are not changed.
    """

    examples = """\
examples:
  Create the tables, or upgrade them after an upgrade of trove_ceph:
    trove-ceph-manage db sync
"""
    exit_codes = _EXIT_CODES


class _DatabaseCommand(base.ShowOne):
    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--config-file',
            default=options.trove_conf()[0],
            metavar='PATH',
            help='the file with [database] connection '
            f'(default: the first of ${options.TROVE_CONF}, else {options.DEFAULT_TROVE_CONF})',
        )
        return parser


class Sync(_DatabaseCommand):
    """Create the tables, or upgrade them to the version of this program."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the version, and the one before."""
        from trove_ceph.db import migration

        with _engine(parsed_args.config_file) as engine:
            before = migration.find_version(engine)
            migration.upgrade(engine)
            after = migration.find_version(engine)
        return ('version', 'version_before'), (after, columns.of(before))


class Version(_DatabaseCommand):
    """Show the version of the tables."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the version, and the one that this program needs."""
        from trove_ceph.db import migration

        needed = migration.required_version()
        with _engine(parsed_args.config_file) as engine:
            found = migration.find_version(engine)
        if found != needed:
            self.exit_status = base.ExitStatus.DIFFERS
        return ('version', 'needed_version'), (columns.of(found), needed)


@contextlib.contextmanager
def _engine(config_file: str) -> 'Iterator[sqlalchemy.Engine]':
    # Imported here: it loads eventlet where that is installed, which warns that it is deprecated.
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
    import oslo_db.exception
    import sqlalchemy.exc
    from oslo_db import options as db_options
    from oslo_db.sqlalchemy import enginefacade

    conf = cfg.ConfigOpts()
    conf.register_opts(db_options.database_opts, 'database')
    try:
        conf([], default_config_files=[config_file])
    except cfg.Error as error:
        raise exceptions.InvalidConfigurationError(f'{config_file}: {error}') from error
    if not conf.database.connection:
        raise exceptions.InvalidConfigurationError(f'{config_file}: has no [database] connection')
    facade = enginefacade.transaction_context()
    facade.configure(connection=conf.database.connection, max_retries=1, retry_interval=1)
    try:
        yield facade.writer.get_engine()
    except (oslo_db.exception.DBError, sqlalchemy.exc.SQLAlchemyError) as error:
        raise exceptions.ServiceUnavailableError(f'the database failed: {error}') from error
