# SPDX-License-Identifier: Apache-2.0
"""``openstack database backup policy``."""

import re
from typing import Any

from osc_lib import exceptions
from osc_lib.command import command

from trove_ceph.osc import base, client
from trove_ceph.osc.backups import LEVELS, LEVELS_HELP, api_of

_PERIODS = ('last', 'hourly', 'daily', 'weekly', 'monthly')
_MINUTES = {'m': 1, 'h': 60, 'd': 1440, 'w': 10080}
_COLUMNS = {
    'ID': 'id',
    'Name': 'name',
    'Scope': 'scope',
    'Target': 'target',
    'Enabled': 'enabled',
    'Every': 'interval_min',
    'At': 'at',
    'Keep': 'keep',
    'Copy Every': 'copy_every',
    'Verify Every': 'verify_every',
}


def interval(text: str) -> int:
    """Return the minutes of a number with an optional unit.

    :raises ValueError: the text has another form
    """
    found = re.fullmatch(r'([0-9]+)([mhdw]?)', text)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _MINUTES[found[2] or 'm']


def _add_settings(parser: Any, is_new: bool) -> None:
    """Add the options that a new policy and an existing one share."""
    parser.add_argument(
        '--every',
        type=interval,
        required=is_new,
        metavar='<interval>',
        help='Interval between backups: minutes, or a number with m, h, d or w, such as 6h',
    )
    at = parser.add_mutually_exclusive_group()
    at.add_argument(
        '--at',
        metavar='<HH:MM>',
        help='Time of day at which the interval starts (default: a time that differs between '
        'instances). With an interval of a week, backups are taken on Sundays',
    )
    parser.add_argument(
        '--timezone',
        metavar='<zone>',
        help='Time zone of --at, and of days, weeks and months, such as Europe/Berlin '
        '(default: UTC)',
    )
    for period in _PERIODS:
        kept = 'last backups' if period == 'last' else f'backups: the last of each {_of(period)}'
        parser.add_argument(
            f'--keep-{period}', type=int, metavar='<number>', help=f'Keep this number of {kept}'
        )
    parser.add_argument(
        '--copy-every',
        type=int,
        metavar='<number>',
        help='Copy every n-th backup to the vault: 1 copies all, 0 copies none (default)',
    )
    parser.add_argument(
        '--verify-every',
        type=int,
        metavar='<number>',
        help='Verify every n-th backup: 1 verifies all, 0 verifies none (default)',
    )
    quiesce = parser.add_mutually_exclusive_group()
    quiesce.add_argument('--quiesce', choices=LEVELS, help=LEVELS_HELP)
    if not is_new:
        at.add_argument('--no-at', action='store_true', help='Remove the time of day')
        quiesce.add_argument(
            '--no-quiesce', action='store_true', help="Use the operator's quiesce level"
        )


def _settings(parsed_args: Any) -> dict[str, Any]:
    """Return the settings that were given."""
    settings: dict[str, Any] = {
        'interval_min': parsed_args.every,
        'at': parsed_args.at,
        'timezone': parsed_args.timezone,
        'copy_every': parsed_args.copy_every,
        'verify_every': parsed_args.verify_every,
        'quiesce': parsed_args.quiesce,
    }
    counts = {period: getattr(parsed_args, f'keep_{period}') for period in _PERIODS}
    keep = {period: count for period, count in counts.items() if count is not None}
    if keep:
        settings['keep'] = keep
    return {name: value for name, value in settings.items() if value is not None}


def _of(period: str) -> str:
    return {'hourly': 'hour', 'daily': 'day', 'weekly': 'week', 'monthly': 'month'}[period]


class _Policy(base.DocstringHelp, command.ShowOne):
    """A command about one policy."""

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('policy', metavar='<policy>', help='ID or name of the policy')
        return parser


