# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage tiers``: plan, apply, show and check."""

import argparse
import dataclasses
import json
import sys
import textwrap
from typing import Any

from trove_ceph import exceptions
from trove_ceph.cmd.manage.cli_base import CommandGroup, add_ceph, add_format
from trove_ceph.tiers import (
    apply,
    ceph,
    cinder,
    planning,
    render,
    show,
    systems,
    tier_types,
    tiers_file,
    trove,
)
from trove_ceph.tiers.changes import Change, Risk

OK = 0
DRIFT = 1
PROBLEM = 2
UNKNOWN = 3

_SYSTEMS = ('ceph', 'cinder', 'trove')
_EXIT_CODES = """\
exit status:
  0  everything matches, or was made to match
  1  something differs (check), or a change could not be made or waits; run apply again
  2  the command line or the tiers file is wrong, the tiers do not fit the cluster, or
     consequences were not agreed to; nothing was changed
  3  Ceph, Cinder or Trove could not be asked
"""
_OVERVIEW = """\
Storage tiers are described in one file. From it follow CRUSH rules, pools, cephx users, Cinder's
volume types and QoS specs, and which volume types Trove's datastore versions may use.
"""
_EXAMPLES = """\
examples:
  See what would change, change it, and look at the result:
    trove-ceph-manage tiers plan
    trove-ceph-manage tiers apply
    trove-ceph-manage tiers show

  Ceph only, before there is an OpenStack:
    trove-ceph-manage tiers apply --only ceph

  Go from two copies to three, after reading the plan; again, when the copies are there, for what
  had to wait for them:
    trove-ceph-manage tiers apply --yes-move-data

  For a monitoring system:
    trove-ceph-manage tiers check --format json

Ceph is asked as an administrator with its own commands (--ceph-conf, --ceph-user), OpenStack as an
administrator with OS_* variables or clouds.yaml, and Trove by trove-manage (--trove-conf).

"""


def add_commands(areas: Any) -> None:
    """Add ``tiers`` and its verbs to the areas of ``trove-ceph-manage``."""
    area = CommandGroup(
        areas,
        'tiers',
        'make Ceph, Cinder and Trove match the tiers file',
        overview=_OVERVIEW,
        examples=_EXAMPLES,
        exit_codes=_EXIT_CODES,
    )
    plan = area.add_verb('plan', _plan, 'show what would change; changes nothing')
    applying = area.add_verb('apply', _apply, 'change it, and print what was done')
    for risk in Risk:
        applying.add_argument(
            risk.flag,
            dest='accepted',
            action='append_const',
            const=risk,
            help=f'agree to changes with the consequence: {risk.value}',
        )
    showing = area.add_verb('show', _show, 'show the tiers with their devices, fill and volumes')
    check = area.add_verb('check', _check, 'say whether everything matches; for monitoring')
    for verb in (plan, applying, showing, check):
        _add_options(verb)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--file',
        default=tiers_file.DEFAULT_PATH,
        help='the tiers file (default: %(default)s)',
    )
    parser.add_argument(
        '--only',
        choices=_SYSTEMS,
        action='append',
        help='look at this system only; may be repeated (default: all that the file speaks of)',
    )
    add_format(parser)
    add_ceph(parser)
    parser.add_argument(
        '--trove-conf', default='/etc/trove/trove.conf', metavar='PATH', help='default: %(default)s'
    )
    parser.add_argument(
        '--trove-manage', default='trove-manage', metavar='PATH', help='default: %(default)s'
    )


def _plan(arguments: argparse.Namespace) -> int:
    content, targets = _read(arguments)
    plan = planning.plan(content, targets.observe())
    if arguments.format == 'json':
        _print_json(plan.as_document())
    else:
        print(render.plan_text(plan, colour=sys.stdout.isatty()))
    return PROBLEM if plan.problems else OK


def _apply(arguments: argparse.Namespace) -> int:
    content, targets = _read(arguments)
    as_json = arguments.format == 'json'
    accepted = frozenset(arguments.accepted or ())
    made: list[Change] = []
    waiting: list[Change] = []

    def note(change: Change) -> None:
        made.append(change)
        if not as_json:
            print(f'done: {change}', flush=True)

    try:
        plan = apply.run(content, targets, accepted, note)
        waiting = plan.waiting(accepted)
    finally:
        # What was made is told also when the next change failed.
        if as_json:
            _print_json(
                {
                    'changed': bool(made),
                    'changes': [one.as_document() for one in made],
                    'waiting': [one.as_document() for one in waiting],
                }
            )
    if not as_json:
        for text in plan.notes:
            print(f'note: {text}')
        for change in waiting:
            print(f'waits: {change}; it pauses I/O, so it {render.UNTIL}')
        if not made and not waiting:
            print('Everything matched the tiers file; nothing was changed.')
    return DRIFT if waiting else OK


def _show(arguments: argparse.Namespace) -> int:
    content, targets = _read(arguments)
    found = show.rows(content, targets.observe())
    if arguments.format == 'json':
        _print_json([dataclasses.asdict(row) for row in found])
    else:
        print(show.table_text(found))
    return OK


def _check(arguments: argparse.Namespace) -> int:
    content, targets = _read(arguments)
    plan = planning.plan(content, targets.observe())
    status = PROBLEM if plan.problems else DRIFT if plan.changes else OK
    words = {OK: 'ok', DRIFT: 'drift', PROBLEM: 'problem'}[status]
    if arguments.format == 'json':
        _print_json({'status': words, **plan.as_document()})
    else:
        print(f'{words}: {_one_line(plan.problems, plan.changes)}')
    return status


def _one_line(problems: tuple[str, ...], changes: tuple[Change, ...]) -> str:
    found = [*problems, *map(str, changes)]
    if not found:
        return 'everything matches the tiers file'
    text = textwrap.shorten('; '.join(found), 300, placeholder=' …')
    return f'{len(found)} differences: {text}'


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=2))


def _read(arguments: argparse.Namespace) -> tuple[tier_types.TiersFile, systems.Systems]:
    """Return the file's content and the systems that it speaks of."""
    content = tiers_file.load(arguments.file)
    chosen = arguments.only or _spoken_of(content)
    targets = systems.Systems(
        content,
        ceph=ceph.Ceph(arguments.ceph_conf, arguments.ceph_user) if 'ceph' in chosen else None,
        cinder=_connect_cinder() if 'cinder' in chosen else None,
        trove=(
            trove.Trove(arguments.trove_manage, arguments.trove_conf) if 'trove' in chosen else None
        ),
    )
    return content, targets


def _spoken_of(content: tier_types.TiersFile) -> list[str]:
    found = ['ceph']
    if any(tier.volume_type for tier in content.tiers.values()):
        found.append('cinder')
    if any(tier.datastore_versions for tier in content.tiers.values()):
        found.append('trove')
    return found


def _connect_cinder() -> cinder.Cinder:
    try:
        return cinder.Cinder.of_environment()
    except exceptions.ServiceUnavailableError as error:
        raise exceptions.ServiceUnavailableError(
            f'{error}; set OS_* or OS_CLOUD, or leave OpenStack out with --only ceph'
        ) from error
