# SPDX-License-Identifier: Apache-2.0
"""``openstack database backup``: ``detail``, ``take``, ``copy`` and ``verify``."""

import abc
import time
from typing import Any

from osc_lib.command import command

from trove_ceph.osc import base, client

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
    'How the MySQL server is quiesced while the snapshot is created. none: not at all. ddl: '
    'statements that change table definitions wait. freeze: all writes wait. The operator sets the '
    'default.'
)
_WAIT_HELP = 'Wait until it is done; fail if it fails, even if the service retries it later'


def api_of(command: Any) -> client.Api:
    """Return the API for a command."""
    return client.Api(base.connection_of(command))


class _Backup(base.DocstringHelp, command.ShowOne):
    """A command about one backup."""

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('backup', metavar='<backup>', help='ID or name of the backup')
        return parser


class ListDetails(base.Lister):
    """List the state of backups: taken, copied to the vault, verified

    A backup that is not on Ceph has no state.
    """

    what = 'backups'
    short = {
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
    more = {
        'Size': 'size_bytes',
        'Took': 'take_sec',
        'File System Used': 'filesystem_used_bytes',
        'Moved': 'moved_bytes',
        'Policy ID': 'policy_id',
        'Project ID': 'project_id',
        'Error': 'error',
    }

    def add_filters(self, parser: Any) -> None:
        super().add_filters(parser)
        parser.add_argument(
            '--state', choices=_STATES, help='List only backups in this state', metavar='<state>'
        )

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = api_of(self)
        found = api.list_details(state=parsed_args.state, **self.criteria(api, parsed_args))
        return self.shown(parsed_args, found)


class ShowDetail(_Backup):
    """Show all details of a backup

    The state is one of:
      taking    it is being taken
      taken     its snapshot exists, in the pool of the instance's volume
      copied    the vault has a copy too
      verified  a MySQL server was started from it, recovered and checked
      suspected an inspection found damage, which a second one has not confirmed yet
      damaged   two inspections found that it does not restore: see verify_error
      failed    it could not be taken: see error
      deleting  it is being deleted

    gtid_executed is the exact position of its data. used_bytes is the space it occupies,
    filesystem_used_bytes the space of the files on the volume when it was taken.
    """

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = api_of(self)
        return base.one(api.show_detail(api.backup_id(parsed_args.backup)))


class TakeBackup(base.DocstringHelp, command.ShowOne):
    """Take a backup, and choose how the MySQL server is quiesced

    Like "database backup create", with options that the stock command lacks.

    Example: a backup before an upgrade, verified when the command ends
      openstack database backup take before --instance shop --copy --with-verification --wait
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='<name>', help='Name of the backup')
        parser.add_argument(
            '--instance', metavar='<instance>', required=True, help='ID or name of the instance'
        )
        parser.add_argument(
            '--description',
            metavar='<text>',
            help='Purpose of the backup, in one line of up to 255 characters',
        )
        parser.add_argument('--quiesce', choices=LEVELS, help=LEVELS_HELP)
        parser.add_argument('--copy', action='store_true', help='Also copy it to the vault')
        # Not --verify: the client has this option, for certificates, and takes it at any position.
        parser.add_argument(
            '--with-verification', dest='verify', action='store_true', help='Also verify it'
        )
        base.add_wait(parser, _WAIT_HELP)
        return parser

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = api_of(self)
        request = {
            'instance': api.instance_id(parsed_args.instance),
            'name': parsed_args.name,
            'description': parsed_args.description,
            'quiesce': parsed_args.quiesce,
            'copy': parsed_args.copy,
            'verify': parsed_args.verify,
        }
        shown = api.take(**{name: value for name, value in request.items() if value is not None})
        if parsed_args.wait:
            deadline = time.monotonic() + parsed_args.timeout
            shown = api.wait_until_taken(shown['id'], parsed_args.timeout)
            if parsed_args.copy:
                shown = api.wait_until_copied(shown['id'], deadline - time.monotonic())
            if parsed_args.verify:
                shown = api.wait_until_verified(shown['id'], deadline - time.monotonic())
        return base.one(shown)


class _LongOperation(_Backup):
    """A command that starts a long operation."""

    @abc.abstractmethod
    def request(self, api: client.Api, backup_id: str) -> dict[str, Any]:
        """Request the operation."""

    @abc.abstractmethod
    def wait(self, api: client.Api, backup_id: str, timeout_sec: float) -> dict[str, Any]:
        """Wait for the operation."""

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        base.add_wait(parser, _WAIT_HELP)
        return parser

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = api_of(self)
        shown = self.request(api, api.backup_id(parsed_args.backup))
        if parsed_args.wait:
            shown = self.wait(api, shown['id'], parsed_args.timeout)
        return base.one(shown)


class CopyBackup(_LongOperation):
    """Copy a backup to the vault

    The vault is separate storage, from which a backup can be restored too. After the first copy of
    an instance, a copy moves only what changed. Nothing is done for a backup that has a copy.
    """

    def request(self, api: client.Api, backup_id: str) -> dict[str, Any]:
        return api.copy(backup_id)

    def wait(self, api: client.Api, backup_id: str, timeout_sec: float) -> dict[str, Any]:
        return api.wait_until_copied(backup_id, timeout_sec)


class VerifyBackup(_LongOperation):
    """Verify a backup: start a MySQL server from a clone of it, recover and check it

    The backup is not changed. If the vault has a copy, the copy is verified.
    """

    def request(self, api: client.Api, backup_id: str) -> dict[str, Any]:
        return api.verify(backup_id)

    def wait(self, api: client.Api, backup_id: str, timeout_sec: float) -> dict[str, Any]:
        return api.wait_until_verified(backup_id, timeout_sec)
