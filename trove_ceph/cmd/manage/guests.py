# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage guests``: list, show and drain warm guests."""

import argparse
import contextlib
import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, columns, database

if TYPE_CHECKING:
    from trove_ceph.db import guests
    from trove_ceph.db.guest_record import GuestRecord

_EXIT_CODES = """\
exit status:
  0  the command succeeded
  1  the guest has no record (show)
  2  the command line is wrong
  3  the database did not answer, or the configuration file is wrong
"""
_EXAMPLES = """\
examples:
  List the guests of all pools; for a monitoring system, in JSON:
    trove-ceph-manage guests list
    trove-ceph-manage guests list -f json

  Replace the waiting guests of a pool, or of all pools:
    trove-ceph-manage guests drain mysql/8.4:db.small
    trove-ceph-manage guests drain --all
"""
_REASON = 'drained by an operator'
_REFILL = (
    'The taskmanagers delete their servers and boot new ones. To keep a pool empty, remove it from '
    '[trove_ceph_guests] pools.'
)


class Group(base.Group):
    """List, show and drain warm guests.

    A warm guest is a server that was booted before an instance needs it. These commands read and
    write trove_ceph's tables only; the taskmanagers act on what is drained. The state of a guest on
    which MySQL runs already is hot.
    """

    examples = _EXAMPLES
    exit_codes = _EXIT_CODES


class _GuestsCommand(base.Command):
    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        database.add_option(parser)
        return parser


class List(_GuestsCommand, base.Lister):
    """List warm guests, the oldest first.

    age_sec is the time since the boot began, answer_sec that since the last answer of the agent.
    """

    table_columns = ('guest_id', 'pool', 'state', 'age_sec', 'answer_sec', 'host', 'instance_id')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--pool', help='only the guests of this pool')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return a row for each guest."""
        with _store(parsed_args) as store:
            now = store.now()
            rows = [_facts(one, now) for one in store.list(parsed_args.pool)]
        return _NAMES, [tuple(row.values()) for row in rows]


class Show(_GuestsCommand, base.ShowOne):
    """Show a warm guest: its server, its age, its host, its last answer, why it was retired."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('guest', metavar='GUEST', help='id of the guest')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return its fields."""
        with _store(parsed_args) as store:
            found = store.find(parsed_args.guest)
            if found is None:
                raise exceptions.RecordNotFoundError(f'guest {parsed_args.guest}: has no record')
            facts = _facts(found, store.now())
        return tuple(facts), tuple(facts.values())

    def status_of(self, error: exceptions.TroveCephError) -> base.ExitStatus:
        """Return the exit status for an error."""
        if isinstance(error, exceptions.RecordNotFoundError):
            return base.ExitStatus.DIFFERS
        return super().status_of(error)


class Drain(_GuestsCommand, base.Lister):
    """Retire the waiting guests of a pool, or of all pools, and list them.

    Guests that an instance has are not touched. The pools are refilled at once.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument('pool', nargs='?', metavar='POOL', help='name of the pool')
        which.add_argument('--all', action='store_true', help='all pools')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return a row for each guest that was retired."""
        from trove_ceph.db.guest_record import WAITING

        with _store(parsed_args) as store:
            retired = [
                one
                for one in store.list(parsed_args.pool, WAITING)
                # An instance may have claimed it meanwhile.
                if store.retire(one.guest_id, _REASON, only_in=one.state)
            ]
        self.note(_REFILL if retired else 'No guest waits.')
        return ('guest_id', 'pool', 'server_id'), [
            (one.guest_id, one.pool, columns.of(one.server_id)) for one in retired
        ]


_NAMES = (
    *('guest_id', 'pool', 'state', 'age_sec', 'answer_sec', 'host', 'instance_id', 'server_id'),
    *('port_id', 'volume_id', 'availability_zone', 'flavor_id', 'image_id', 'config_digest'),
    *('hot_digest', 'reason', 'created_at', 'updated_at', 'seen_at'),
)


def _facts(guest: 'GuestRecord', now: datetime.datetime) -> Mapping[str, Any]:
    """Return what is shown of a guest; not its keys."""
    answered = None if guest.seen_at is None else _sec(now - guest.seen_at)
    derived = {
        'state': str(guest.state),
        'age_sec': columns.Seconds(_sec(now - guest.created_at)),
        'answer_sec': columns.Seconds(answered),
    }
    return {
        name: derived[name] if name in derived else columns.of(getattr(guest, name))
        for name in _NAMES
    }


def _sec(duration: datetime.timedelta) -> int:
    return int(duration.total_seconds())


@contextlib.contextmanager
def _store(parsed_args: argparse.Namespace) -> 'Iterator[guests.GuestStore]':
    with database.connect(parsed_args.config_file) as facade:
        from trove_ceph.db import guests, transactions

        yield guests.GuestStore(transactions.Transactions(facade))
