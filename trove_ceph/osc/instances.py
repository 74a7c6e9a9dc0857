# SPDX-License-Identifier: Apache-2.0
"""``openstack database instance detail``."""

from typing import Any

from osc_lib.command import command
from oslo_utils import units

from trove_ceph.osc import base, connection

_PATH = '/instance_details'


class ListInstanceDetails(base.Lister):
    """List instances: storage tier, promised IOPS, last good backup, damaged backups, replication

    Good backups can be restored, and no inspection speaks against them; verified ones were
    restored and checked. The times are those of the data in the backups.

    Used is the space that the data directory occupies of the volume. For it, the cloud asks the
    agent of each instance, which can take seconds: it is shown with --used only.

    Examples
      openstack database instance detail list
      openstack database instance detail list --used --long
    """

    what = 'instances'
    short = {
        'ID': 'id',
        'Name': 'name',
        'Operating Status': 'operating_status',
        'Tier': 'tier',
        'Size (GiB)': 'volume_size_gib',
        'Used': 'used_bytes',
        'Promised IOPS': 'promised_iops',
        'Good Backups': 'good_backups',
        'Last Good Backup': 'last_good_backup_at',
        'Last Verified Backup': 'last_verified_backup_at',
        'Lag': 'lag_sec',
        'Lag Transactions': 'lag_transactions',
        'Problem': 'problem',
    }
    more = {
        'Task': 'task',
        'Volume Type': 'volume_type',
        'Copies': 'copies',
        'Throughput (MiB/s)': 'throughput_mib_per_sec',
        'Last Good Backup ID': 'last_good_backup_id',
        'Last Good Backup State': 'last_good_backup_state',
        'Last Verified Backup ID': 'last_verified_backup_id',
        'Replica Of': 'replica_of',
        'Replica State': 'replica_state',
        'Replicating': 'replicating',
        'Replica Own Space': 'replica_own_bytes',
        'Cloned': 'replica_cloned_at',
        'Reprovisioned': 'replica_reprovisioned_at',
        'Last Reason': 'replica_last_reason',
        'Created': 'created',
        'Project ID': 'project_id',
    }

    def add_filters(self, parser: Any) -> None:
        parser.add_argument(
            '--used',
            action='store_true',
            help='Show the used space of each volume too; this asks each instance',
        )
        parser.add_argument(
            '--problems',
            action='store_true',
            help='List only instances with a problem, such as damaged backups or a broken replica',
        )

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = base.connection_of(self)
        limit = parsed_args.limit
        found = api.get_pages(
            'instance_details',
            # The service does not know which of them are listed.
            None if parsed_args.problems else limit,
            all_projects=parsed_args.all_projects,
        )
        if parsed_args.problems:
            found = [one for one in found if one['problem']][:limit]
        if parsed_args.used:
            found = [one | {'used_bytes': _used_bytes(api, one['id'])} for one in found]
        columns = {**self.short, **(self.more if parsed_args.long else {})}
        if not parsed_args.used:
            del columns['Used']
        return base.listed(found, columns)


class ShowInstanceDetail(base.DocstringHelp, command.ShowOne):
    """Show the storage tier, the backups and the replication of an instance

    operating_status is what the agent of the instance last reported, and task what the cloud is
    doing with it.

    tier is the class of storage that holds the volume. promised_iops is the limit and the promise
    for a volume of this size; copies is how many copies of the data the storage keeps.

    last_good_backup_at and last_verified_backup_at are the times of the data in those backups.
    damaged_backups cannot be restored: see "openstack database backup detail show".

    replica_of is the source of a replica, replica_own_bytes the space that it does not share with
    it, replica_cloned_at when its data were cloned, and replica_reprovisioned_at and
    replica_last_reason when and why it last got a fresh clone. "openstack database replica show"
    has more.

    Example
      openstack database instance detail show shop
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('instance', metavar='<instance>', help='ID or name of the instance')
        return parser

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = base.connection_of(self)
        instance_id = api.instance_id(parsed_args.instance)
        shown = api.get(f'{_PATH}/{instance_id}')['instance_detail']
        return base.one(shown | {'used_bytes': _used_bytes(api, instance_id)})


def _used_bytes(api: connection.Connection, instance_id: str) -> int | None:
    """Return the used bytes of a volume, as Trove tells them in GiB.

    :returns: None: the agent is silent, or the instance was deleted meanwhile
    """
    found = api.find(f'/instances/{instance_id}')
    volume = (found and found['instance'].get('volume')) or {}
    used_gib = volume.get('used')
    return None if used_gib is None else int(used_gib * units.Gi)
