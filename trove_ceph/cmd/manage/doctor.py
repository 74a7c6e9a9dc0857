# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage doctor``: hold the cloud against all that the operations rely on."""

import argparse
import datetime
import enum
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, columns, gc, options
from trove_ceph.cmd.manage import tiers as tiers_command
from trove_ceph.doctor import check, checks, finding, measurement, sources
from trove_ceph.doctor.finding import Finding, Level
from trove_ceph.doctor.settings import Service
from trove_ceph.tiers import desired, tiers_file

DEFAULT_MEASUREMENTS = '/var/lib/trove-ceph/measurements.json'
_CINDER_CONF = '/etc/cinder/cinder.conf'
_NOVA_CONF = '/etc/nova/nova.conf'
_COLUMNS = ('level', 'check', 'object', 'observed', 'expected', 'command')
_DETAILS = 'details'
_MOST_SECONDS = 86400
_EXIT_CODES = """\
exit status:
   0  all is well; otherwise the worst finding counts, as in monitoring plugins
   1  there are warnings
   2  there are errors
   3  something could not be found out, and nothing is known to be an error
  64  the command line is wrong, or a measurement failed; nothing was examined
"""
_EXAMPLES = """\
examples:
  Examine everything, and then only what needs attention:
    trove-ceph-manage doctor
    trove-ceph-manage doctor --level warning

  Some checks only, and all but one; what there is to check:
    trove-ceph-manage doctor --check fill --check redundancy
    trove-ceph-manage doctor --skip orphans
    trove-ceph-manage doctor --list

  For a monitoring system, in JSON; and what changes, every minute:
    trove-ceph-manage doctor -f json
    trove-ceph-manage doctor --watch 60

  Measure what the pools of tiers with promised IOPS can do, about two minutes for each:
    trove-ceph-manage doctor --check promised-iops --measure
"""


class _ExitStatus(enum.IntEnum):
    """How the command ended; wrong usage has the number that sysexits.h gives it."""

    OK = 0
    WARNINGS = 1
    ERRORS = 2
    UNKNOWN = 3
    USAGE = 64


_STATUS_OF_LEVEL = {
    Level.OK: _ExitStatus.OK,
    Level.UNKNOWN: _ExitStatus.UNKNOWN,
    Level.WARNING: _ExitStatus.WARNINGS,
    Level.ERROR: _ExitStatus.ERRORS,
}


class Doctor(base.Lister):
    """Examine the cloud, and say what to mend.

    It holds Ceph, OpenStack, Trove, its databases and their backups against all that the operations
    of trove_ceph rely on, and changes nothing. Each finding has the object, what was observed, what
    is expected, and the command that mends it or shows more. A system that does not answer gives
    findings of the level "unknown" and hides no other. Run it where trove-taskmanager runs, with
    its configuration, and with a key of Ceph's administrator.
    """

    examples = _EXAMPLES
    exit_codes = _EXIT_CODES
    # Those of the findings, and of --list; "details" is for programs.
    table_columns = (*_COLUMNS, 'system', 'holds')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        _add_choices(parser)
        options.add_option(
            parser, '--file', options.TIERS_FILE, tiers_file.DEFAULT_PATH, 'the tiers file'
        )
        options.add_ceph(parser)
        _add_config_files(parser)
        parser.add_argument(
            '--measurements',
            default=DEFAULT_MEASUREMENTS,
            metavar='PATH',
            help='the file with the measured IOPS of pools (default: %(default)s)',
        )
        parser.error = _Usage(parser)  # type: ignore[method-assign]
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Examine once, or again and again."""
        if parsed_args.watch is None:
            return super().run(parsed_args)
        return self._watch(parsed_args)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the findings, the worst first."""
        if parsed_args.list:
            return ('check', 'system', 'holds'), [
                (one.name, str(one.system), one.promise) for one in checks.ALL
            ]
        if parsed_args.measure:
            self._measure(parsed_args)
        found = _examine(parsed_args)
        self.exit_status = _STATUS_OF_LEVEL[finding.worst(found)]  # type: ignore[assignment]
        shown = _shown(parsed_args, found)
        return (*_COLUMNS, _DETAILS), [
            (*_document(one).values(), columns.of(one.details)) for one in shown
        ]

    def status_of(self, error: exceptions.TroveCephError) -> base.ExitStatus:
        """Return the exit status for an error, which only a measurement raises."""
        return _ExitStatus.USAGE  # type: ignore[return-value]

    def _watch(self, parsed_args: argparse.Namespace) -> int:
        """Print findings as they come and go, until an interrupt."""
        before: list[Finding] = []
        worst = Level.OK
        try:
            while True:
                found = _examine(parsed_args)
                worst, shown = finding.worst(found), _shown(parsed_args, found)
                for sign, one in _differences(before, shown):
                    self._print_change(parsed_args, sign, one)
                before = shown
                _sleep(parsed_args.watch)
        except KeyboardInterrupt:
            return _STATUS_OF_LEVEL[worst]

    def _print_change(self, parsed_args: argparse.Namespace, sign: str, one: Finding) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
        if parsed_args.formatter == 'json':
            document = {'time': now, 'change': sign} | _document(one)
            text = json.dumps(document | {_DETAILS: one.details})
        else:
            text = f'{now} {sign} {one.level} {one.check}: {one.object}: {one.observed}'
            if sign == '+' and one.command:
                text += f'; expected: {one.expected}; {one.command}'
        print(text, file=self.app.stdout, flush=True)

    def _measure(self, parsed_args: argparse.Namespace) -> None:
        """Measure the pools of the tiers that promise IOPS."""
        adapter = tiers_command.connect_ceph(parsed_args)
        state = adapter.observe()
        for tier in tiers_file.load(parsed_args.file).tiers.values():
            if tier.iops is None or tier.pool not in state.pools or tier.erasure:
                continue
            self.note(f'Measuring pool {tier.pool} ...')
            osds = len(state.serving(desired.placement(tier)))
            target = measurement.Target(parsed_args.ceph_conf, parsed_args.ceph_user, tier.pool)
            found = measurement.measure(target, osds)
            measurement.store(parsed_args.measurements, {tier.pool: found})


