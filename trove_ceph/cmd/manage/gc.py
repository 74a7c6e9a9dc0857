# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage gc``: list and remove orphans."""

import argparse
import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, columns, options, taskmanager

if TYPE_CHECKING:
    from trove_ceph.gc import collector as gc_collector
    from trove_ceph.gc.orphan import Orphan

DEFAULT_AGE_HOURS = 24
REMOVED = 'removed'

_EXIT_CODES = """\
exit status:
  0  there are no orphans, or all of them were removed
  1  there are orphans (list, and remove without --yes), or some could not be removed
  2  the command line or the tiers file is wrong
  3  Trove's database, OpenStack or the storage service did not answer; nothing was changed
"""
_EXAMPLES = """\
examples:
  List orphans; for a monitoring system, in JSON:
    trove-ceph-manage gc list
    trove-ceph-manage gc list -f json

  Show what would be removed, then remove it:
    trove-ceph-manage gc remove
    trove-ceph-manage gc remove --yes

An orphan whose instance or backup this Trove never had is listed and stays, because another Trove
may share the pools, or the configuration may name another database. So does one of a warm guest,
since the record of a guest does not outlive it. --include-unknown removes it.
"""


class Group(base.Group):
    """List and remove orphans.

    An orphan is an image, a snapshot, a volume, a job, a record, or a server or port of a warm
    guest, that nothing refers to. Operations of trove_ceph leave none, and these commands prove it:
    they compare what exists in Ceph and in OpenStack with Trove's records, trove_ceph's own tables
    and the jobs of the storage service. Only objects that trove_ceph named are considered. Run them
    where trove-taskmanager runs, with its configuration.
    """

    examples = _EXAMPLES
    exit_codes = _EXIT_CODES


class _OrphanCommand(base.Lister):
    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--include-unknown',
            action='store_true',
            help='also remove orphans whose instance, backup or warm guest is not known',
        )
        parser.add_argument(
            '--min-age-hours',
            type=float,
            default=DEFAULT_AGE_HOURS,
            metavar='HOURS',
            help='ignore objects younger than this (default: %(default)s)',
        )
        options.add_taskmanager_files(parser)
        return parser

    def record(
        self,
        collector: 'gc_collector.Collector',
        found: 'Sequence[Orphan]',
        removed: 'Sequence[Orphan]' = (),
    ) -> None:
        """Record the end of the sweep; a failure of that must not hide its result."""
        try:
            collector.record(found, removed)
        except exceptions.ServiceUnavailableError as error:
            self.note(f'The sweep is not recorded: {error}')

    def show_orphans(
        self, found: 'Sequence[Orphan]', outcomes: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the rows; set the exit status."""
        if not all(outcome == REMOVED for outcome in outcomes):
            self.exit_status = base.ExitStatus.DIFFERS
        if not found:
            self.note('There are no orphans.')
        return ('kind', 'name', 'since', 'reason', 'outcome'), [
            (str(orphan.kind), orphan.name) + (columns.of(orphan.since), orphan.reason, outcome)
            for orphan, outcome in zip(found, outcomes, strict=True)
        ]


class List(_OrphanCommand):
    """List orphans; change nothing, and record that they were looked for."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the orphans with whether they can be removed."""
        with taskmanager.translated():
            collector = _collector(parsed_args)
            found = collector.find()
            self.record(collector, found)
        stays = [one.stays_because(parsed_args.include_unknown) for one in found]
        return self.show_orphans(
            found, [f'stays: {reason}' if reason else 'can be removed' for reason in stays]
        )


class Remove(_OrphanCommand):
    """Remove orphans; without --yes only show which."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--yes', action='store_true', help='remove them')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the orphans with what became of each."""
        with taskmanager.translated():
            collector = _collector(parsed_args)
            found = collector.find()
            outcomes = [_remove(parsed_args, collector, one) for one in found]
            if parsed_args.yes:
                collector.finish()
            ended = zip(found, outcomes, strict=True)
            self.record(collector, found, [one for one, outcome in ended if outcome == REMOVED])
        return self.show_orphans(found, outcomes)


def find_kinds(config_files: Sequence[str]) -> list[str]:
    """Return the kind of each orphan, for other commands; change nothing.

    :raises ServiceUnavailableError: the database, OpenStack or the storage service does not answer
    """
    age = datetime.timedelta(hours=DEFAULT_AGE_HOURS)
    with taskmanager.translated():
        collector = _make_collector(config_files, age)
        try:
            return [str(one.kind) for one in collector.find()]
        finally:
            # The other command may watch, and looks again and again.
            collector.close()


def _remove(
    parsed_args: argparse.Namespace, collector: 'gc_collector.Collector', orphan: 'Orphan'
) -> str:
    """Remove an orphan if --yes is given; return the outcome."""
    if stays := orphan.stays_because(parsed_args.include_unknown):
        return f'stays: {stays}'
    if not parsed_args.yes:
        return 'would be removed'
    try:
        collector.remove(orphan, parsed_args.include_unknown)
    except exceptions.TroveCephError as error:
        return f'stays: {error}'
    return REMOVED


def _collector(parsed_args: argparse.Namespace) -> 'gc_collector.Collector':
    age = datetime.timedelta(hours=parsed_args.min_age_hours)
    return _make_collector(parsed_args.config_file or options.trove_conf(), age)


def _make_collector(
    config_files: Sequence[str], min_age: datetime.timedelta
) -> 'gc_collector.Collector':
    with taskmanager.importing():
        from trove_ceph.gc import factory
    return factory.make_collector(config_files, min_age)
