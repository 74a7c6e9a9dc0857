# SPDX-License-Identifier: Apache-2.0
"""Apply the semi-synchronous replication of a source's policy to the source and its replicas."""

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.replica_record import ReplicaState
from trove_ceph.strategies.replication.observation import GroupLook
from trove_ceph.strategies.replication.replication_types import ReplicationStatus
from trove_ceph.strategies.replication.watch_dependencies import Agents

LOG = logging.getLogger(__name__)

#: Replicas that are about to stop: no commit begins to wait for them.
_LEAVING = (ReplicaState.REQUESTED, ReplicaState.CLONING, ReplicaState.EXCHANGING)


def apply(agents: Agents, found: GroupLook, is_enabled: bool, timeout_ms: int) -> None:
    """Bring the servers of a look that differ from the policy in line with it.

    The source waits for acknowledgments only while it has replicas, and not before one of them
    sends them; a commit would wait in vain. Servers whose agents are silent follow with a later
    look. Where the agent refuses, a warning is logged.

    :param timeout_ms: after which a commit of the source does not wait any longer
    """
    source = found.source
    if source is not None and source.semi_sync_source and not (is_enabled and found.replicas):
        _switch(agents, found.source_id, source, False, False, timeout_ms)
    acknowledging = 0
    for one in found.replicas:
        is_switched = _switch(
            agents, one.record.instance_id, one.status, False, is_enabled, timeout_ms
        )
        acknowledging += is_switched and one.record.state not in _LEAVING
    if is_enabled and acknowledging:
        _switch(agents, found.source_id, source, True, False, timeout_ms)


def _switch(
    agents: Agents,
    instance_id: str,
    status: ReplicationStatus | None,
    as_source: bool,
    as_replica: bool,
    timeout_ms: int,
) -> bool:
    """Switch a server if it differs; return whether it is as it should be."""
    if status is None:
        return False
    if (status.semi_sync_source, status.semi_sync_replica) == (as_source, as_replica):
        return True
    try:
        agents.set_semi_sync(instance_id, as_source, as_replica, timeout_ms)
    except exceptions.GuestUnavailableError as error:
        LOG.warning('Semi-synchronous replication of instance %s: %s', instance_id, error)
        return False
    LOG.info(
        'Instance %s: semi-synchronous replication is %s',
        *(instance_id, 'on' if as_source or as_replica else 'off'),
    )
    return True
