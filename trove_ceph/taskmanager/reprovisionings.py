# SPDX-License-Identifier: Apache-2.0
"""Re-provision replicas: any taskmanager continues each that is requested."""

from collections.abc import Callable

from trove_ceph import waiting
from trove_ceph.db import claims
from trove_ceph.db.replica_record import ReplicaRecord
from trove_ceph.strategies.backup import queue_worker
from trove_ceph.strategies.replication import reprovision
from trove_ceph.strategies.replication.reprovision_dependencies import ReprovisionDependencies
from trove_ceph.taskmanager import claimed_work


class Reprovisionings:
    """The re-provisionings on which this process works.

    :ivar start_due: see :meth:`.ClaimedWork.start_due`
    :param worker: the name of this process in claims
    :param threads: those of the attempts
    :param start_wait: returns the deadline of a wait of so many seconds
    """

    def __init__(
        self,
        deps: ReprovisionDependencies,
        worker: claims.Claimant,
        threads: queue_worker.WorkerThreads,
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._deps = deps
        self._work = claimed_work.ClaimedWork[ReplicaRecord](
            deps.store,
            deps.heartbeat,
            worker,
            threads,
            id_of=lambda record: record.instance_id,
            attempt=lambda claim, record: reprovision.Reprovisioning(deps, claim, record).run(),
            clock=deps.clock,
            start_wait=start_wait,
        )
        self.start_due = self._work.start_due

    def cancel(self, instance_id: str) -> None:
        """Return when an instance that is being deleted is not re-provisioned any more.

        :raises InProgressError: it did not end in time
        """
        self._work.end(lambda: self._find_open(instance_id))

    def _find_open(self, instance_id: str) -> ReplicaRecord | None:
        record = self._deps.store.find(instance_id)
        return record if record is not None and record.state.is_reprovisioning else None
