# SPDX-License-Identifier: Apache-2.0
"""``openstack database failover policy``."""

from typing import Any

from osc_lib import exceptions
from osc_lib.command import command

from trove_ceph.osc import base, connection

_PATH = 'failover_policies'
_KEY = 'failover_policy'
_COLUMNS = {
    'ID': 'id',
    'Scope': 'scope',
    'Target': 'target',
    'Enabled': 'enabled',
    'Prefer': 'prefer',
    'Project ID': 'project_id',
}


class _Target(base.DocstringHelp):
    """A command about the policy of a target."""

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        target = parser.add_mutually_exclusive_group(required=True)
        target.add_argument('--instance', metavar='<instance>', help='Of an instance (name or ID)')
        target.add_argument(
            '--datastore',
            metavar='<datastore>[/<version>]',
            help='Of all instances of a datastore, or of one version of it (administrators)',
        )
        return parser


class ListFailoverPolicies(base.DocstringHelp, command.Lister):
    """List failover policies

    Lists the policies of the project, and for administrators those of datastores too. With
    --instance, lists those that match the instance, including an operator's. The first of them
    applies to it; without any, the instance is not failed over automatically.
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        which = parser.add_mutually_exclusive_group()
        base.add_instance_filter(which, 'those')
        base.add_all_projects(which, 'those')
        return parser

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = base.connection_of(self)
        found = api.get(
            f'/{_PATH}',
            instance_id=parsed_args.instance and api.instance_id(parsed_args.instance),
            all_projects=parsed_args.all_projects,
        )
        return base.listed(found[_PATH], _COLUMNS)


class ShowFailoverPolicy(base.DocstringHelp, command.ShowOne):
    """Show a failover policy: whose databases it concerns, and whether it is enabled"""

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('policy', metavar='<policy>', help='ID of the policy')
        return parser

    def take_action(self, parsed_args: Any) -> base.Shown:
        return base.one(base.connection_of(self).get(f'/{_PATH}/{parsed_args.policy}')[_KEY])


class SetFailoverPolicy(_Target, command.ShowOne):
    """Set whether databases are failed over automatically

    An instance whose server failed by all signs then gets another server, with its volume and its
    addresses, if the operator has enabled automatic failover in this cloud. With --prefer replica,
    a replica of it becomes the source instead, if it has all transactions that are known;
    applications then need the address of the replica.

    The policy of an instance has precedence over that of its datastore version, and that over the
    one of its datastore. Set --disable for an instance to except it from an operator's policy.

    Example
      openstack database failover policy set --instance shop
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--disable', action='store_true', help='Do not fail over automatically (default: do)'
        )
        parser.add_argument(
            '--prefer',
            choices=('volume', 'replica'),
            help='Move the volume of a source (default for a new policy), or have a replica take '
            'over if it has all transactions that are known, and otherwise move the volume',
        )
        return parser

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = base.connection_of(self)
        scope, target = _target(api, parsed_args)
        content: dict[str, Any] = {'enabled': not parsed_args.disable}
        if parsed_args.prefer is not None:
            content['prefer'] = parsed_args.prefer
        found = _find(api, scope, target)
        if found is None:
            content |= {'scope': scope, 'target': target}
            return base.one(api.post(f'/{_PATH}', {_KEY: content})[_KEY])
        return base.one(api.patch(f'/{_PATH}/{found}', {_KEY: content})[_KEY])


class UnsetFailoverPolicy(_Target, command.Command):
    """Remove a failover policy

    A policy with a wider scope applies from then on, if there is one.
    """

    def take_action(self, parsed_args: Any) -> None:
        api = base.connection_of(self)
        scope, target = _target(api, parsed_args)
        found = _find(api, scope, target)
        if found is None:
            raise exceptions.CommandError(f'{scope} {target} has no failover policy of its own')
        api.delete(f'/{_PATH}/{found}')


def _target(api: connection.Connection, parsed_args: Any) -> tuple[str, str]:
    if parsed_args.instance:
        return 'instance', api.instance_id(parsed_args.instance)
    return 'datastore', parsed_args.datastore


def _find(api: connection.Connection, scope: str, target: str) -> str | None:
    """Return the id of the policy of a target."""
    instance_id = target if scope == 'instance' else None
    listed = api.get(f'/{_PATH}', instance_id=instance_id)[_PATH]
    found = (one['id'] for one in listed if (one['scope'], one['target']) == (scope, target))
    return next(found, None)
