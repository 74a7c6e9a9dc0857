# SPDX-License-Identifier: Apache-2.0
"""The one place where adoption speaks to Cinder, as an administrator or as a project's member."""

import contextlib
import datetime
from collections.abc import Mapping
from typing import Any

from trove_ceph.cinder import connection, resources

_NOT_FOUND = connection.NOT_FOUND
_translated = connection.translated


class Cinder:
    """Cinder of one region, with the rights of one token.

    Every method raises ServiceUnavailableError when it refuses or does not answer, and
    QuotaExceededError where the project has no quota left.

    :param client: of cinderclient, connection.API_VERSION or later
    :param project_id: of its token: what is managed with it belongs to this project
    """

    def __init__(self, client: Any, project_id: str):
        self._client = client
        self.project_id = project_id

    @classmethod
    def of_session(cls, session: Any, **options: Any) -> 'Cinder':
        """Return the one that a session of keystoneauth1 reaches.

        :param options: of cinderclient.client.Client, such as ``region_name``
        """
        client = connection.connect(session, **options)
        with _translated('asking Keystone for a token'):
            return cls(client, session.get_project_id())

    def find_volumes(self, operation_id: str) -> list[resources.Volume]:
        """List the volumes that an operation made, in all projects, whatever became of them."""
        return self._find_volumes({resources.OPERATION_KEY: operation_id})

    def find_dependent_volumes(self) -> list[resources.Volume]:
        """List the volumes that read from an image in another pool, in all projects."""
        return self._find_volumes({resources.DEPENDENT_KEY: resources.DEPENDENT})

    def _find_volumes(self, metadata: Mapping[str, str]) -> list[resources.Volume]:
        with _translated(f'listing the volumes with metadata {metadata}'):
            found = self._client.volumes.list(
                search_opts={'all_tenants': 1, 'metadata': str(metadata)}
            )
        return [each for each in map(_volume, found) if metadata.items() <= each.metadata.items()]

    def list_own_volumes(self) -> list[resources.Volume]:
        """List the volumes of our own project."""
        with _translated(f'listing the volumes of project {self.project_id}'):
            return list(map(_volume, self._client.volumes.list()))

    def find_volume(self, volume_id: str) -> resources.Volume | None:
        with _translated(f'showing volume {volume_id}'):
            try:
                return _volume(self._client.volumes.get(volume_id))
            except _NOT_FOUND:
                return None

    def manage_volume(self, wanted: resources.ImageToAdopt) -> str:
        """Ask to take an image over as a volume of our own project, and return its id.

        Cinder renames the image; ``creating`` ends in ``available`` or ``error``.
        """
        with _translated(f'managing {wanted.image}'):
            # Cinder takes exactly one of the two, and of a cluster any service that is up.
            is_cluster = self._is_cluster(wanted.backend)
            made = self._client.volumes.manage(
                None if is_cluster else wanted.backend,
                {'source-name': wanted.image.name},
                name=wanted.name,
                description=wanted.description,
                volume_type=wanted.volume_type,
                metadata=_marked(wanted.metadata, wanted.operation_id),
                bootable=wanted.bootable,
                cluster=wanted.backend if is_cluster else None,
            )
        return made.id

    def _is_cluster(self, backend: str) -> bool:
        """Tell whether a back end's name is that of a cluster of cinder-volume, or of a host."""
        name, _, _ = backend.partition('#')
        found = self._client.clusters.list(name=name, binary='cinder-volume')
        return any(one.name == name for one in found)

    def extend_volume(self, volume_id: str, size_gib: int) -> None:
        """Ask to make a volume larger; ``extending`` ends in the status before or in an error."""
        with _translated(f'extending volume {volume_id} to {size_gib} GiB'):
            self._client.volumes.extend(volume_id, size_gib)

    def note_independent(self, volume_id: str) -> None:
        """Write down that a volume reads from no other image any more; nothing if it is gone."""
        with _translated(f'marking volume {volume_id}'), contextlib.suppress(*_NOT_FOUND):
            self._client.volumes.set_metadata(
                volume_id, {resources.DEPENDENT_KEY: resources.INDEPENDENT}
            )

    def delete_volume(self, volume_id: str) -> None:
        """Ask to delete a volume with its image; nothing if there is none."""
        with _translated(f'deleting volume {volume_id}'), contextlib.suppress(*_NOT_FOUND):
            self._client.volumes.delete(volume_id)

    def set_volume_status(self, volume_id: str, status: str) -> None:
        """Have Cinder believe that a volume has a status."""
        with _translated(f'setting volume {volume_id} to {status}'):
            self._client.volumes.reset_state(volume_id, status)

    def list_snapshots(self, volume_id: str) -> list[resources.Snapshot]:
        """List the snapshots of a volume, in all projects."""
        with _translated(f'listing the snapshots of volume {volume_id}'):
            return [
                _snapshot(each)
                for each in self._client.volume_snapshots.list(
                    search_opts={'all_tenants': 1, 'volume_id': volume_id}
                )
            ]

    def list_own_snapshots(self) -> list[resources.Snapshot]:
        """List the snapshots of our own project."""
        with _translated(f'listing the snapshots of project {self.project_id}'):
            return list(map(_snapshot, self._client.volume_snapshots.list()))

    def find_snapshot(self, snapshot_id: str) -> resources.Snapshot | None:
        with _translated(f'showing snapshot {snapshot_id}'):
            try:
                return _snapshot(self._client.volume_snapshots.get(snapshot_id))
            except _NOT_FOUND:
                return None

    def manage_snapshot(self, wanted: resources.SnapshotToAdopt) -> str:
        """Ask to take a snapshot over into our own project, and return its id.

        Cinder renames and protects it; ``creating`` ends in ``available`` or ``error``.
        """
        with _translated(f'managing {wanted.snapshot}'):
            made = self._client.volume_snapshots.manage(
                wanted.volume_id,
                {'source-name': wanted.snapshot.name},
                name=wanted.name,
                description=wanted.description,
                metadata=_marked(wanted.metadata, wanted.operation_id),
            )
        return made.id

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Ask to delete a snapshot, in Ceph too; nothing if there is none."""
        with _translated(f'deleting snapshot {snapshot_id}'), contextlib.suppress(*_NOT_FOUND):
            self._client.volume_snapshots.delete(snapshot_id)

    def set_snapshot_status(self, snapshot_id: str, status: str) -> None:
        """Have Cinder believe that a snapshot has a status."""
        with _translated(f'setting snapshot {snapshot_id} to {status}'):
            self._client.volume_snapshots.reset_state(snapshot_id, status)

    def offer_volume(self, volume_id: str, name: str) -> resources.Transfer:
        """Offer a volume of our own project, with its snapshots; it can do nothing else then."""
        with _translated(f'offering volume {volume_id}'):
            made = self._client.transfers.create(volume_id, name=name)
        return resources.Transfer(made.id, made.auth_key)

    def accept_volume(self, transfer: resources.Transfer) -> None:
        """Take what another project offers into our own, and return when it is there."""
        with _translated(f'accepting transfer {transfer.id}'):
            self._client.transfers.accept(transfer.id, transfer.auth_key)

    def withdraw_volume(self, volume_id: str) -> None:
        """Withdraw what is still on offer of a volume of our own project."""
        with _translated(f'withdrawing the transfer of volume {volume_id}'):
            for transfer in self._client.transfers.list():
                if transfer.volume_id == volume_id:
                    self._client.transfers.delete(transfer.id)

    def find_type(self, name: str) -> resources.VolumeType | None:
        with _translated(f'looking for volume type {name}'):
            for found in connection.list_volume_types(self._client):
                if found.name == name:
                    return self._volume_type(found)
        return None

    def _volume_type(self, found: Any) -> resources.VolumeType:
        specs = getattr(found, 'extra_specs', None) or {}
        encryption = self._client.volume_encryption_types.get(found.id)
        return resources.VolumeType(
            id=found.id,
            name=found.name,
            backend_name=specs.get('volume_backend_name'),
            multiattach=specs.get('multiattach') == '<is> True',
            encrypted=bool(getattr(encryption, 'encryption_id', None)),
        )

    def list_backends(self) -> list[resources.StorageBackend]:
        """List the back ends of the RBD driver that are up, as the scheduler knows them.

        Of the services of a cluster there is one entry, which has the cluster's name.
        """
        with _translated('listing the back ends'):
            pools = self._client.pools.list(detailed=True)
        return [
            # location_info: the cluster's name, path of its ceph.conf, fsid, user and pool
            resources.StorageBackend(
                pool.name, pool.volume_backend_name, pool.location_info.rpartition(':')[2]
            )
            for pool in pools
            if getattr(pool, 'storage_protocol', '') == 'ceph'
        ]

    def find_shortage(self, project_id: str, volume_type: str, size_gib: int) -> str | None:
        """Say for which quota of a project one more volume is too much; None when for none."""
        with _translated(f'showing the quota of project {project_id}'):
            quota = self._client.quotas.get(project_id, usage=True).to_dict()
        needed = {
            'volumes': 1,
            'gigabytes': size_gib,
            f'volumes_{volume_type}': 1,
            f'gigabytes_{volume_type}': size_gib,
            'per_volume_gigabytes': size_gib,
        }
        for name, amount in needed.items():
            entry = quota.get(name) or {'limit': -1, 'in_use': 0, 'reserved': 0}
            # That of one volume says nothing of the others.
            used = 0 if name.startswith('per_') else entry['in_use'] + entry['reserved']
            if 0 <= entry['limit'] < used + amount:
                return (
                    f'project {project_id}: {name} needed {amount}, used {used}, '
                    f'limit {entry["limit"]}'
                )
        return None


def _marked(metadata: Mapping[str, str], operation_id: str) -> dict[str, str]:
    return {**metadata, resources.OPERATION_KEY: operation_id}


def _volume(found: Any) -> resources.Volume:
    facts = found.to_dict()
    return resources.Volume(
        id=facts['id'],
        name=facts['name'] or '',
        status=facts['status'],
        size_gib=facts['size'],
        # The host of a clustered volume is whichever service last worked on it.
        backend=facts.get('cluster_name') or facts.get('os-vol-host-attr:host'),
        project_id=facts['os-vol-tenant-attr:tenant_id'],
        volume_type=facts['volume_type'],
        metadata=facts['metadata'],
        name_id=facts.get('os-vol-mig-status-attr:name_id'),
        migration_status=facts.get('os-vol-mig-status-attr:migstat'),
        created_at=_time(facts['created_at']),
    )


def _snapshot(found: Any) -> resources.Snapshot:
    facts = found.to_dict()
    return resources.Snapshot(
        id=facts['id'],
        name=facts['name'] or '',
        status=facts['status'],
        size_gib=facts['size'],
        volume_id=facts['volume_id'],
        project_id=facts['os-extended-snapshot-attributes:project_id'],
        metadata=facts['metadata'],
        created_at=_time(facts['created_at']),
    )


def _time(text: str) -> datetime.datetime:
    """Read a time of Cinder's, which is in UTC and does not say so."""
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
