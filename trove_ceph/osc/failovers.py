# SPDX-License-Identifier: Apache-2.0
"""``openstack database instance failover`` and ``openstack database failover``."""

from typing import Any

from osc_lib.command import command

from trove_ceph.osc import base, failover_client


class FailOver(base.DocstringHelp, command.ShowOne):
    """Give an instance another server, with its volume and its addresses

    For an instance whose server failed, or cannot be reached. Its old server is cut off from the
    volume first, so that it cannot write any more, and is deleted. No committed transaction is
    lost; open connections are. Id, addresses, users and settings stay the same.

    An instance that is healthy is refused without --force.

    Example
      openstack database instance failover shop --reason "host is down" --wait
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('instance', metavar='<instance>', help='ID or name of the instance')
        parser.add_argument(
            '--force',
            action='store_true',
            help='Also if the instance is healthy. It is out of service meanwhile',
        )
        parser.add_argument(
            '--reason', metavar='<text>', help='Why it fails over; it is shown with the failover'
        )
        base.add_wait(parser, 'Wait until MySQL serves on the other server; fail if it does not')
        return parser

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = _api_of(self)
        request = {
            'instance': api.instance_id(parsed_args.instance),
            'reason': parsed_args.reason,
            'force': parsed_args.force,
        }
        shown = api.request_failover(**request)
        if parsed_args.wait:
            shown = api.wait_until_completed(shown['id'], parsed_args.timeout)
        return base.one(shown)


class ListFailovers(base.Lister):
    """List failovers

    They are listed for some time after they ended, also if the instance was deleted.
    """

    what = 'failovers'
    short = {
        'ID': 'id',
        'Instance ID': 'instance_id',
        'State': 'state',
        'Requested By': 'requested_by',
        'Cause': 'cause',
        'Reason': 'reason',
        'Created': 'created_at',
        'Ended': 'ended_at',
    }
    more = {
        'Force': 'force',
        'Step': 'step',
        'Attempts': 'attempts',
        'Error': 'error',
        'Fenced': 'fenced_at',
        'Moved': 'moved_at',
        'Promoted ID': 'promoted_id',
        'Project ID': 'project_id',
    }

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = _api_of(self)
        return self.shown(parsed_args, api.list_failovers(**self.criteria(api, parsed_args)))


class ShowFailover(base.DocstringHelp, command.ShowOne):
    """Show a failover: its state, what is being done, and the last error

    The state is one of:
      requested    nothing was changed yet
      taking_over  the old server is being cut off, and a replica becomes the source
      fencing      the old server is being cut off from the volume
      moving       it cannot write any more; another server gets the volume and the addresses
      starting     MySQL starts on the other server
      completed    MySQL serves; on the replica promoted_id, if that is set
      failed       nothing was moved, or MySQL does not start on the other server: see error
      canceled     the instance was deleted meanwhile

    A failed attempt is repeated; attempts is how many have failed in this state, and error is why
    the last one did.
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'failover',
            metavar='<failover>',
            help='ID of the failover; or ID or name of an instance, for its latest failover',
        )
        return parser

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = _api_of(self)
        return base.one(api.show_failover(api.failover_id(parsed_args.failover)))


def _api_of(command: Any) -> failover_client.FailoverApi:
    return failover_client.FailoverApi(base.connection_of(command))
