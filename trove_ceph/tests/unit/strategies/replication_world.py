# SPDX-License-Identifier: Apache-2.0
"""A world for replicas: that of backups, with a tier for replicas in a pool of its own."""

from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions
from trove_ceph.db import replicas, replication_policies
from trove_ceph.strategies.replication import create, dependencies
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tiers import tiers_file

#: The back end and the pool of the tier for replicas.
REPLICAS, REPLICA_POOL = 'lab@nvme-replica#nvme-replica', 'vault'


def tiers(**facts):
    """Return a tiers file with one tier for data and one for replicas."""
    common = {'copies': 1, 'allow_single_copy': True, 'placement_groups': {'count': 8}}
    nvme = {'name': 'nvme', 'backend': 'nvme'}
    replica = {'name': 'nvme-replica', 'backend': 'nvme-replica'}
    return tiers_file.parse(
        {
            'tiers': {
                'nvme': {
                    **common,
                    'purpose': 'data',
                    'pool': 'volumes',
                    'volume_type': nvme,
                    **facts,
                },
                'replica': {
                    **common,
                    'purpose': 'replica',
                    'pool': REPLICA_POOL,
                    'volume_type': replica,
                },
                'copies': {**common, 'purpose': 'vault', 'pool': 'copies'},
            }
        }
    )


class ReplicationWorld(worlds.World):
    """One source, and instances of Trove that shall become its replicas.

    :ivar tiers: the tiers file
    :ivar refused: the ids of replicas to which the source's agent gives no account
    :ivar accounts: the ids of the replicas that have an account on the source
    """

    def __init__(self, count=1, **facts):
        super().__init__()
        self.cinder.backends[REPLICAS] = REPLICA_POOL
        self.cinder.add_type('nvme-replica')
        self.tiers = tiers(**facts)
        self.replicas = [self.add_replica() for _ in range(count)]
        self.refused, self.accounts = set(), set()
        self.limits = dependencies.Limits()
        self.store = replicas.ReplicaStore()
        self.policies = replication_policies.ReplicationPolicyStore()

    def add_replica(self, **facts):
        """Add an instance as Trove's API does before it calls the taskmanager; return its id."""
        values = {
            'server_id': None,
            'task_status': InstanceTasks.BUILDING,
            'slave_of_id': self.instance.id,
        }
        return trove_database.add_instance(self.project, None, **values | facts).id

    def replication_deps(self, strike=None):
        """Return the dependencies of a new taskmanager."""
        return dependencies.ReplicationDependencies(
            backup=self.deps(strike),
            trove=self.trove,
            agents=self,
            store=self.store,
            policies=self.policies,
            tiers=lambda: self.tiers,
            limits=self.limits,
        )

    def request(self, **facts):
        values = {'source_id': self.instance.id, 'instance_ids': tuple(self.replicas)}
        return create.ReplicaRequest(**values | facts)

    # The guest agent of the source.

    def status(self, instance_id):
        """Answer; what callers need to know is that the agent lives."""

    def replica_context(self, instance_id, replica_id=None):
        if replica_id in self.refused:
            raise exceptions.GuestUnavailableError(f'guest agent of instance {instance_id}: no')
        self.accounts.add(replica_id)
        return {
            'master': {'host': '192.0.2.7', 'port': 3306},
            'replica_conf': {'replication_user': {'name': f'slave_{replica_id[:8]}'}},
        }

    def drop_replication_users(self, instance_id, keep_replica_ids):
        self.accounts &= set(keep_replica_ids)

    # For assertions.

    def volume_of(self, instance_id):
        """Return Cinder's volume of an instance; None: it has none."""
        volume_id = trove_database.instance(instance_id).volume_id
        return volume_id and self.cinder.volumes[volume_id]

    def facts_of(self, instance_id):
        return self.storage.describe(self.cinder.image(self.volume_of(instance_id)))
