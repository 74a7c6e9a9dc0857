# SPDX-License-Identifier: Apache-2.0
"""``openstack database backup``: ``detail``, ``take``, ``copy`` and ``verify``."""

import abc
import argparse
import time
from collections.abc import Iterable, Sequence
from typing import Any

from osc_lib.command import command

from trove_ceph.osc import client, columns

_WAIT_SEC = 3600
_STATES = (
    'taking',
    'taken',
    'copied',
    'verified',
    'suspected',
    'damaged',
    'failed',
    'deleting',
)
LEVELS = ('none', 'ddl', 'freeze')
LEVELS_HELP = (
    'How the server is held while the snapshot is made. none: not at all. ddl: statements that '
    'change definitions of tables wait. freeze: all writes wait. By default the operator decides.'
)
_SHORT = {
    'ID': 'id',
    'Name': 'name',
    'Instance ID': 'instance_id',
    'State': 'state',
    'Used': 'used_bytes',
    'Quiesce': 'quiesce',
    'Created': 'created',
    'Copied At': 'copied_at',
    'Verified At': 'verified_at',
}
_LONG = _SHORT | {
    'Size': 'size_bytes',
    'Took': 'take_sec',
    'Moved': 'moved_bytes',
    'Policy ID': 'policy_id',
    'Project ID': 'project_id',
    'Error': 'error',
}

_Shown = tuple[Sequence[str], Iterable[Any]]


class Teaching(command.Command):
    """A command whose help is what its docstring says, line by line."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        return parser


def api_of(command: Any) -> client.Api:
    """Return what a command speaks to."""
    return client.Api(command.app.client_manager.database)


def one(shown: dict[str, Any]) -> _Shown:
    """Return one thing as commands return it."""
    return tuple(shown), tuple(columns.of(name, value) for name, value in shown.items())


def listed(things: Iterable[dict[str, Any]], shown: dict[str, str]) -> _Shown:
    """Return several things as commands return them."""
    rows = (tuple(columns.of(key, each[key]) for key in shown.values()) for each in things)
    return tuple(shown), rows


def add_wait(parser: Any) -> None:
    """Have a command wait when it is asked to."""
    parser.add_argument(
        '--wait',
        action='store_true',
        help='Wait until it is done; an error if it fails, though it is tried again later',
    )
    parser.add_argument(
        '--timeout',
        type=int,
        default=_WAIT_SEC,
        metavar='<seconds>',
        help='How long to wait at most, with --wait (default: %(default)s). What was asked for '
        'goes on afterwards',
    )


class _Backup(Teaching, command.ShowOne):
    """A command about one backup."""

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('backup', metavar='<backup>', help='ID or name of the backup')
        return parser


class ListDetails(Teaching, command.Lister):
    """List how far backups are: taken, copied to the vault, verified

    Backups that are not on Ceph have no state.
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--instance', metavar='<instance>', help='Only those of an instance (name or ID)'
        )
        parser.add_argument(
            '--state', choices=_STATES, help='Only those in this state', metavar='<state>'
        )
        parser.add_argument(
            '--limit', type=int, metavar='<number>', help='So many of the latest ones at most'
        )
        parser.add_argument(
            '--all-projects', action='store_true', help='Those of all projects (administrators)'
        )
        parser.add_argument('--long', action='store_true', help='Show more about each')
        return parser

    def take_action(self, parsed_args: Any) -> _Shown:
        api = api_of(self)
        found = api.list_details(
            limit=parsed_args.limit,
            instance_id=parsed_args.instance and api.instance_id(parsed_args.instance),
            state=parsed_args.state,
            all_projects=parsed_args.all_projects,
        )
        return listed(found, _LONG if parsed_args.long else _SHORT)


class ShowDetail(_Backup):
    """Show all that is known of a backup

    state says how far it is:
      taking    it is being taken
      taken     it is there, next to the instance's volume
      copied    it is in the vault as well
      verified  a MySQL server was started from it, recovered and checked
      suspected an inspection found something against it, and a second one is to confirm that
      damaged   two inspections found that it does not restore: see verify_error
      failed    it could not be taken: see error
      deleting  it is being deleted

    gtid_executed is the exact position of the data in it. used_bytes is what it really takes.
    """

    def take_action(self, parsed_args: Any) -> _Shown:
        api = api_of(self)
        return one(api.show_detail(api.backup_id(parsed_args.backup)))


class TakeBackup(Teaching, command.ShowOne):
    """Take a backup, and choose how the server is held

    As "database backup create", with what that has no option for.

    Example: a backup before an upgrade that is known to restore when the command ends
      openstack database backup take before --instance shop --copy --with-verification --wait
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='<name>', help='Name of the backup')
        parser.add_argument(
            '--instance', metavar='<instance>', required=True, help='ID or name of the instance'
        )
        parser.add_argument('--description', metavar='<text>', help='What it is for')
        parser.add_argument('--quiesce', choices=LEVELS, help=LEVELS_HELP)
        parser.add_argument('--copy', action='store_true', help='Copy it to the vault, too')
        # The client itself has a --verify, of certificates, and takes it wherever it stands.
        parser.add_argument(
            '--with-verification', dest='verify', action='store_true', help='Verify it, too'
        )
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: Any) -> _Shown:
        api = api_of(self)
        wanted = {
            'instance': api.instance_id(parsed_args.instance),
            'name': parsed_args.name,
            'description': parsed_args.description,
            'quiesce': parsed_args.quiesce,
            'copy': parsed_args.copy,
            'verify': parsed_args.verify,
        }
        shown = api.take(**{name: value for name, value in wanted.items() if value is not None})
        if parsed_args.wait:
            deadline = time.monotonic() + parsed_args.timeout
            shown = api.wait_until_taken(shown['id'], parsed_args.timeout)
            if parsed_args.copy:
                shown = api.wait_until_copied(shown['id'], deadline - time.monotonic())
            if parsed_args.verify:
                shown = api.wait_until_verified(shown['id'], deadline - time.monotonic())
        return one(shown)


class _Work(_Backup):
    """A command that asks for something that takes long."""

    @abc.abstractmethod
    def ask(self, api: client.Api, backup_id: str) -> dict[str, Any]:
        """Ask for it."""

    @abc.abstractmethod
    def wait(self, api: client.Api, backup_id: str, timeout_sec: float) -> dict[str, Any]:
        """Return when it is done."""

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: Any) -> _Shown:
        api = api_of(self)
        shown = self.ask(api, api.backup_id(parsed_args.backup))
        if parsed_args.wait:
            shown = self.wait(api, shown['id'], parsed_args.timeout)
        return one(shown)


class CopyBackup(_Work):
    """Copy a backup to the vault

    The vault is other storage, from which a backup restores as well. The second and later copies
    of an instance move only what has changed. Nothing happens if there is a copy.
    """

    def ask(self, api: client.Api, backup_id: str) -> dict[str, Any]:
        return api.copy(backup_id)

    def wait(self, api: client.Api, backup_id: str, timeout_sec: float) -> dict[str, Any]:
        return api.wait_until_copied(backup_id, timeout_sec)


class VerifyBackup(_Work):
    """Verify a backup: start a MySQL server from a clone of it, recover and check it

    The backup stays as it is. A copy in the vault is what is verified, if there is one.
    """

    def ask(self, api: client.Api, backup_id: str) -> dict[str, Any]:
        return api.verify(backup_id)

    def wait(self, api: client.Api, backup_id: str, timeout_sec: float) -> dict[str, Any]:
        return api.wait_until_verified(backup_id, timeout_sec)
