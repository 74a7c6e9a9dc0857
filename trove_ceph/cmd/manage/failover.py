# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage failover``: what automatic failover sees, and maintenance."""

import argparse
import contextlib
import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trove_ceph import times
from trove_ceph.cmd.manage import base, columns, database

if TYPE_CHECKING:
    from trove_ceph.db.failover_record import FailoverWatch
    from trove_ceph.db.failover_watch import FailoverWatchStore

_EXIT_CODES = """\
exit status:
  0  the command succeeded; status: databases are watched, and nothing holds automatic failover
  1  status: no taskmanager watches the databases, no round has ended within 300 s, or something
     holds automatic failover
  2  the command line is wrong
  3  the database did not answer, or the configuration file is wrong
"""
_EXAMPLES = """\
examples:
  Show which databases are suspected, and why they are moved or not:
    trove-ceph-manage failover status
    trove-ceph-manage failover status -f json

  Hold all automatic failovers while a switch is replaced, and allow them again:
    trove-ceph-manage failover maintenance begin --reason "new switch in rack 3"
    trove-ceph-manage failover maintenance end
"""
_COUNTS = ('databases', 'covered', 'reporting', 'silent', 'moved_within_hour')
#: As in the alert TroveCephFailoverWatchSilent. A process that hangs keeps the watch.
_LONGEST_AGE_SEC = 300
_NOT_WATCHED = (
    'No taskmanager watches the databases: set [trove_ceph_failover] enabled for all of them, and '
    'check that one runs.'
)
_LATE = (
    f'Nothing is moved: no round of it has ended within {_LONGEST_AGE_SEC} s. Look for errors in '
    'its log; restart it if there are none.'
)


class Group(base.Group):
    """Show what automatic failover sees, and hold it during maintenance.

    These commands read and write trove_ceph's tables only. One taskmanager watches the databases,
    if [trove_ceph_failover] enabled is set, and requests the failovers. "replacements list" shows
    them.
    """

    examples = _EXAMPLES
    exit_codes = _EXIT_CODES


class _FailoverCommand(base.Command):
    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        database.add_option(parser)
        return parser


class Status(_FailoverCommand, base.Report):
    """Show what the last round found: suspects, what holds them, and what holds all failovers.

    A database is listed if it has a failover policy and its agent is silent. Its verdict is one of:

      suspect  all signs say that its server failed; it is replaced after some rounds
      unclear  a sign is missing, or contradicts the others
      held     its server must not be replaced, whatever the signs say
    """

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Return the status, as a document and as text."""
        with _store(parsed_args) as store:
            document = _document(store.read(), store.now())
        is_held = document['hold'] is not None
        if document['watched_by'] is None or is_held or _is_late(document):
            self.exit_status = base.ExitStatus.DIFFERS
        return document, _text(document)


class MaintenanceBegin(_FailoverCommand, base.ShowOne):
    """Hold all automatic failovers from the next round on; failovers that were requested go on."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--reason', required=True, metavar='TEXT', help='why; "failover status" shows it'
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the maintenance."""
        return _set_maintenance(parsed_args, parsed_args.reason)


class MaintenanceEnd(_FailoverCommand, base.ShowOne):
    """Allow automatic failovers again; all signs must first agree anew for some rounds."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the maintenance."""
        return _set_maintenance(parsed_args, None)


def _set_maintenance(
    parsed_args: argparse.Namespace, reason: str | None
) -> tuple[Sequence[str], Sequence[Any]]:
    with _store(parsed_args) as store:
        store.set_maintenance(reason)
        found = store.read()
    shown = (columns.of(found.maintenance), columns.of(_time(found.maintenance_since)))
    return ('maintenance', 'maintenance_since'), shown


def _document(watch: 'FailoverWatch', now: datetime.datetime) -> Mapping[str, Any]:
    from trove_ceph.db import claims

    is_watched = not claims.Claimant('').may_claim(watch, now)
    report = watch.report or {}
    age = None if watch.reported_at is None else int((now - watch.reported_at).total_seconds())
    return {
        'watched_by': watch.claimed_by if is_watched else None,
        'round_age_sec': age,
        'maintenance': watch.maintenance,
        'maintenance_since': _time(watch.maintenance_since),
        'hold': report.get('hold'),
        **{name: report.get(name) for name in _COUNTS},
        'findings': report.get('findings', []),
        'left_out': report.get('left_out', 0),
    }


def _is_late(document: Mapping[str, Any]) -> bool:
    """Return whether the last round that has not failed ended too long ago."""
    age_sec = document['round_age_sec']
    return age_sec is not None and age_sec > _LONGEST_AGE_SEC


def _text(document: Mapping[str, Any]) -> str:
    """Return the status for people."""
    if document['watched_by'] is None:
        lines = [_NOT_WATCHED]
    else:
        lines = [f'Watched by {document["watched_by"]}.']
        if _is_late(document):
            lines.append(_LATE)
    if document['maintenance'] is not None:
        lines.append(
            f'Maintenance since {document["maintenance_since"]}: {document["maintenance"]}'
        )
    if document['round_age_sec'] is None:
        return '\n'.join(lines)
    counts = ', '.join(
        f'{name.replace("_", " ")} {document[name]}'
        for name in _COUNTS
        if document[name] is not None
    )
    lines.append(f'Last round {document["round_age_sec"]} s ago: {counts or "it failed"}.')
    if document['hold'] is not None:
        lines.append(f'Nothing is moved: {document["hold"]}')
    for one in document['findings']:
        silent = columns.Seconds(one['silent_sec']).human_readable()
        lines.append(
            f'{one["instance_id"]} {one["verdict"]}, silent for {silent}, {one["rounds"]} rounds: '
            f'{one["reason"]}'
        )
    if document['left_out']:
        lines.append(f'{document["left_out"]} more are not listed.')
    return '\n'.join(lines)


def _time(time: datetime.datetime | None) -> str | None:
    return None if time is None else times.utc_text(time)


@contextlib.contextmanager
def _store(parsed_args: argparse.Namespace) -> 'Iterator[FailoverWatchStore]':
    with database.connect(parsed_args.config_file) as facade:
        from trove_ceph.db import failover_watch, transactions

        yield failover_watch.FailoverWatchStore(transactions.Transactions(facade))
