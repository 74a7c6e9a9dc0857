# SPDX-License-Identifier: Apache-2.0
"""What the changes and the deletions of sources and replicas by one process share."""

import dataclasses

from trove_ceph.db import claims, heartbeat, instance_operations
from trove_ceph.strategies.replication.source_dependencies import SourceDependencies
from trove_ceph.taskmanager.instance_operations import InstanceOperations


@dataclasses.dataclass(frozen=True)
class SourceWork:
    """The clients of this process, and its claims on instances.

    :param operations: takes and ends the claims
    :param store: the rows of the claims
    :param heartbeat: renews the claims
    """

    deps: SourceDependencies
    operations: InstanceOperations
    store: instance_operations.InstanceOperationStore
    heartbeat: heartbeat.Heartbeat

    def guarded(self, claim: claims.Claim) -> SourceDependencies:
        """Return clients that raise ClaimLostError once the claim is lost."""
        return self.deps.guarded(self.heartbeat, claim)
