# SPDX-License-Identifier: Apache-2.0
"""Register the replicas of Trove's tables that have no row in ours, so that they are watched.

Such a replica was created before our tables existed, or its row was lost. When it was cloned is not
known. A row that names another source than Trove does, or no volume, is corrected.

A replica with another guest agent, or whose volume is on no tier, is not ours.
"""

from collections.abc import Collection, Mapping, Sequence

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.replica_record import ReplicaRecord
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.replication.watch_dependencies import WatchDependencies

LOG = logging.getLogger(__name__)


class Registration:
    """Registers unknown replicas; one thread calls it."""

    def __init__(self) -> None:
        # The volumes of replicas that are on no tier, which no round asks for again.
        self._foreign: set[str] = set()

    def register(
        self,
        deps: WatchDependencies,
        records: Collection[ReplicaRecord],
        instances: Mapping[str, backup_types.Instance],
    ) -> Sequence[ReplicaRecord]:
        """Register the replicas that have no row, or a wrong one; return their rows.

        :param records: of all replicas that have one, read before the instances
        :param instances: of Trove that are not deleted, by id
        """
        known = {one.instance_id: one.source_id for one in records if one.volume_id is not None}
        self._foreign &= {one.volume_id for one in instances.values() if one.volume_id}
        unknown = [one for one in instances.values() if one.source_id != known.get(one.id)]
        found = [
            self._register(deps, one) for one in unknown if self._is_ours(deps, one, instances)
        ]
        return [one for one in found if one is not None]

    def _is_ours(
        self,
        deps: WatchDependencies,
        one: backup_types.Instance,
        instances: Mapping[str, backup_types.Instance],
    ) -> bool:
        """Return whether a replica and its source have our guest agent, and are on a tier."""
        source = instances.get(one.source_id or '')
        if one.source_id is None or source is None:
            return False
        if not (source.has_our_guest_agent and one.has_our_guest_agent):
            return False
        if one.volume_id is None or one.is_building or one.is_deleting:
            return False
        if one.volume_id in self._foreign:
            return False
        try:
            usage = deps.volumes.find_usage(one.volume_id, False)
        except exceptions.CephUnreachableError:
            # Its volume is on a tier, whose pool does not answer.
            return True
        except exceptions.ClaimLostError:
            raise
        except exceptions.TroveCephError as error:
            LOG.debug('Replica %s: is not registered: %s', one.id, error)
            return False
        if usage is None:
            self._foreign.add(one.volume_id)
        return usage is not None

    @staticmethod
    def _register(deps: WatchDependencies, one: backup_types.Instance) -> ReplicaRecord | None:
        assert one.source_id is not None
        record = deps.store.adopt(one.id, one.project_id, one.source_id, one.volume_id)
        if record is not None:
            LOG.warning('%s: had no row, or a wrong one, and is watched from now on', record)
        return record