class _Usage:
    """Ends the program for a wrong command line, with another status than that for errors."""

    def __init__(self, parser: argparse.ArgumentParser):
        self._parser = parser

    def __call__(self, message: str) -> NoReturn:
        self._parser.print_usage()
        self._parser.exit(_ExitStatus.USAGE, f'{self._parser.prog}: error: {message}\n')


def _add_choices(parser: argparse.ArgumentParser) -> None:
    names = [one.name for one in checks.ALL]
    which = parser.add_mutually_exclusive_group()
    for name, help_text in (
        ('--check', 'make this check only; may be repeated (default: all)'),
        ('--skip', 'make all checks but this one; may be repeated'),
    ):
        which.add_argument(
            name, action='append', choices=names, default=[], metavar='NAME', help=help_text
        )
    which.add_argument('--list', action='store_true', help='list the checks, and make none')
    parser.add_argument(
        '--level',
        choices=[str(one) for one in Level],
        default=str(Level.OK),
        help='show findings of this level and worse ones; the exit status is the same '
        '(default: %(default)s)',
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        '--watch',
        type=_seconds,
        metavar='SEC',
        help=f'examine again after so many seconds, {_MOST_SECONDS} at most, and print what comes '
        '(+) and goes (-), with -f json one object per line, until Ctrl-C',
    )
    again.add_argument(
        '--measure',
        action='store_true',
        help='before, measure the IOPS of the pools with promised IOPS, with fio on an image of '
        f'{measurement.SIZE_MIB} MiB that is removed; this takes IOPS from databases meanwhile',
    )


def _add_config_files(parser: argparse.ArgumentParser) -> None:
    options.add_taskmanager_files(parser)
    parser.add_argument(
        '--config-dir',
        action='append',
        default=[],
        metavar='PATH',
        help='directory with further files of trove-taskmanager, read in the order of their names',
    )
    for name, what, default in (
        ('--trove-api-config-file', 'trove-api', 'those of trove-taskmanager'),
        ('--trove-conductor-config-file', 'trove-conductor', 'those of trove-taskmanager'),
        ('--cinder-config-file', 'cinder-volume', _CINDER_CONF),
        ('--nova-config-file', 'nova-compute', _NOVA_CONF),
    ):
        parser.add_argument(
            name,
            action='append',
            metavar='PATH',
            help=f'configuration file of {what}; repeat for several (default: {default})',
        )
    parser.add_argument(
        '--trove-manage',
        default='trove-manage',
        metavar='PATH',
        help='the command trove-manage (default: %(default)s)',
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    # No comparison with "nan" holds.
    if not 0 < seconds <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f'must be more than 0, and {_MOST_SECONDS} at most')
    return seconds


def _examine(parsed_args: argparse.Namespace) -> list[Finding]:
    chosen = [
        one
        for one in checks.ALL
        if one.name not in parsed_args.skip
        and (not parsed_args.check or one.name in parsed_args.check)
    ]
    return check.run_all(chosen, sources.Sources(_targets(parsed_args)))


def _targets(parsed_args: argparse.Namespace) -> sources.Targets:
    files = _config_files(parsed_args)
    return sources.Targets(
        tiers_file=parsed_args.file,
        ceph=tiers_command.connect_ceph(parsed_args),
        measurements=parsed_args.measurements,
        config_files=files,
        trove_manage=parsed_args.trove_manage,
        find_orphans=lambda: gc.find_kinds(files[Service.TROVE]),
    )


def _config_files(parsed_args: argparse.Namespace) -> Mapping[Service, Sequence[str]]:
    of_trove = list(parsed_args.config_file or options.trove_conf())
    for directory in parsed_args.config_dir:
        of_trove += sorted(map(str, Path(directory).glob('*.conf')))
    return {
        Service.TROVE: of_trove,
        Service.TROVE_API: parsed_args.trove_api_config_file or of_trove,
        Service.TROVE_CONDUCTOR: parsed_args.trove_conductor_config_file or of_trove,
        Service.CINDER: parsed_args.cinder_config_file or [_CINDER_CONF],
        Service.NOVA: parsed_args.nova_config_file or [_NOVA_CONF],
    }


def _shown(parsed_args: argparse.Namespace, found: Sequence[Finding]) -> list[Finding]:
    least = Level(parsed_args.level).severity
    return [one for one in finding.worst_first(found) if one.level.severity >= least]


def _document(found: Finding) -> dict[str, str]:
    return {name: str(getattr(found, name)) for name in _COLUMNS}


def _differences(before: Sequence[Finding], after: Sequence[Finding]) -> list[tuple[str, Finding]]:
    """Return the findings that went, and those that came."""
    return [('-', one) for one in before if one not in after] + [
        ('+', one) for one in after if one not in before
    ]


def _sleep(seconds: float) -> None:
    time.sleep(seconds)
