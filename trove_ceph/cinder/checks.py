# SPDX-License-Identifier: Apache-2.0
"""Checks before an adoption, because Cinder reports most failures in its log only.

A failed request leaves a volume in status ``error`` behind.
"""

import dataclasses
from collections.abc import Iterable

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.cinder import client, resources, storage
from trove_ceph.storage import image_types

_SNAPSHOT_STATUSES = ('available', 'in-use')


def check_volume(
    project_id: str, request: resources.SnapshotToAdopt, volume: resources.Volume | None
) -> resources.Volume:
    """Check that the state of a volume allows Cinder to manage a snapshot of it.

    :param project_id: project of the token that manages the snapshot
    :param volume: the volume as Cinder shows it now; None: it does not exist
    :returns: the volume
    :raises NotAdoptableError: Cinder would refuse the snapshot or give it to another project
    """
    if volume is None:
        raise exceptions.NotAdoptableError(f'{request.snapshot}: no volume {request.volume_id}')
    if volume.status not in _SNAPSHOT_STATUSES:
        raise exceptions.NotAdoptableError(
            f'{request.snapshot}: {volume} must be {" or ".join(_SNAPSHOT_STATUSES)}'
        )
    if volume.project_id != project_id:
        raise exceptions.NotAdoptableError(
            f'{request.snapshot}: volume {volume.id} belongs to project {volume.project_id}, but '
            f'Cinder would create its snapshot in project {project_id}, whose token is used'
        )
    if volume.image_name != request.snapshot.image:
        raise exceptions.NotAdoptableError(
            f'{request.snapshot}: the image of volume {volume.id} is {volume.image_name}'
        )
    return volume


def check_backend(
    cinder: client.Cinder, request: resources.SnapshotToAdopt, volume: resources.Volume
) -> None:
    """Check that the back end of a volume is up and uses the snapshot's pool.

    :raises NotAdoptableError: the back end is down or uses another pool
    """
    _check_pool(cinder, volume.backend, request.snapshot.of)


def check_target(cinder: client.Cinder, request: resources.ImageToAdopt) -> None:
    """Check that a volume type and a back end fit an image.

    :raises NotAdoptableError: one of them does not fit
    """
    volume_type = cinder.find_type(request.volume_type)
    if volume_type is None:
        raise exceptions.NotAdoptableError(f'{request.image}: no volume type {request.volume_type}')
    if volume_type.encrypted:
        raise exceptions.NotAdoptableError(
            f'{request.image}: volume type {volume_type.name} is encrypted, and Cinder does not '
            'manage images with an encrypted type'
        )
    if volume_type.multiattach:
        raise exceptions.NotAdoptableError(
            f'{request.image}: volume type {volume_type.name} allows multiattach, and Cinder would '
            'disable the exclusive lock of the image, without which it cannot be fenced'
        )
    found = _check_pool(cinder, request.backend, request.image)
    if volume_type.backend_name not in (None, found.backend_name):
        raise exceptions.NotAdoptableError(
            f'{request.image}: volume type {volume_type.name} requires back end '
            f'{volume_type.backend_name}, but {request.backend} is {found.backend_name}'
        )


def find_backends(
    cinder: client.Cinder, subject: str, volume_type: str
) -> list[resources.StorageBackend]:
    """Return the back ends that are up and can have volumes of a type, at least one.

    :param subject: what the error message begins with
    :param volume_type: its name
    :raises NotAdoptableError: there is no such type, or none of its back ends is up
    """
    found = cinder.find_type(volume_type)
    if found is None:
        raise exceptions.NotAdoptableError(f'{subject}: there is no volume type {volume_type}')
    backends = [
        one for one in cinder.list_backends() if found.backend_name in (None, one.backend_name)
    ]
    if not backends:
        raise exceptions.NotAdoptableError(
            f'{subject}: volume type {volume_type} has no back end that is up'
        )
    return backends


def check_image(ceph: storage.Storage, request: resources.ImageToAdopt) -> int:
    """Check that an image can become a volume, and return its size in GiB.

    :raises NotAdoptableError: its size, features, snapshots or children do not allow it
    """
    facts = ceph.describe(request.image, with_usage=False)
    size_gib, rest = divmod(facts.size_bytes, units.Gi)
    if rest or not size_gib:
        raise exceptions.NotAdoptableError(
            f'{request.image}: its size of {facts.size_bytes} bytes is not a multiple of 1 GiB, as '
            'Cinder requires'
        )
    if 'exclusive-lock' not in facts.features:
        raise exceptions.NotAdoptableError(
            f'{request.image}: lacks the feature exclusive-lock, without which it cannot be fenced'
        )
    # A client that died while it created the image is listed for another 30 s.
    if obstacles := dataclasses.replace(facts, clients=()).obstacles():
        raise exceptions.NotAdoptableError(
            f'{request.image}: has {obstacles}, which Cinder does not know about'
        )
    return size_gib


def check_quota(
    cinder: client.Cinder,
    projects: Iterable[str],
    subject: str,
    volume_type: str,
    size_gib: int,
    count: int = 1,
) -> None:
    """Check that all projects to which volumes will belong have quota for them.

    Cinder itself checks the gigabytes only after it has answered.

    :param subject: what the error message begins with
    :param volume_type: its name
    :param size_gib: of each volume
    :param count: how many
    :raises QuotaExceededError: a project lacks quota
    """
    for project_id in dict.fromkeys(projects):
        if shortage := cinder.find_shortage(project_id, volume_type, size_gib, count):
            raise exceptions.QuotaExceededError(f'{subject}: {shortage}')


def image_of(cinder: client.Cinder, volume: resources.Volume) -> image_types.ImageRef:
    """Return the image of a volume.

    :raises NotAdoptableError: its back end is down or does not use RBD
    """
    found = _find_backend(cinder, volume.backend, f'volume {volume.id}')
    return image_types.ImageRef(found.pool, volume.image_name)


def _check_pool(
    cinder: client.Cinder, name: str | None, image: image_types.ImageRef
) -> resources.StorageBackend:
    found = _find_backend(cinder, name, str(image))
    if found.pool != image.pool:
        raise exceptions.NotAdoptableError(f'{image}: back end {name} uses pool {found.pool}')
    return found


def _find_backend(
    cinder: client.Cinder, name: str | None, subject: str
) -> resources.StorageBackend:
    backends = {each.name: each for each in cinder.list_backends()}
    if name not in backends:
        raise exceptions.NotAdoptableError(
            f'{subject}: Cinder has no RBD back end {name} that is up; up are: '
            f'{", ".join(sorted(backends)) or "none"}'
        )
    return backends[name]
