# SPDX-License-Identifier: Apache-2.0
"""The replicas of an instance that fails over, of which one can become the source."""

import datetime
from collections.abc import Callable

from trove_ceph.db import instance_operations
from trove_ceph.db.replacement_record import ReplacementRecord
from trove_ceph.db.roles import Role
from trove_ceph.strategies.replacement.dependencies import TakeOverNotes
from trove_ceph.strategies.replication import fitness
from trove_ceph.taskmanager.source_changes import SourceChanges
from trove_ceph.trove_adapter import replication_rows


class Successors:
    """See :class:`.replacement.dependencies.Successors`.

    :param get_changes: returns what ejects; called at each, since the services need not be up when
        the process starts
    """

    def __init__(self, get_changes: Callable[[], SourceChanges]):
        self._get_changes = get_changes
        self._rows = replication_rows.ReplicationRows()
        self._operations = instance_operations.InstanceOperationStore()

    def has_replicas(self, instance_id: str) -> bool:
        """Return whether an instance has replicas.

        :raises ServiceUnavailableError: the database does not answer
        """
        return bool(self._rows.list_replicas(instance_id))

    def take_over(
        self,
        record: ReplacementRecord,
        served_until: datetime.datetime | None,
        notes: TakeOverNotes,
    ) -> None:
        """Fence a source, and make a replica the source that has all that is known; idempotent.

        :raises SourceNotChangedError: none is fit; no replica accepts writes
        :raises NewSourceSilentError: one is the source in Trove, and may not accept writes
        :raises TroveCephError: one may have taken over; repeat the call
        """
        demands = fitness.Demands(
            served_until, notes.confirm_claim, notes.note_fenced, notes.note_promoted
        )
        self._get_changes().take_over(record.instance_id, record.promoted_id, demands)

    def is_taking_over(self, instance_id: str) -> bool:
        """Return whether an attempt to take over has been interrupted.

        :raises ServiceUnavailableError: the database does not answer
        """
        return self._operations.find_role(instance_id) is Role.TAKE_OVER

    def follow_again(self, instance_id: str) -> None:
        """Have replicas receive again that an attempt to take over has stopped.

        :raises TroveCephError: one does not
        """
        self._get_changes().follow_again(instance_id)
