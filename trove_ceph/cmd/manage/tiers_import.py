# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage tiers import``: write a tiers file that describes what exists."""

import argparse
from collections.abc import Mapping
from typing import Any

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, tiers
from trove_ceph.tiers import import_command, importing, render, trove

_STANDARD_OUTPUT = '-'


class Import(tiers.TiersCommand, base.Report):
    """Write a tiers file that describes what exists; change nothing else."""

    examples = """\
examples:
  Describe a Ceph and an OpenStack that are in use; Glance's pool and the back ends of Cinder are
  found, other pools need their purpose:
    trove-ceph-manage tiers import --purpose db-backups=vault

  Print the file instead of writing it:
    trove-ceph-manage tiers import --file -
"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--purpose',
            action='append',
            default=[],
            metavar='POOL=PURPOSE',
            help='the purpose of a pool (data, replica, vault or images); without it, back ends of '
            'Cinder are for data and the pool of Glance is for images; may be repeated',
        )
        parser.add_argument(
            '--datastore-version',
            action='append',
            metavar='DATASTORE/VERSION',
            help='a version whose volume types are described; may be repeated (default: all that '
            'Trove shows)',
        )
        return parser

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Write the file; return what it holds and what differs from it."""
        result = _describe(parsed_args)
        if result.plan.problems:
            self.exit_status = base.ExitStatus.REFUSED
        elif result.plan.changes:
            self.exit_status = base.ExitStatus.DIFFERS
        document = {
            'file': parsed_args.file,
            'tiers': list(result.content.tiers),
            'users': list(result.content.users),
            'left_out': list(result.notes),
            'plan': result.plan.as_document(),
        }
        if parsed_args.file == _STANDARD_OUTPUT:
            return document | {'text': result.text}, result.text.rstrip('\n')
        import_command.write(parsed_args.file, result.text)
        tiers_, users = ', '.join(result.content.tiers), ', '.join(result.content.users)
        lines = [f'{parsed_args.file}: tiers {tiers_}; users {users}']
        lines += [f'left out: {note}' for note in result.notes]
        lines.append(render.plan_text(result.plan, colour=self.app.stdout.isatty()))
        return document, '\n'.join(lines)


def _describe(parsed_args: argparse.Namespace) -> import_command.Result:
    chosen = parsed_args.only or list(tiers.SYSTEMS)
    if 'ceph' not in chosen:
        raise exceptions.InvalidTiersError('tiers are pools of Ceph: add --only ceph')
    asks_trove = 'trove' in chosen
    return import_command.run(
        tiers.connect_ceph(parsed_args),
        tiers.connect_cinder() if 'cinder' in chosen else None,
        tiers.connect_trove(parsed_args) if asks_trove else None,
        (parsed_args.datastore_version or trove.list_versions()) if asks_trove else [],
        dict(importing.purposes_of(parsed_args.purpose)),
    )
