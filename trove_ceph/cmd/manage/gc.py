# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage gc``: list and remove orphans."""

import argparse
import contextlib
import datetime
import json
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import prettytable

from trove_ceph import exceptions
from trove_ceph.cmd.manage.cli_base import TROVE_CONF, CommandGroup, add_format, trove_conf

if TYPE_CHECKING:
    from trove_ceph.gc import collector as gc_collector
    from trove_ceph.gc.orphan import Orphan

OK = 0
FOUND = 1
DEFAULT_CONFIG = '/etc/trove/trove.conf'
DEFAULT_AGE_HOURS = 24

_EXIT_CODES = """\
exit status:
  0  nothing was found, or all that was found was removed
  1  something was found (list, and remove without --yes), or could not be removed
  2  the command line or the tiers file is wrong
  3  Trove's database, Cinder or the storage service could not be asked; nothing was changed
"""
_OVERVIEW = """\
An orphan is an image, a snapshot, a volume, a job or a record that nothing refers to. Operations of
trove_ceph leave none, and these commands prove it: they compare what exists in Ceph and Cinder with
Trove's records, trove_ceph's own tables and the jobs of the storage service. Only objects that
trove_ceph named are considered. Run them where trove-taskmanager runs, with its configuration.
"""
_EXAMPLES = """\
examples:
  List orphans; for a monitoring system, in JSON:
    trove-ceph-manage gc list
    trove-ceph-manage gc list --format json

  Show what would be removed, then remove it:
    trove-ceph-manage gc remove
    trove-ceph-manage gc remove --yes

An orphan whose instance or backup this Trove never had is listed and stays, because another Trove
may share the pools, or the configuration may name another database. --include-unknown removes it.

"""


def add_commands(areas: Any) -> None:
    """Add ``gc`` and its verbs to the areas of ``trove-ceph-manage``."""
    area = CommandGroup(
        areas,
        'gc',
        'list and remove orphans',
        overview=_OVERVIEW,
        examples=_EXAMPLES,
        exit_codes=_EXIT_CODES,
    )
    listing = area.add_verb('list', _list, 'list orphans; changes nothing')
    remove = area.add_verb('remove', _remove, 'remove orphans; without --yes only show which')
    remove.add_argument('--yes', action='store_true', help='remove them')
    for verb in (listing, remove):
        add_format(verb)
        verb.add_argument(
            '--include-unknown',
            action='store_true',
            help='also remove orphans whose instance or backup this Trove never had',
        )
        verb.add_argument(
            '--min-age-hours',
            type=float,
            default=DEFAULT_AGE_HOURS,
            metavar='HOURS',
            help='ignore objects younger than this (default: %(default)s)',
        )
        verb.add_argument(
            '--config-file',
            action='append',
            metavar='PATH',
            help='configuration file of trove-taskmanager; repeat for several '
            f'(default: those in ${TROVE_CONF}, else {DEFAULT_CONFIG})',
        )


def _list(arguments: argparse.Namespace) -> int:
    with _translated():
        found = _collector(arguments).find()
    outcomes = [one.stays_because(arguments.include_unknown) or '' for one in found]
    _print(arguments, found, [f'stays: {text}' if text else 'can go' for text in outcomes])
    return FOUND if found else OK


def _remove(arguments: argparse.Namespace) -> int:
    with _translated():
        collector = _collector(arguments)
        found = collector.find()
        outcomes = [_deal_with(arguments, collector, one) for one in found]
        if arguments.yes:
            collector.finish()
    _print(arguments, found, outcomes)
    return OK if all(outcome == 'removed' for outcome in outcomes) else FOUND


def _deal_with(
    arguments: argparse.Namespace, collector: 'gc_collector.Collector', orphan: 'Orphan'
) -> str:
    """Remove an orphan if that is asked for; return the outcome."""
    if stays := orphan.stays_because(arguments.include_unknown):
        return f'stays: {stays}'
    if not arguments.yes:
        return 'would be removed'
    try:
        collector.remove(orphan, arguments.include_unknown)
    except exceptions.TroveCephError as error:
        return f'stays: {error}'
    return 'removed'


def _print(
    arguments: argparse.Namespace, found: 'Sequence[Orphan]', outcomes: Sequence[str]
) -> None:
    if arguments.format == 'json':
        documents = [
            _as_document(orphan) | {'outcome': outcome}
            for orphan, outcome in zip(found, outcomes, strict=True)
        ]
        print(json.dumps({'status': 'found' if found else 'ok', 'found': documents}, indent=2))
    elif found:
        print(table_text(found, outcomes))
    else:
        print('ok: no orphans.')


def _as_document(orphan: 'Orphan') -> dict[str, Any]:
    return {
        'kind': str(orphan.kind),
        'name': orphan.name,
        'since': orphan.since and orphan.since.isoformat(),
        'reason': orphan.reason,
    }


def table_text(found: 'Sequence[Orphan]', outcomes: Sequence[str]) -> str:
    """Return what was found as a table."""
    table = prettytable.PrettyTable(['Kind', 'Name', 'Since (UTC)', 'Why', 'Outcome'])
    table.align = 'l'
    for orphan, outcome in zip(found, outcomes, strict=True):
        since = f'{orphan.since:%Y-%m-%d %H:%M}' if orphan.since else '?'
        table.add_row([orphan.kind, orphan.name, since, orphan.reason, outcome])
    return table.get_string()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Translate errors of Trove's database access."""
    import oslo_db.exception
    import sqlalchemy.exc

    try:
        yield
    except (oslo_db.exception.DBError, sqlalchemy.exc.SQLAlchemyError) as error:
        raise exceptions.ServiceUnavailableError(f'the database failed: {error}') from error


def _collector(arguments: argparse.Namespace) -> 'gc_collector.Collector':
    # Imported here: it loads much of OpenStack, and eventlet warns that it is deprecated.
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
    try:
        from trove_ceph.gc import factory
    except ModuleNotFoundError as error:
        raise exceptions.ServiceUnavailableError(
            f'the Python package {error.name} is missing: run this where trove-taskmanager runs'
        ) from error
    age = datetime.timedelta(hours=arguments.min_age_hours)
    return factory.make_collector(arguments.config_file or trove_conf(DEFAULT_CONFIG), age)
