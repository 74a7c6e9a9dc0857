# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage db``: create, upgrade and remove trove_ceph's tables in Trove's database."""

import argparse
from collections.abc import Sequence
from typing import Any

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, columns, database

_EXIT_CODES = """\
exit status:
  0  the tables have the version that this program needs, or were upgraded (sync) or downgraded
  1  the tables are missing, or have another version (version)
  2  the command line is wrong, or the loss was not accepted (downgrade); nothing was changed
  3  the database did not answer, the configuration file is wrong, or the tables cannot be brought
     to the version, which the message explains
"""


class Group(base.Group):
    """Create, upgrade and remove the tables of trove_ceph in Trove's database.

    trove_ceph keeps its records of backups in tables of its own, whose names begin with
    trove_ceph_. Trove's own tables, and their version, are not changed.
    """

    examples = """\
examples:
  Create the tables, or upgrade them after an upgrade of trove_ceph:
    trove-ceph-manage db sync

  Before an earlier release is installed again, with all services stopped: see what its version of
  the tables has no place for, and drop that:
    trove-ceph-manage db downgrade 0011
    trove-ceph-manage db downgrade 0011 --yes-drop-it

  When trove_ceph is removed for good, remove its tables:
    trove-ceph-manage db downgrade none --yes-drop-it
"""
    exit_codes = _EXIT_CODES


class _DatabaseCommand(base.ShowOne):
    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        database.add_option(parser)
        return parser


class Sync(_DatabaseCommand):
    """Create the tables, or upgrade them to the version of this program."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the version, and the one before."""
        from trove_ceph.db import migration

        with database.connect(parsed_args.config_file) as facade:
            engine = facade.writer.get_engine()
            before = migration.find_version(engine)
            migration.upgrade(engine)
            after = migration.find_version(engine)
        return ('version', 'version_before'), (after, columns.of(before))


class Downgrade(base.Lister):
    """Bring the tables back to an earlier version, and drop what it has no place for.

    It lists each table with its rows, and each column with its values, that is dropped, and changes
    nothing without --yes-drop-it. Stop trove-taskmanager and trove-api everywhere before.
    """

    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'version',
            metavar='VERSION',
            help='the version that the earlier release needs, as "db version" of that release '
            'shows it; "none" removes all tables of trove_ceph',
        )
        parser.add_argument(
            '--yes-drop-it', action='store_true', help='drop what the earlier version cannot hold'
        )
        database.add_option(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return what was dropped, or would be."""
        from trove_ceph.db import migration

        with database.connect(parsed_args.config_file) as facade:
            engine = facade.writer.get_engine()
            losses = migration.find_losses(engine, parsed_args.version)
            if parsed_args.yes_drop_it:
                migration.downgrade(engine, parsed_args.version)
                self.note(f'The tables have version {parsed_args.version}.')
            else:
                self.failure = exceptions.ConsequencesNotAcceptedError(
                    f'version {parsed_args.version} has no place for the tables and columns above; '
                    'nothing was changed: stop trove-taskmanager and trove-api everywhere, and '
                    'repeat this with --yes-drop-it to drop them'
                )
        return ('dropped', 'count'), [(one.name, one.count) for one in losses]


class Version(_DatabaseCommand):
    """Show the version of the tables."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the version, and the one that this program needs."""
        from trove_ceph.db import migration

        needed = migration.required_version()
        with database.connect(parsed_args.config_file) as facade:
            found = migration.find_version(facade.writer.get_engine())
        if found != needed:
            self.exit_status = base.ExitStatus.DIFFERS
        return ('version', 'needed_version'), (columns.of(found), needed)