class CreatePolicy(base.DocstringHelp, command.ShowOne):
    """Create a policy: when to take backups, and how many to keep

    A policy deletes the backups that a policy took and that none of its rules keeps, and no others.
    The last good backup, the last copied and the last verified one always stay.

    An instance has one policy: its own, or else that of its datastore version, of its datastore, or
    of its tier. Only administrators set policies for those three.

    Examples:
      Every hour; keep the last 24, one for each of 7 days and of 4 weeks; copy all to the vault,
      and verify one a day
        openstack database backup policy create shop-hourly --instance shop --every 1h \\
          --keep-last 24 --keep-daily 7 --keep-weekly 4 --copy-every 1 --verify-every 24
      Every night, in local time, for each MySQL instance that has no policy of its own
        openstack database backup policy create nightly --datastore mysql --every 1d \\
          --at 02:30 --timezone Europe/Berlin --keep-daily 14
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'name',
            metavar='<name>',
            help='Name of the policy; the names of its backups begin with it',
        )
        target = parser.add_mutually_exclusive_group(required=True)
        target.add_argument('--instance', metavar='<instance>', help='For an instance (name or ID)')
        target.add_argument(
            '--datastore',
            metavar='<datastore>[/<version>]',
            help='For all instances of a datastore, or of one version of it (administrators)',
        )
        target.add_argument(
            '--tier', metavar='<tier>', help='For all instances on a tier (administrators)'
        )
        _add_settings(parser, is_new=True)
        parser.add_argument(
            '--disable',
            action='store_true',
            help='Create it disabled. The instances that it applies to then have no policy',
        )
        return parser

    def take_action(self, parsed_args: Any) -> Any:
        api = api_of(self)
        scope, target = self._target(api, parsed_args)
        created = api.create_policy(
            **{'name': parsed_args.name, 'scope': scope, 'target': target, 'keep': {}}
            | ({'enabled': False} if parsed_args.disable else {})
            | _settings(parsed_args)
        )
        return base.one(created)

    @staticmethod
    def _target(api: client.Api, parsed_args: Any) -> tuple[str, str]:
        if parsed_args.instance:
            return 'instance', api.instance_id(parsed_args.instance)
        if parsed_args.datastore:
            return 'datastore', parsed_args.datastore
        return 'tier', parsed_args.tier


class ListPolicies(base.DocstringHelp, command.Lister):
    """List backup policies

    Lists the policies of the project, and for administrators those of datastores and tiers too.
    With --instance, lists those that concern the instance, including an operator's, with the last
    run.
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        which = parser.add_mutually_exclusive_group()
        base.add_instance_filter(which, 'policies')
        base.add_all_projects(which, 'policies')
        return parser

    def take_action(self, parsed_args: Any) -> Any:
        api = api_of(self)
        if parsed_args.instance:
            found = api.list_policies(instance_id=api.instance_id(parsed_args.instance))
            return base.listed(found, _COLUMNS | {'Last Run': 'runs'})
        return base.listed(api.list_policies(all_projects=parsed_args.all_projects), _COLUMNS)


class ShowPolicy(_Policy):
    """Show a backup policy and its last runs

    runs has an entry for each instance: when its last backup was due, its result, and when a failed
    one is retried. Times are in UTC.
    """

    def take_action(self, parsed_args: Any) -> Any:
        api = api_of(self)
        return base.one(api.show_policy(api.policy_id(parsed_args.policy)))


class SetPolicy(_Policy):
    """Change the given settings of a backup policy

    If it keeps fewer backups, the surplus is deleted after the next backup.
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('--name', metavar='<name>', help='New name of the policy')
        _add_settings(parser, is_new=False)
        enabled = parser.add_mutually_exclusive_group()
        enabled.add_argument('--enable', action='store_true', help='Enable the policy')
        enabled.add_argument(
            '--disable',
            action='store_true',
            help='Disable the policy: take and delete no backup until it is enabled',
        )
        return parser

    def take_action(self, parsed_args: Any) -> Any:
        changes = _settings(parsed_args)
        if parsed_args.name:
            changes['name'] = parsed_args.name
        if parsed_args.enable or parsed_args.disable:
            changes['enabled'] = parsed_args.enable
        if parsed_args.no_at:
            changes['at'] = None
        if parsed_args.no_quiesce:
            changes['quiesce'] = None
        if not changes:
            raise exceptions.CommandError('there is nothing to change; see --help')
        api = api_of(self)
        return base.one(api.change_policy(api.policy_id(parsed_args.policy), **changes))


class DeletePolicy(base.DocstringHelp, command.Command):
    """Delete backup policies, but not their backups

    The backups stay until they are deleted by hand, or by another policy of the instance.
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'policy', nargs='+', metavar='<policy>', help='IDs or names of the policies'
        )
        return parser

    def take_action(self, parsed_args: Any) -> None:
        api = api_of(self)
        failed = []
        for policy in parsed_args.policy:
            try:
                api.delete_policy(api.policy_id(policy))
            except Exception as error:
                failed.append(f'{policy}: {error}')
        if failed:
            raise exceptions.CommandError('; '.join(failed))


class RunPolicy(_Policy):
    """Take a backup now of each instance that a policy applies to

    Backups begin within two minutes; "policy show" shows the results. The schedule stays the same.
    """

    def take_action(self, parsed_args: Any) -> Any:
        api = api_of(self)
        return base.one(api.run_policy(api.policy_id(parsed_args.policy)))
