# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage replacements``: list, show, end and request replacements of servers."""

import argparse
import contextlib
import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, columns, database

if TYPE_CHECKING:
    from trove_ceph.db import replacements
    from trove_ceph.db.replacement_record import ReplacementRecord

_EXIT_CODES = """\
exit status:
  0  the command succeeded
  1  the replacement has no record (show, end), or is not in state starting (end)
  2  the command line is wrong
  3  the database did not answer, or the configuration file is wrong
"""
_EXAMPLES = """\
examples:
  List what is being replaced; for a monitoring system, in JSON:
    trove-ceph-manage replacements list --open
    trove-ceph-manage replacements list --open -f json

  Show all that is known of one:
    trove-ceph-manage replacements show REPLACEMENT

  Give a replacement up whose new server does not start MySQL, so that the tenant can repair the
  instance:
    trove-ceph-manage replacements end REPLACEMENT --reason "the agent does not start"

  Show which databases are on a host, then move them to other hosts, one after the other:
    trove-ceph-manage replacements move-host compute-3 --reason "new memory"
    trove-ceph-manage replacements move-host compute-3 --reason "new memory" --yes
"""
_ENDS = 'A taskmanager ends it within seconds; a resize returns to the former flavor first.'


class Group(base.Group):
    """List, show and end replacements of servers, and move the databases off a host.

    A failover, or a resize to a warm guest, replaces the server of an instance. These commands read
    and write trove_ceph's tables only, but move-host, which also asks Nova; the taskmanagers do the
    work.
    """

    examples = _EXAMPLES
    exit_codes = _EXIT_CODES


class _ReplacementsCommand(base.Command):
    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        database.add_option(parser)
        return parser


class _OneCommand(_ReplacementsCommand, base.ShowOne):
    """A command about one replacement."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('replacement', metavar='REPLACEMENT', help='id of the replacement')
        return parser

    def status_of(self, error: exceptions.TroveCephError) -> base.ExitStatus:
        """Return the exit status for an error."""
        if isinstance(error, exceptions.RecordError):
            return base.ExitStatus.DIFFERS
        return super().status_of(error)


class List(_ReplacementsCommand, base.Lister):
    """List replacements, the latest first.

    age_sec is the time since the request.
    """

    table_columns = (
        *('replacement_id', 'instance_id', 'kind', 'requested_by', 'state', 'age_sec'),
        *('step', 'attempts', 'error'),
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--instance', metavar='INSTANCE', help='only those of the instance with this id'
        )
        parser.add_argument(
            '--open', action='store_true', help='only those that have not ended yet'
        )
        parser.add_argument('--limit', type=int, metavar='NUMBER', help='at most this number')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return a row for each replacement."""
        with _store(parsed_args) as store:
            found = store.list(
                instance_id=parsed_args.instance,
                is_open=parsed_args.open or None,
                limit=parsed_args.limit,
            )
            now = store.now()
        return _names(), [_values(one, now) for one in found]


class Show(_OneCommand):
    """Show a replacement: its state, its servers and ports, its times, its last error."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return its fields."""
        with _store(parsed_args) as store:
            found = store.find(parsed_args.replacement)
            if found is None:
                raise exceptions.RecordNotFoundError(
                    f'replacement {parsed_args.replacement}: has no record'
                )
            return _names(), _values(found, store.now())


class End(_OneCommand):
    """Give up a replacement in state starting, and show it.

    The instance keeps the new server, and accepts requests again, such as a restart. MySQL does not
    serve until one of them succeeds. A resize that has not returned yet is not ended: it returns to
    the former flavor, on another server.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--reason', metavar='TEXT', required=True, help='why; the tenant reads it'
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return its fields."""
        with _store(parsed_args) as store:
            store.give_up(parsed_args.replacement, parsed_args.reason)
            found = store.find(parsed_args.replacement)
            assert found is not None
            now = store.now()
        self.note(_ENDS)
        return _names(), _values(found, now)


def _names() -> Sequence[str]:
    """Return the names of all fields: those of the record, and the age."""
    from trove_ceph.db.replacement_record import ReplacementRecord

    return (*(field.name for field in dataclasses.fields(ReplacementRecord)), 'age_sec')


def _values(record: 'ReplacementRecord', now: datetime.datetime) -> Sequence[Any]:
    """Return the values of all fields, as commands show them."""
    age = columns.Seconds(int((now - record.created_at).total_seconds()))
    return (*(columns.of(value) for value in vars(record).values()), age)


@contextlib.contextmanager
def _store(parsed_args: argparse.Namespace) -> 'Iterator[replacements.ReplacementStore]':
    with database.connect(parsed_args.config_file) as facade:
        from trove_ceph.db import replacements, transactions

        yield replacements.ReplacementStore(transactions.Transactions(facade))
