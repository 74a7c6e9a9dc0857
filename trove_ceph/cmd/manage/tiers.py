# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage tiers``: plan, apply, show and check."""

import argparse
import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, columns, options
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

SYSTEMS = ('ceph', 'cinder', 'trove')
_EXIT_CODES = """\
exit status:
  0  everything matches, or was made to match
  1  something differs (check), or a change failed or waits; run apply again
  2  the command line or the tiers file is wrong, the tiers do not fit the cluster, or
     consequences were not accepted; nothing was changed
  3  Ceph, Cinder or Trove did not answer
"""
_EXAMPLES = """\
examples:
  Show what would change, change it, and show the result:
    trove-ceph-manage tiers plan
    trove-ceph-manage tiers apply
    trove-ceph-manage tiers show

  Only Ceph, before there is an OpenStack:
    trove-ceph-manage tiers apply --only ceph

  Go from two copies to three, after reading the plan; again, when the copies exist, for the
  changes that waited for them:
    trove-ceph-manage tiers apply --yes-move-data

  For a monitoring system:
    trove-ceph-manage tiers check -f json

  Take over a Ceph that is in use: describe it as it is, and see that nothing would change:
    trove-ceph-manage tiers import --file /etc/trove-ceph/tiers.yaml
    trove-ceph-manage tiers plan

Ceph is asked as an administrator with its own commands (--ceph-conf, --ceph-user), OpenStack as an
administrator with OS_* variables or clouds.yaml, and Trove with trove-manage (--trove-conf).
"""


class Group(base.Group):
    """Make Ceph, Cinder and Trove match the tiers file.

    One file describes the storage tiers. CRUSH rules, pools, cephx users, Cinder's volume types and
    QoS specs, and the volume types that Trove's datastore versions may use follow from it.
    """

    examples = _EXAMPLES
    exit_codes = _EXIT_CODES


class TiersCommand(base.Command):
    """A command that asks Ceph, Cinder and Trove."""

    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser, with the options for the file and the systems."""
        parser = super().get_parser(prog_name)
        options.add_option(
            parser, '--file', options.TIERS_FILE, tiers_file.DEFAULT_PATH, 'the tiers file'
        )
        parser.add_argument(
            '--only',
            choices=SYSTEMS,
            action='append',
            help='ask this system only; may be repeated (default: all that the file describes)',
        )
        options.add_ceph(parser)
        parser.add_argument(
            '--trove-conf',
            default=options.trove_conf()[0],
            metavar='PATH',
            help='configuration file of trove-manage '
            f'(default: the first of ${options.TROVE_CONF}, else {options.DEFAULT_TROVE_CONF})',
        )
        parser.add_argument(
            '--trove-manage',
            default='trove-manage',
            metavar='PATH',
            help='the command trove-manage (default: %(default)s)',
        )
        return parser


class Plan(TiersCommand, base.Report):
    """Show what would change; change nothing."""

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Return the plan, as a document and as a diff."""
        content, targets = _read(parsed_args)
        plan = planning.plan(content, targets.observe())
        if plan.problems:
            self.exit_status = base.ExitStatus.REFUSED
        return plan.as_document(), render.plan_text(plan, colour=self.app.stdout.isatty())


class Apply(TiersCommand, base.Report):
    """Make Ceph, Cinder and Trove match the tiers file, and print what was changed."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser, with an option for each consequence."""
        parser = super().get_parser(prog_name)
        for risk in Risk:
            parser.add_argument(
                risk.flag,
                dest='accepted',
                action='append_const',
                const=risk,
                help=f'accept changes with this consequence: {risk.value}',
            )
        return parser

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Return what was changed, also when the next change failed, and what waits."""
        content, targets = _read(parsed_args)
        accepted = frozenset(parsed_args.accepted or ())
        made: list[Change] = []
        waiting: list[Change] = []

        def note(change: Change) -> None:
            made.append(change)
            self.show_progress(parsed_args, f'done: {change}')

        lines = []
        try:
            plan = apply.run(content, targets, accepted, note)
        except exceptions.TroveCephError as error:
            self.failure = error
        else:
            waiting = plan.waiting(accepted)
            lines += [f'note: {text}' for text in plan.notes]
            lines += [f'waits: {one}; it pauses I/O, so it {render.UNTIL}' for one in waiting]
            if waiting:
                self.exit_status = base.ExitStatus.DIFFERS
            elif not made:
                lines.append('Everything matched the tiers file; nothing was changed.')
        document = {
            'changed': bool(made),
            'changes': [one.as_document() for one in made],
            'waiting': [one.as_document() for one in waiting],
        }
        return document, '\n'.join(lines)


class Show(TiersCommand, base.Lister):
    """Show the tiers with their devices, their fill and their volumes."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return a row for each tier."""
        content, targets = _read(parsed_args)
        names = [field.name for field in dataclasses.fields(show.Row)]
        return names, [
            [
                columns.Percent(value) if name == 'fill' else columns.of(value)
                for name, value in dataclasses.asdict(row).items()
            ]
            for row in show.rows(content, targets.observe())
        ]


class Check(TiersCommand, base.Report):
    """Say whether everything matches the tiers file; for monitoring."""

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Return the plan, and a line that names the first differences."""
        content, targets = _read(parsed_args)
        plan = planning.plan(content, targets.observe())
        status = 'ok'
        if plan.problems:
            self.exit_status, status = base.ExitStatus.REFUSED, 'problem'
        elif plan.changes:
            self.exit_status, status = base.ExitStatus.DIFFERS, 'drift'
        text = f'{status}: {_one_line(plan.problems, plan.changes)}'
        return {'status': status, **plan.as_document()}, text


def _one_line(problems: tuple[str, ...], changes: tuple[Change, ...]) -> str:
    found = [*problems, *map(str, changes)]
    if not found:
        return 'everything matches the tiers file'
    text = textwrap.shorten('; '.join(found), 300, placeholder=' …')
    return f'{len(found)} differences: {text}'


def _read(parsed_args: argparse.Namespace) -> tuple[tier_types.TiersFile, systems.Systems]:
    """Return the file's content and the systems that it describes."""
    content = tiers_file.load(parsed_args.file)
    chosen = parsed_args.only or _described(content)
    return content, systems.Systems(
        content,
        ceph=connect_ceph(parsed_args) if 'ceph' in chosen else None,
        cinder=connect_cinder() if 'cinder' in chosen else None,
        trove=connect_trove(parsed_args) if 'trove' in chosen else None,
    )


def _described(content: tier_types.TiersFile) -> list[str]:
    found = ['ceph']
    if any(tier.volume_type for tier in content.tiers.values()):
        found.append('cinder')
    if any(tier.datastore_versions for tier in content.tiers.values()):
        found.append('trove')
    return found


def connect_ceph(parsed_args: argparse.Namespace) -> ceph.Ceph:
    """Return a client of Ceph."""
    return ceph.Ceph(parsed_args.ceph_conf, parsed_args.ceph_user)


def connect_trove(parsed_args: argparse.Namespace) -> trove.Trove:
    """Return a client of Trove."""
    return trove.Trove(parsed_args.trove_manage, parsed_args.trove_conf)


def connect_cinder() -> cinder.Cinder:
    """Return a client of Cinder.

    :raises ServiceUnavailableError: the environment names no cloud
    """
    try:
        return cinder.Cinder.of_environment()
    except exceptions.ServiceUnavailableError as error:
        raise exceptions.ServiceUnavailableError(
            f'{error}; set OS_* or OS_CLOUD, or leave OpenStack out with --only ceph'
        ) from error
