# SPDX-License-Identifier: Apache-2.0
"""Create what replicas need from Trove's configuration."""

import functools
from typing import Any

from oslo_config import cfg

from trove_ceph.db import replicas
from trove_ceph.strategies.backup import dependencies as backup_dependencies
from trove_ceph.strategies.replication.dependencies import Limits, ReplicationDependencies
from trove_ceph.taskmanager import guest_factory
from trove_ceph.tiers import tiers_file
from trove_ceph.trove_adapter import guest_rpcapi, replication_agents, trove_db


def make_agents(conf: cfg.ConfigOpts, context: Any) -> replication_agents.ReplicationAgents:
    """Return the guest agents of sources and replicas.

    :param context: of the user of ``[service_credentials]``
    """
    nova = guest_factory.connect_to_nova(conf)
    return replication_agents.ReplicationAgents(
        lambda instance_id: guest_rpcapi.GuestAPI(context, instance_id),
        lambda flavor_id: nova.flavors.get(flavor_id).to_dict(),
    )


def make_dependencies(
    conf: cfg.ConfigOpts, context: Any, deps: backup_dependencies.BackupDependencies
) -> ReplicationDependencies:
    """Return dependencies that act as the user of ``[service_credentials]``, an administrator.

    :param context: of that user, for calls of guest agents
    :param deps: of backups, whose clients it shares
    """
    options = conf.trove_ceph_replication
    return ReplicationDependencies(
        backup=deps,
        trove=trove_db.TroveDatabase(),
        agents=make_agents(conf, context),
        store=replicas.ReplicaStore(),
        tiers=functools.partial(tiers_file.load, conf.trove_ceph_backup.tiers_file),
        limits=Limits(options.most_replicas, options.most_clone_depth),
    )
