# SPDX-License-Identifier: Apache-2.0
"""``openstack database replica``."""

from typing import Any

from osc_lib.command import command

from trove_ceph.osc import base, replication_client


class ListReplicas(base.Lister):
    """List replicas: whether they replicate, how far they are behind, and their own space

    The cloud looks at replicas every minute or so; Observed is the time of the last look. What it
    does not know is empty. For what the columns mean see "database replica show --help".

    Example: the replicas of one source
      openstack database replica list --source shop
    """

    what = 'replicas'
    short = {
        'ID': 'id',
        'Name': 'name',
        'Source ID': 'source_id',
        'State': 'state',
        'Replicating': 'replicating',
        'Lag': 'lag_sec',
        'Lag Transactions': 'lag_transactions',
        'Own Space': 'own_bytes',
        'Cloned': 'cloned_at',
        'Observed': 'observed_at',
    }
    more = {
        'Problem': 'problem',
        'Clone Depth': 'clone_depth',
        'Semi-sync Active': 'semi_sync_active',
        'Reprovisioned': 'reprovisioned_at',
        'Last Reason': 'last_reason',
        'Former Own Space': 'former_own_bytes',
        'Fresh Own Space': 'fresh_own_bytes',
        'Next By Policy': 'reprovision_due_at',
        'Step': 'step',
        'Attempts': 'attempts',
        'Error': 'error',
        'Project ID': 'project_id',
    }

    def add_filters(self, parser: Any) -> None:
        parser.add_argument(
            '--source',
            metavar='<instance>',
            help='List only replicas of this source (name or ID)',
        )

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = _api_of(self)
        found = api.list_replicas(
            limit=parsed_args.limit,
            source_id=parsed_args.source and api.instance_id(parsed_args.source),
            all_projects=parsed_args.all_projects,
        )
        return self.shown(parsed_args, found)


class ShowReplica(base.DocstringHelp, command.ShowOne):
    """Show a replica, or a source with its replicas

    The state of a replica is one of:
      creating     it is being created
      following    it replicates its source
      broken       it does not replicate: see problem
      requested    it will get a fresh clone of its source; nothing was changed yet
      cloning      the clone is being created; the replica serves
      exchanging   its volume is replaced by the clone; the replica is out of service
      catching_up  MySQL starts on the clone, and catches up with the source
      returning    the clone cannot be used; the replica returns to its old volume
      blocked      the volume cannot be exchanged until your operator has acted: see error
      unknown      the cloud does not watch it: see problem

    problem says why a replica does not replicate, and what to do. lag_sec and lag_transactions say
    how far it is behind its source. They are empty if that is not known, as lag_sec is while it
    does not replicate. own_bytes is the space that it does not share with its source, and
    clone_depth the number of images from which it reads what it shares. semi_sync_active says
    whether a commit of its source waits until a replica has it, this or another one. All of these
    are as of observed_at, when the cloud last looked.

    cloned_at and clone_age_sec say when its data were cloned, reprovisioned_at and last_reason when
    and why it last got a fresh clone, and reprovision_due_at when its policy gives it the next one.
    former_own_bytes and fresh_own_bytes are its own space before the last fresh clone, and when
    that had caught up: the difference is the space that it has returned.

    copies is how many copies the storage keeps of its data. With one copy, the loss of a disk can
    lose the data; the replica then needs a fresh clone.

    requested_by, reason, step, attempts and error are of the present or the last re-provisioning.
    A failed attempt is repeated; attempts is how many have failed in this state.
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'instance', metavar='<instance>', help='ID or name of the replica, or of the source'
        )
        return parser

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = _api_of(self)
        return base.one(api.show_replica(api.instance_id(parsed_args.instance)))


class Reprovision(base.DocstringHelp, command.ShowOne):
    """Give a replica a fresh clone of its source

    For a replica that does not replicate and does not recover by itself, that has fallen far
    behind, or that occupies much space of its own. Its id, name, addresses and accounts stay the
    same; changes that were made on the replica alone are lost.

    The replica serves while the clone is created. It is out of service while the volume is
    exchanged. If the clone cannot be used, the replica returns to its old data.

    Example
      openstack database replica reprovision shop-1 --reason "it is far behind" --wait
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('replica', metavar='<replica>', help='ID or name of the replica')
        parser.add_argument('--reason', metavar='<text>', help='Why; it is shown with the replica')
        base.add_wait(
            parser,
            'Wait until the replica follows its source on the clone; fail if it does not, or if it '
            'is blocked until your operator has acted',
        )
        return parser

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = _api_of(self)
        shown = api.reprovision(api.instance_id(parsed_args.replica), reason=parsed_args.reason)
        if parsed_args.wait:
            shown = api.wait_until_reprovisioned(shown, parsed_args.timeout)
        return base.one(shown)


def _api_of(command: Any) -> replication_client.ReplicationApi:
    return replication_client.ReplicationApi(base.connection_of(command))
