# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage db``: create and upgrade the tables of trove_ceph in Trove's database."""

import argparse
from collections.abc import Sequence
from typing import Any

from trove_ceph.cmd.manage import base, columns, database

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
