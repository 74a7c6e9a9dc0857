# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage gc``: list and remove what belongs to nobody."""

import argparse
import contextlib
import datetime
import json
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import prettytable

from trove_ceph import exceptions
from trove_ceph.cmd.manage.cli_base import CommandGroup, add_format

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
Operations of trove_ceph leave nothing behind, and carry on where they were interrupted. These
commands prove it: they hold what is in Ceph and Cinder against what Trove, trove_ceph's own tables
and the jobs of the storage service say is somebody's. Only what trove_ceph has named is looked at.
They run where trove-taskmanager does, with its configuration.
"""
_EXAMPLES = """\
examples:
  See what belongs to nobody; for a monitoring system, in JSON:
    trove-ceph-manage gc list
    trove-ceph-manage gc list --format json

  See what would be removed, and remove it:
    trove-ceph-manage gc remove
    trove-ceph-manage gc remove --yes

What Trove's database has never heard of is listed and stays: it may be that of another Trove which
shares the pools, or the configuration that of another database. --include-unknown removes it, too.

"""


def add_commands(areas: Any) -> None:
    """Add ``gc`` and its verbs to the areas of ``trove-ceph-manage``."""
    area = CommandGroup(
        areas,
        'gc',
        'list and remove what belongs to nobody',
        overview=_OVERVIEW,
        examples=_EXAMPLES,
        exit_codes=_EXIT_CODES,
    )
    listing = area.add_verb('list', _list, 'list what belongs to nobody; changes nothing')
    remove = area.add_verb(
        'remove', _remove, 'remove what belongs to nobody; without --yes only say what'
    )
    remove.add_argument('--yes', action='store_true', help='do it')
    for verb in (listing, remove):
        add_format(verb)
        verb.add_argument(
            '--include-unknown',
            action='store_true',
            help='what Trove has never heard of may be removed, too',
        )
        verb.add_argument(
            '--min-age-hours',
            type=float,
            default=DEFAULT_AGE_HOURS,
            metavar='HOURS',
            help='what is younger is let alone (default: %(default)s)',
        )
        verb.add_argument(
            '--config-file',
            action='append',
            metavar='PATH',
            help=f'of trove-taskmanager; may be given several times (default: {DEFAULT_CONFIG})',
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
    """Return what became of it."""
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
        print('ok: nothing that belongs to nobody.')


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
    """Turn what Trove's own tables raise into an error of ours."""
    import oslo_db.exception
    import sqlalchemy.exc

    try:
        yield
    except (oslo_db.exception.DBError, sqlalchemy.exc.SQLAlchemyError) as error:
        raise exceptions.ServiceUnavailableError(f'the database failed: {error}') from error


def _collector(arguments: argparse.Namespace) -> 'gc_collector.Collector':
    # Only here: it loads half of OpenStack, and eventlet, which tells everybody that it is old.
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
    try:
        from trove_ceph.gc import factory
    except ModuleNotFoundError as error:
        raise exceptions.ServiceUnavailableError(
            f'the Python package {error.name} is missing: run this where trove-taskmanager runs'
        ) from error
    age = datetime.timedelta(hours=arguments.min_age_hours)
    return factory.make_collector(arguments.config_file or [DEFAULT_CONFIG], age)
