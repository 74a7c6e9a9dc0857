# SPDX-License-Identifier: Apache-2.0
"""``openstack database backup policy``."""

import re
from typing import Any

from osc_lib import exceptions
from osc_lib.command import command

from trove_ceph.osc import client
from trove_ceph.osc.backups import LEVELS, LEVELS_HELP, Teaching, api_of, listed, one

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
    """Return minutes from a number with a unit.

    :raises ValueError: it is neither that nor a number
    """
    found = re.fullmatch(r'([0-9]+)([mhdw]?)', text)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _MINUTES[found[2] or 'm']


def _add_settings(parser: Any, is_new: bool) -> None:
    """Add what can be set of a new policy and of one that is there."""
    parser.add_argument(
        '--every',
        type=interval,
        required=is_new,
        metavar='<interval>',
        help='From one backup to the next: minutes, or a number with m, h, d or w, such as 6h',
    )
    at = parser.add_mutually_exclusive_group()
    at.add_argument(
        '--at',
        metavar='<HH:MM>',
        help='The time of day from which the interval counts; by default one that differs from '
        'instance to instance. What is done every week is done on Sundays then',
    )
    parser.add_argument(
        '--timezone',
        metavar='<zone>',
        help='The time zone of --at, and of days, weeks and months, such as Europe/Berlin '
        '(default: UTC)',
    )
    for period in _PERIODS:
        what = 'backups' if period == 'last' else f'backups, the last one of each {_of(period)}'
        parser.add_argument(
            f'--keep-{period}', type=int, metavar='<number>', help=f'Keep so many {what}'
        )
    parser.add_argument(
        '--copy-every',
        type=int,
        metavar='<number>',
        help='Copy each so manieth backup to the vault: 1 is all of them, 0 is none (default)',
    )
    parser.add_argument(
        '--verify-every',
        type=int,
        metavar='<number>',
        help='Verify each so manieth backup: 1 is all of them, 0 is none (default)',
    )
    quiesce = parser.add_mutually_exclusive_group()
    quiesce.add_argument('--quiesce', choices=LEVELS, help=LEVELS_HELP)
    if not is_new:
        at.add_argument('--no-at', action='store_true', help='At no certain time of day')
        quiesce.add_argument(
            '--no-quiesce', action='store_true', help='Held as the operator has it'
        )


def _settings(parsed_args: Any) -> dict[str, Any]:
    """Return what was given."""
    given: dict[str, Any] = {
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
        given['keep'] = keep
    return {name: value for name, value in given.items() if value is not None}


def _of(period: str) -> str:
    return {'hourly': 'hour', 'daily': 'day', 'weekly': 'week', 'monthly': 'month'}[period]


class _Policy(Teaching, command.ShowOne):
    """A command about one policy."""

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('policy', metavar='<policy>', help='ID or name of the policy')
        return parser


class CreatePolicy(Teaching, command.ShowOne):
    """Create a policy: when backups are taken, and how many of them stay

    A policy deletes those backups that a policy had taken and none of its rules keeps, and no
    others. The last good backup, the last copied and the last verified one always stay.

    An instance has one policy: its own, or else that of its version of the datastore, of its
    datastore, or of its tier. Policies for those three are for administrators.

    Examples:
      Every hour; the last 24, one for each of 7 days and of 4 weeks; all of them in the vault, and
      one a day verified
        openstack database backup policy create shop-hourly --instance shop --every 1h \\
          --keep-last 24 --keep-daily 7 --keep-weekly 4 --copy-every 1 --verify-every 24
      Every night, local time, for each MySQL instance that has no policy of its own
        openstack database backup policy create nightly --datastore mysql --every 1d \\
          --at 02:30 --timezone Europe/Berlin --keep-daily 14
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'name', metavar='<name>', help="Name of the policy, with which its backups' names begin"
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
            help='Create it so that it does nothing. What it is for then has no policy at all',
        )
        return parser

    def take_action(self, parsed_args: Any) -> Any:
        api = api_of(self)
        scope, target = self._target(api, parsed_args)
        made = api.create_policy(
            **{'name': parsed_args.name, 'scope': scope, 'target': target, 'keep': {}}
            | ({'enabled': False} if parsed_args.disable else {})
            | _settings(parsed_args)
        )
        return one(made)

    @staticmethod
    def _target(api: client.Api, parsed_args: Any) -> tuple[str, str]:
        if parsed_args.instance:
            return 'instance', api.instance_id(parsed_args.instance)
        if parsed_args.datastore:
            return 'datastore', parsed_args.datastore
        return 'tier', parsed_args.tier


class ListPolicies(Teaching, command.Lister):
    """List backup policies

    Of one's project, and for administrators those of datastores and tiers as well. With --instance
    it is those that have to do with an instance, an operator's too, and what the last run did.
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        which = parser.add_mutually_exclusive_group()
        which.add_argument(
            '--instance', metavar='<instance>', help='Those of an instance (name or ID)'
        )
        which.add_argument(
            '--all-projects', action='store_true', help='Those of all projects (administrators)'
        )
        return parser

    def take_action(self, parsed_args: Any) -> Any:
        api = api_of(self)
        if parsed_args.instance:
            found = api.list_policies(instance_id=api.instance_id(parsed_args.instance))
            return listed(found, _COLUMNS | {'Last Run': 'runs'})
        return listed(api.list_policies(all_projects=parsed_args.all_projects), _COLUMNS)


class ShowPolicy(_Policy):
    """Show a backup policy and what it last did

    runs has an entry for each instance: what its last backup was due for, how that ended, and when
    a failed one is tried again. Times are in UTC.
    """

    def take_action(self, parsed_args: Any) -> Any:
        api = api_of(self)
        return one(api.show_policy(api.policy_id(parsed_args.policy)))


class SetPolicy(_Policy):
    """Change a backup policy; what is not named stays

    When fewer backups are kept, those that are too many are deleted after the next one was taken.
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('--name', metavar='<name>', help='Another name')
        _add_settings(parser, is_new=False)
        enabled = parser.add_mutually_exclusive_group()
        enabled.add_argument('--enable', action='store_true', help='Go on')
        enabled.add_argument(
            '--disable', action='store_true', help='Take and delete nothing until it is enabled'
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
        return one(api.change_policy(api.policy_id(parsed_args.policy), **changes))


class DeletePolicy(Teaching, command.Command):
    """Delete backup policies; the backups that they had taken stay

    They are deleted by hand from then on, or by another policy that the instance gets.
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
    """Take a backup now of all that a policy is for

    Within a minute or two; "policy show" tells what became of it. The schedule stays as it is.
    """

    def take_action(self, parsed_args: Any) -> Any:
        api = api_of(self)
        return one(api.run_policy(api.policy_id(parsed_args.policy)))
