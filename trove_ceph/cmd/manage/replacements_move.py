# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage replacements move-host``: move the databases off a host."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, columns, options, taskmanager

if TYPE_CHECKING:
    from trove_ceph.strategies.failover import host_move

_EXIT_CODES = """\
exit status:
  0  no database is left on the host
  1  databases are left (without --yes: they would be moved, or are refused), or Nova has no such
     host
  2  the command line is wrong, or the host still takes new servers; nothing was changed
  3  the database or Nova did not answer, or the configuration file is wrong
"""
_EXAMPLES = """\
examples:
  Keep Nova from placing servers on the host, and show which databases are there:
    openstack compute service set --disable --disable-reason memory compute-3 nova-compute
    trove-ceph-manage replacements move-host compute-3 --reason "new memory"

  Move them, one after the other, and read what became of each in JSON:
    trove-ceph-manage replacements move-host compute-3 --reason "new memory" --yes -f json
"""
_TIMEOUT_SEC = 1800
_MOVED = 'moved'


class MoveHost(base.Lister):
    """Move the databases of a host to other hosts, one after the other.

    Each is moved by a forced failover, on a warm guest of another host if one fits. Its clients
    lose their connections. MySQL is stopped before, if the database serves; if it does not, or does
    not stop, it recovers on the other host as after a crash. Without --yes the command only shows
    the databases.

    A database that is busy is refused, and the next one is moved: one with a task or a backup that
    is under way, in a cluster, or a replica whose source does not serve. If a failover fails or
    takes too long, the others stay. The command can be interrupted and repeated: the failover that
    is under way goes on, and a repetition moves what is left.
    """

    examples = _EXAMPLES
    exit_codes = _EXIT_CODES
    table_columns = ('instance_id', 'project_id', 'outcome')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument('host', metavar='HOST', help='name of the host of nova-compute')
        parser.add_argument(
            '--reason', metavar='TEXT', required=True, help='why; the tenants read it'
        )
        parser.add_argument('--yes', action='store_true', help='move them')
        parser.add_argument(
            '--timeout-sec',
            type=int,
            default=_TIMEOUT_SEC,
            metavar='SECONDS',
            help='how long one failover may take, after which the others stay '
            '(default: %(default)s)',
        )
        options.add_taskmanager_files(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the databases of the host, with what became of each."""
        with taskmanager.translated():
            move = self._make(parsed_args)
            move.check_host(is_begun=parsed_args.yes)
            found = move.list()
            if parsed_args.yes:
                outcomes = self._move_all(move, found)
            else:
                outcomes = [one.refused or 'would be moved' for one in found]
        if any(one != _MOVED for one in outcomes):
            self.exit_status = base.ExitStatus.DIFFERS
        if not found:
            self.note(f'There is no database on {parsed_args.host}.')
        return ('instance_id', 'project_id', 'refused', 'outcome'), [
            (one.instance_id, one.project_id, columns.of(one.refused), outcome)
            for one, outcome in zip(found, outcomes, strict=True)
        ]

    def status_of(self, error: exceptions.TroveCephError) -> base.ExitStatus:
        """Return the exit status for an error."""
        if isinstance(error, exceptions.RecordError):
            return base.ExitStatus.DIFFERS
        return super().status_of(error)

    def _move_all(
        self, move: 'host_move.HostMove', found: 'Sequence[host_move.Candidate]'
    ) -> Sequence[str]:
        outcomes: list[str] = []
        is_stopped = False
        for number, one in enumerate(found, 1):
            if is_stopped:
                outcomes.append('stays, because the move of another one did not succeed')
                continue
            self.note(f'{number} of {len(found)}: instance {one.instance_id}')
            try:
                ended = move.move(one)
            except exceptions.ReplacementRefusedError as error:
                outcomes.append(f'stays: {error}')
                continue
            except exceptions.TroveCephError as error:
                outcomes.append(f'unknown: {error}')
                is_stopped = True
                continue
            if ended is None:
                self.note(f'instance {one.instance_id}: has left the host meanwhile')
            if ended is None or move.has_left(ended):
                outcomes.append(_MOVED)
                continue
            text = ended.error or f'it is on {ended.new_host} again'
            outcomes.append(f'{ended.state}: {text}')
            is_stopped = True
        return outcomes

    def _make(self, parsed_args: argparse.Namespace) -> 'host_move.HostMove':
        with taskmanager.importing():
            from trove_ceph.taskmanager import host_moves
        return host_moves.make(
            parsed_args.config_file or options.trove_conf(),
            parsed_args.host,
            parsed_args.reason,
            parsed_args.timeout_sec,
            self.note,
        )
