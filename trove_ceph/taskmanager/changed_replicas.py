# SPDX-License-Identifier: Apache-2.0
"""What promotion, ejection and detachment need of our tables and of the volumes."""

import datetime
from collections.abc import Callable, Collection
from typing import Protocol

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.cinder import resources
from trove_ceph.db import instance_operations, replacements, replicas
from trove_ceph.db.replica_record import Cause, Requester
from trove_ceph.db.roles import Role
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.tiers import tier_types

LOG = logging.getLogger(__name__)

_TASKS = {
    Role.CREATE_INSTANCE: 'BUILDING',
    Role.REBUILD_SERVER: 'BUILDING',
    Role.DELETE_INSTANCE: 'DELETING',
}


class ChangedReplicas:
    """Our table of replicas; see :class:`.source_dependencies.Replicas`."""

    def __init__(self, store: replicas.ReplicaStore):
        self._store = store

    def promote(
        self,
        source_id: str,
        candidate_id: str,
        keeps_source: bool,
        source_volume_id: str | None = None,
    ) -> None:
        """Make a replica the source of all others of its source, with its policy; idempotent."""
        try:
            self._store.promote(source_id, candidate_id, keeps_source, source_volume_id)
        except exceptions.RecordNotFoundError as error:
            # The watch corrects the rows.
            LOG.warning('The new source is not recorded: %s', error)

    def remove(self, instance_id: str) -> None:
        """Remove an instance that is no replica any more; idempotent."""
        self._store.remove(instance_id)

    def known(self, source_id: str) -> Collection[str]:
        """Return the ids of the replicas of a source that follow it."""
        return [one.instance_id for one in self._store.list(source_id=source_id)]

    def last_known(self, source_id: str) -> GtidSet:
        """Return the transactions that a source had when its agent last answered."""
        known = GtidSet()
        for record in self._store.list(source_id=source_id):
            known |= GtidSet.parse(record.source_executed or '')
        return known

    def source_seen_at(self, source_id: str) -> datetime.datetime | None:
        """Return when that was, by the clock of the database; None: it is not known."""
        found = [one.source_seen_at for one in self._store.list(source_id=source_id)]
        return max(filter(None, found), default=None)

    def now(self) -> datetime.datetime:
        """Return the time by the clock of the database."""
        return self._store.now()

    def note_stopped(self, instance_id: str) -> None:
        """Note that a replica is told to receive no more."""
        self._store.note_stopped(instance_id)

    def forget_stopped(self, instance_id: str) -> None:
        """Forget that, since it receives again."""
        self._store.forget_stopped(instance_id)

    def note_surplus(self, instance_id: str) -> None:
        """Note that a replica may have commits that its source lacks."""
        self._store.note_surplus(instance_id)

    def stopped(self, source_id: str) -> Collection[str]:
        """Return the replicas of a source that were told to receive no more."""
        found = self._store.list(source_id=source_id)
        return [one.instance_id for one in found if one.stopped_at is not None]

    def request(self, instance_id: str, reason: str) -> None:
        """Request that a replica gets a fresh clone of its source.

        :raises TroveCephError: it cannot have one now
        """
        self._store.request(instance_id, Requester.POLICY, reason, Cause.BROKEN)


class OtherTasks:
    """The operations of this package whose tasks Trove's API overwrites.

    Trove's API sets the task of all instances of a promotion or an ejection, and checks one only.
    """

    def __init__(
        self,
        operations: instance_operations.InstanceOperationStore,
        replacement_store: replacements.ReplacementStore,
        replica_store: replicas.ReplicaStore,
    ):
        self._operations = operations
        self._replacements = replacement_store
        self._replicas = replica_store

    def find(self, instance_id: str, is_created: bool = False) -> str | None:
        """Return the name of the task of another operation on an instance; None: there is none.

        :param is_created: it was shown to its tenant, so that the rest of its creation, such as
            that of other replicas of the same request, does not matter
        """
        role = self._operations.find_role(instance_id)
        if role in _TASKS and not (is_created and role is Role.CREATE_INSTANCE):
            return _TASKS[role]
        replacement = self._replacements.find_open(instance_id)
        if replacement is not None:
            return replacement.kind.task
        replica = self._replicas.find(instance_id)
        is_reprovisioning = replica is not None and replica.state.is_reprovisioning
        return 'MIGRATING' if is_reprovisioning else None

    def is_blocked(self, instance_id: str) -> bool:
        """Return whether the re-provisioning of a replica waits for an operator."""
        replica = self._replicas.find(instance_id)
        return replica is not None and replica.state.needs_operator

    def is_reprovisioning(self, instance_id: str) -> bool:
        """Return whether a replica is re-provisioned, and does not wait for an operator."""
        replica = self._replicas.find(instance_id)
        if replica is None or replica.state.needs_operator:
            return False
        return replica.state.is_reprovisioning


class Cinder(Protocol):
    """The volumes in Cinder."""

    def find_volume(self, volume_id: str) -> resources.Volume | None: ...
    def request_flatten(self, volume_id: str) -> None: ...
    def withdraw_flatten(self, volume_id: str) -> None: ...


class ChangedVolumes:
    """The data volumes; see :class:`.source_dependencies.Volumes`.

    :param fence: see :meth:`.VolumeFence.fence`
    :param stop_flattening: cancels the work on a volume, if there is any
    :param load_tiers: reads the tiers file
    """

    def __init__(
        self,
        cinder: Cinder,
        fence: Callable[[str, Callable[[], None] | None], None],
        load_tiers: Callable[[], tier_types.TiersFile],
        stop_flattening: Callable[[str], None],
    ):
        self._cinder = cinder
        self._stop_flattening = stop_flattening
        self._load_tiers = load_tiers
        self._fence = fence

    def fence(self, volume_id: str, confirm: Callable[[], None] | None = None) -> None:
        """Return when Ceph has proved that no present client can write to a volume.

        :raises NotFencedError: there is no proof yet; a repetition continues
        :raises ClaimLostError: ``confirm`` raised it, and nothing was fenced
        """
        self._fence(volume_id, confirm)

    def flatten(self, volume_id: str) -> None:
        """Have a volume flattened in the background, so that it needs no other image; idempotent.

        :raises ServiceUnavailableError: Cinder did not record that
        """
        self._cinder.request_flatten(volume_id)

    def is_to_be_flattened(self, volume_id: str) -> bool:
        """Return whether a volume has a mark already with which it may be flattened.

        :raises ServiceUnavailableError: Cinder does not answer
        """
        volume = self._cinder.find_volume(volume_id)
        return volume is not None and volume.is_marked

    def withdraw_flatten(self, volume_id: str) -> None:
        """Have a volume keep what it shares; what is copied already stays copied; idempotent.

        :raises ServiceUnavailableError: Cinder did not record that
        """
        self._cinder.withdraw_flatten(volume_id)
        self._stop_flattening(volume_id)

    def has_one_copy(self, volume_id: str) -> bool | None:
        """Return whether the storage of a volume keeps one copy of its data.

        :returns: None: it is not known, since Cinder has no such volume, or it is on no tier
        :raises TroveCephError: Cinder does not answer, or the tiers file cannot be used
        """
        volume = self._cinder.find_volume(volume_id)
        if volume is None:
            return None
        tier = self._load_tiers().find_by_type(volume.volume_type)
        return None if tier is None else tier.copies == 1 and tier.erasure is None
