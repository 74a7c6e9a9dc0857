# SPDX-License-Identifier: Apache-2.0
"""Which replicas may have become the source, as the claims on instances show."""

from collections.abc import Callable, Collection

from trove_ceph import exceptions
from trove_ceph.db import claims, instance_operations
from trove_ceph.db.roles import Role


class Choices:
    """Which replicas may have become the source; see :class:`.source_dependencies.Choices`.

    :param worker: the name of this process in claims
    :param finish: see :meth:`.InstanceOperations.finish`
    """

    def __init__(
        self,
        store: instance_operations.InstanceOperationStore,
        worker: claims.Claimant,
        finish: Callable[[claims.Claim], None],
    ):
        self._store = store
        self._worker = worker
        self._finish = finish
        self._claims: dict[str, claims.Claim] = {}

    def note(self, instance_id: str) -> None:
        """Note that a replica is about to become the source; idempotent.

        :raises SourceNotChangedError: it is being created or deleted
        """
        claim = self._store.begin(
            Role.PROMOTE_REPLICA,
            instance_id,
            self._worker,
            {Role.PROMOTE_REPLICA, Role.DETACH_REPLICA},
        )
        if claim is not None:
            self._claims[instance_id] = claim
        elif not self.find([instance_id]):
            raise exceptions.SourceNotChangedError(
                f'replica {instance_id}: is being created or deleted; repeat the request'
            )

    def forget(self, instance_id: str) -> None:
        """Forget what this worker has noted, since Trove's rows show the source."""
        if claim := self._claims.pop(instance_id, None):
            self._finish(claim)

    def find(self, instance_ids: Collection[str]) -> set[str]:
        """Return those for which a promotion or an ejection has noted that."""
        role = Role.PROMOTE_REPLICA
        return {one for one in instance_ids if self._store.find_role(one) is role}
