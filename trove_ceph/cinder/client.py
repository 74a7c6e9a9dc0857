# SPDX-License-Identifier: Apache-2.0
"""The adapter to Cinder's API, with the rights of an administrator or of a project member."""

import contextlib
import datetime
from collections.abc import Mapping
from typing import Any

from trove_ceph.cinder import connection, resources

_NOT_FOUND = connection.NOT_FOUND
_translated = connection.translated


class Cinder:
    """Cinder of one region, with the rights of one token.

    Every method raises ServiceUnavailableError when Cinder refuses or does not answer, and
    QuotaExceededError when the project has no quota left.

    :param client: a client of cinderclient with connection.API_VERSION or later
    :param project_id: project of its token, to which managed volumes and snapshots belong
    """

    def __init__(self, client: Any, project_id: str):
        self._client = client
        self.project_id = project_id

    @classmethod
    def of_session(cls, session: Any, **options: Any) -> 'Cinder':
        """Return an adapter that uses a session of keystoneauth1.

        :param options: options of cinderclient.client.Client, such as ``region_name``
        """
        client = connection.connect(session, **options)
        with _translated('requesting a token from Keystone'):
            return cls(client, session.get_project_id())

    @classmethod
    def of_environment(cls) -> 'Cinder':
        """Return an adapter to the cloud of the OS_* variables or of clouds.yaml."""
        adapter = connection.find_in_environment()
        with _translated('requesting a token from Keystone'):
            return cls(connection.connect_like(adapter), adapter.get_project_id())

    def find_volumes(self, operation_id: str) -> list[resources.Volume]:
        """Return the volumes that an operation created, in all projects and in any status."""
        metadata = {resources.OPERATION_KEY: operation_id}
        with _translated(f'listing the volumes with metadata {metadata}'):
            found = self._client.volumes.list(
                search_opts={'all_tenants': 1, 'metadata': str(metadata)}
            )
        return [each for each in map(_volume, found) if metadata.items() <= each.metadata.items()]

    def list_own_volumes(self) -> list[resources.Volume]:
        """Return the volumes of the token's project."""
        with _translated(f'listing the volumes of project {self.project_id}'):
            return list(map(_volume, self._client.volumes.list()))

    def find_volume(self, volume_id: str) -> resources.Volume | None:
        with _translated(f'showing volume {volume_id}'):
            try:
                return _volume(self._client.volumes.get(volume_id))
            except _NOT_FOUND:
                return None

    def manage_volume(self, request: resources.ImageToAdopt) -> str:
        """Request that an image becomes a volume of the token's project; return the volume's id.

        Cinder renames the image; the status changes from ``creating`` to ``available`` or
        ``error``.
        """
        with _translated(f'managing {request.image}'):
            # Cinder requires exactly one of host and cluster.
            is_cluster = self._is_cluster(request.backend)
            volume = self._client.volumes.manage(
                None if is_cluster else request.backend,
                {'source-name': request.image.name},
                name=request.name,
                description=request.description,
                volume_type=request.volume_type,
                metadata=_with_operation(request.metadata, request.operation_id),
                bootable=request.bootable,
                cluster=request.backend if is_cluster else None,
            )
        return volume.id

    def _is_cluster(self, backend: str) -> bool:
        """Return whether a back end belongs to a cluster of cinder-volume, not to a host."""
        name, _, _ = backend.partition('#')
        found = self._client.clusters.list(name=name, binary='cinder-volume')
        return any(one.name == name for one in found)

    def extend_volume(self, volume_id: str, size_gib: int) -> None:
        """Request to extend a volume; from ``extending`` it returns to its status or fails."""
        with _translated(f'extending volume {volume_id} to {size_gib} GiB'):
            self._client.volumes.extend(volume_id, size_gib)

    def describe_volume(
        self, volume_id: str, name: str, description: str, metadata: Mapping[str, str]
    ) -> None:
        """Set the name, the description and some metadata of a volume; others stay."""
        with _translated(f'describing volume {volume_id}'):
            self._client.volumes.update(volume_id, name=name, description=description)
            self._client.volumes.set_metadata(volume_id, dict(metadata))

    def record_independent(self, volume_id: str) -> None:
        """Record that a volume reads from no other image; do nothing if it does not exist."""
        self._mark(volume_id, resources.INDEPENDENT)

    def request_flatten(self, volume_id: str) -> None:
        """Mark a volume to be flattened, whichever pool its parent is in; idempotent."""
        self._mark(volume_id, resources.TO_FLATTEN)

    def withdraw_flatten(self, volume_id: str) -> None:
        """Mark a volume that need not be flattened after all; idempotent."""
        self._mark(volume_id, resources.SHARED)

    def _mark(self, volume_id: str, mark: str) -> None:
        with _translated(f'marking volume {volume_id}'), contextlib.suppress(*_NOT_FOUND):
            self._client.volumes.set_metadata(volume_id, {resources.DEPENDENT_KEY: mark})

    def delete_volume(self, volume_id: str) -> None:
        """Request to delete a volume with its image; do nothing if it does not exist."""
        with _translated(f'deleting volume {volume_id}'), contextlib.suppress(*_NOT_FOUND):
            self._client.volumes.delete(volume_id)

    def find_attachments(self, volume_id: str) -> Mapping[str, str]:
        """Return the ids of a volume's attachments by the ids of their servers.

        A volume shows only those that are complete, but one that Nova has only reserved keeps the
        volume from other servers as well.
        """
        with _translated(f'listing the attachments of volume {volume_id}'):
            found = self._client.attachments.list(
                search_opts={'all_tenants': 1, 'volume_id': volume_id}
            )
        return {one.instance: one.id for one in found if one.instance}

    def delete_attachment(self, attachment_id: str) -> None:
        """Detach a volume from a server; do nothing if the attachment does not exist.

        Cinder refuses this as long as Nova has the attachment.
        """
        with _translated(f'deleting attachment {attachment_id}'), contextlib.suppress(*_NOT_FOUND):
            self._client.attachments.delete(attachment_id)

    def roll_back_detachment(self, volume_id: str) -> None:
        """Set a volume from ``detaching`` to ``in-use``; do nothing in another status.

        Nova begins a detachment by the status ``detaching``, and refuses another one meanwhile.
        """
        with _translated(f'rolling back the detachment of volume {volume_id}'):
            self._client.volumes.roll_detaching(volume_id)

    def set_volume_status(self, volume_id: str, status: str) -> None:
        """Reset the status of a volume in Cinder's database."""
        with _translated(f'setting volume {volume_id} to {status}'):
            self._client.volumes.reset_state(volume_id, status)

    def list_snapshots(self, volume_id: str) -> list[resources.Snapshot]:
        """Return the snapshots of a volume, in all projects."""
        with _translated(f'listing the snapshots of volume {volume_id}'):
            return [
                _snapshot(each)
                for each in self._client.volume_snapshots.list(
                    search_opts={'all_tenants': 1, 'volume_id': volume_id}
                )
            ]

    def list_own_snapshots(self) -> list[resources.Snapshot]:
        """Return the snapshots of the token's project."""
        with _translated(f'listing the snapshots of project {self.project_id}'):
            return list(map(_snapshot, self._client.volume_snapshots.list()))

    def find_snapshot(self, snapshot_id: str) -> resources.Snapshot | None:
        with _translated(f'showing snapshot {snapshot_id}'):
            try:
                return _snapshot(self._client.volume_snapshots.get(snapshot_id))
            except _NOT_FOUND:
                return None

    def manage_snapshot(self, request: resources.SnapshotToAdopt) -> str:
        """Request that Cinder manages a snapshot in the token's project; return Cinder's id.

        Cinder renames and protects the snapshot; the status changes from ``creating`` to
        ``available`` or ``error``.
        """
        with _translated(f'managing {request.snapshot}'):
            snapshot = self._client.volume_snapshots.manage(
                request.volume_id,
                {'source-name': request.snapshot.name},
                name=request.name,
                description=request.description,
                metadata=_with_operation(request.metadata, request.operation_id),
            )
        return snapshot.id

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Request to delete a snapshot, also in Ceph; do nothing if it does not exist."""
        with _translated(f'deleting snapshot {snapshot_id}'), contextlib.suppress(*_NOT_FOUND):
            self._client.volume_snapshots.delete(snapshot_id)

    def set_snapshot_status(self, snapshot_id: str, status: str) -> None:
        """Reset the status of a snapshot in Cinder's database."""
        with _translated(f'setting snapshot {snapshot_id} to {status}'):
            self._client.volume_snapshots.reset_state(snapshot_id, status)

    def offer_volume(self, volume_id: str, name: str) -> resources.Transfer:
        """Offer a volume of the token's project with its snapshots; this blocks other requests."""
        with _translated(f'offering volume {volume_id}'):
            transfer = self._client.transfers.create(volume_id, name=name)
        return resources.Transfer(transfer.id, transfer.auth_key)

    def accept_volume(self, transfer: resources.Transfer) -> None:
        """Accept a volume into the token's project; return when the transfer is complete."""
        with _translated(f'accepting transfer {transfer.id}'):
            self._client.transfers.accept(transfer.id, transfer.auth_key)

    def withdraw_volume(self, volume_id: str) -> None:
        """Delete the open transfers of a volume of the token's project."""
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
        """Return the back ends of the RBD driver that the scheduler reports as up.

        The services of a cluster have one entry, with the cluster's name.
        """
        with _translated('listing the back ends'):
            pools = self._client.pools.list(detailed=True)
        return [
            # location_info: cluster name, path of ceph.conf, fsid, user and pool
            resources.StorageBackend(
                pool.name, pool.volume_backend_name, pool.location_info.rpartition(':')[2]
            )
            for pool in pools
            if getattr(pool, 'storage_protocol', '') == 'ceph'
        ]

    def find_shortage(
        self, project_id: str, volume_type: str, size_gib: int, count: int = 1
    ) -> str | None:
        """Return which quota of a project more volumes would exceed; None: none.

        :param size_gib: of each volume
        :param count: how many more
        """
        with _translated(f'showing the quota of project {project_id}'):
            quota = self._client.quotas.get(project_id, usage=True).to_dict()
        needed = {
            'volumes': count,
            'gigabytes': count * size_gib,
            f'volumes_{volume_type}': count,
            f'gigabytes_{volume_type}': count * size_gib,
            'per_volume_gigabytes': size_gib,
        }
        for name, amount in needed.items():
            entry = quota.get(name) or {'limit': -1, 'in_use': 0, 'reserved': 0}
            # The limit of a single volume does not depend on the usage.
            used = 0 if name.startswith('per_') else entry['in_use'] + entry['reserved']
            if 0 <= entry['limit'] < used + amount:
                return (
                    f'project {project_id}: {name} needed {amount}, used {used}, '
                    f'limit {entry["limit"]}'
                )
        return None


def _with_operation(metadata: Mapping[str, str], operation_id: str) -> dict[str, str]:
    return {**metadata, resources.OPERATION_KEY: operation_id}


def _volume(found: Any) -> resources.Volume:
    facts = found.to_dict()
    return resources.Volume(
        id=facts['id'],
        name=facts['name'] or '',
        status=facts['status'],
        size_gib=facts['size'],
        # The host of a clustered volume is the service that last worked on it.
        backend=facts.get('cluster_name') or facts.get('os-vol-host-attr:host'),
        project_id=facts['os-vol-tenant-attr:tenant_id'],
        volume_type=facts['volume_type'],
        metadata=facts['metadata'],
        snapshot_id=facts.get('snapshot_id'),
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
    """Parse a time of Cinder, which is in UTC without a time zone."""
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
