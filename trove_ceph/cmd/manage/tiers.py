# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage tiers``: plan, apply, show and check."""

import argparse
import dataclasses
import json
import sys
import textwrap
from typing import Any

from trove_ceph import exceptions
from trove_ceph.cmd.manage.cli_base import (
    TIERS_FILE,
    TROVE_CONF,
    CommandGroup,
    add_ceph,
    add_format,
    add_option,
    trove_conf,
)
from trove_ceph.tiers import (
    apply,
    ceph,
    cinder,
    import_command,
    importing,
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

_TROVE_CONF = '/etc/trove/trove.conf'
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

  Take over a Ceph that is in use: describe it as it is, and see that nothing would change:
    trove-ceph-manage tiers import --file /etc/trove-ceph/tiers.yaml
    trove-ceph-manage tiers plan

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
    importing_ = area.add_verb(
        'import', _import, 'write a tiers file that describes what is there; changes nothing else'
    )
    importing_.add_argument(
        '--purpose',
        action='append',
        default=[],
        metavar='POOL=PURPOSE',
        help='what a pool is for (data, replica, vault or images); without it, back ends of Cinder '
        'are for data and the pool of Glance is for images; may be repeated',
    )
    importing_.add_argument(
        '--datastore-version',
        action='append',
        metavar='DATASTORE/VERSION',
        help='whose volume types to ask for; may be repeated (default: all that Trove shows)',
    )
    for verb in (plan, applying, showing, check, importing_):
        _add_options(verb)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_option(parser, '--file', TIERS_FILE, tiers_file.DEFAULT_PATH, 'the tiers file')
    parser.add_argument(
        '--only',
        choices=_SYSTEMS,
        action='append',
        help='look at this system only; may be repeated (default: all that the file speaks of)',
    )
    add_format(parser)
    add_ceph(parser)
    parser.add_argument(
        '--trove-conf',
        default=trove_conf(_TROVE_CONF)[0],
        metavar='PATH',
        help=f"of trove-manage (default: the first of ${TROVE_CONF}, else {_TROVE_CONF})",
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


def _import(arguments: argparse.Namespace) -> int:
    chosen = arguments.only or list(_SYSTEMS)
    if 'ceph' not in chosen:
        raise exceptions.InvalidTiersError('tiers are pools of Ceph: add --only ceph')
    asks_trove = 'trove' in chosen
    result = import_command.run(
        ceph.Ceph(arguments.ceph_conf, arguments.ceph_user),
        _connect_cinder() if 'cinder' in chosen else None,
        trove.Trove(arguments.trove_manage, arguments.trove_conf) if asks_trove else None,
        (arguments.datastore_version or trove.list_versions()) if asks_trove else [],
        dict(importing.purposes_of(arguments.purpose)),
    )
    if arguments.file == '-':
        print(result.text, end='')
    else:
        import_command.write(arguments.file, result.text)
        _print_import(arguments, result)
    return PROBLEM if result.plan.problems else DRIFT if result.plan.changes else OK


def _print_import(arguments: argparse.Namespace, result: import_command.Result) -> None:
    content = result.content
    if arguments.format == 'json':
        _print_json(
            {
                'file': arguments.file,
                'tiers': list(content.tiers),
                'users': list(content.users),
                'left_out': list(result.notes),
                'plan': result.plan.as_document(),
            }
        )
        return
    print(f'{arguments.file}: tiers {", ".join(content.tiers)}; users {", ".join(content.users)}')
    for note in result.notes:
        print(f'left out: {note}')
    print(render.plan_text(result.plan, colour=sys.stdout.isatty()))


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
