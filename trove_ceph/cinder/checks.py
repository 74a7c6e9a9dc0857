# SPDX-License-Identifier: Apache-2.0
"""What Cinder would refuse, fail at or do harm with, found out before anything is done.

What Cinder fails at leaves a volume in ``error`` behind and says why in its log only.
"""

import dataclasses

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.cinder import client, resources, storage
from trove_ceph.storage import image_types

_SNAPSHOT_STATUSES = ('available', 'in-use')


def check_volume(
    project_id: str, wanted: resources.SnapshotToAdopt, volume: resources.Volume | None
) -> resources.Volume:
    """Tell by a volume's state whether Cinder will take a snapshot of it over.

    :param project_id: of the token that the snapshot is managed with
    :param volume: as Cinder shows it now; None: there is none
    :raises NotAdoptableError: it will not
    """
    if volume is None:
        raise exceptions.NotAdoptableError(f'{wanted.snapshot}: no volume {wanted.volume_id}')
    if volume.status not in _SNAPSHOT_STATUSES:
        raise exceptions.NotAdoptableError(
            f'{wanted.snapshot}: {volume} must be {" or ".join(_SNAPSHOT_STATUSES)}'
        )
    if volume.project_id != project_id:
        raise exceptions.NotAdoptableError(
            f'{wanted.snapshot}: volume {volume.id} is of project {volume.project_id}, and Cinder '
            f'would give its snapshot to project {project_id}, whose token is used'
        )
    if volume.image_name != wanted.snapshot.image:
        raise exceptions.NotAdoptableError(
            f'{wanted.snapshot}: the image of volume {volume.id} is {volume.image_name}'
        )
    return volume


def check_backend(
    cinder: client.Cinder, wanted: resources.SnapshotToAdopt, volume: resources.Volume
) -> None:
    """Tell whether the back end of a volume is up and has the snapshot's pool.

    :raises NotAdoptableError: it is not, or has not
    """
    _check_place(cinder, volume.backend, wanted.snapshot.of)


def check_target(cinder: client.Cinder, wanted: resources.ImageToAdopt) -> None:
    """Tell whether a volume type and a back end fit an image.

    :raises NotAdoptableError: they do not
    """
    volume_type = cinder.find_type(wanted.volume_type)
    if volume_type is None:
        raise exceptions.NotAdoptableError(f'{wanted.image}: no volume type {wanted.volume_type}')
    if volume_type.encrypted:
        raise exceptions.NotAdoptableError(
            f'{wanted.image}: volume type {volume_type.name} encrypts, and Cinder adopts into such '
            'a type no image'
        )
    if volume_type.multiattach:
        raise exceptions.NotAdoptableError(
            f'{wanted.image}: volume type {volume_type.name} is for several servers at once, and '
            'Cinder would take the exclusive lock from the image: nobody could be fenced off'
        )
    found = _check_place(cinder, wanted.backend, wanted.image)
    if volume_type.backend_name not in (None, found.backend_name):
        raise exceptions.NotAdoptableError(
            f'{wanted.image}: volume type {volume_type.name} is of back end '
            f'{volume_type.backend_name}, and {wanted.backend} is {found.backend_name}'
        )


def check_image(ceph: storage.Storage, wanted: resources.ImageToAdopt) -> int:
    """Tell whether an image can be a volume, and return its size in GiB.

    :raises NotAdoptableError: it cannot
    """
    facts = ceph.describe(wanted.image, with_usage=False)
    size_gib, rest = divmod(facts.size_bytes, units.Gi)
    if rest or not size_gib:
        raise exceptions.NotAdoptableError(
            f'{wanted.image}: {facts.size_bytes} bytes are no whole GiB, in which Cinder counts'
        )
    if 'exclusive-lock' not in facts.features:
        raise exceptions.NotAdoptableError(
            f'{wanted.image}: has no exclusive lock: nobody could be fenced off'
        )
    # A client that died while it made the image is listed for another half minute.
    if obstacles := dataclasses.replace(facts, clients=()).obstacles():
        raise exceptions.NotAdoptableError(
            f'{wanted.image}: has {obstacles}, of which Cinder would not know'
        )
    return size_gib


def check_quota(
    cinder: client.Cinder, projects: list[str], wanted: resources.ImageToAdopt, size_gib: int
) -> None:
    """Tell whether the projects through which a volume goes have quota for it.

    Cinder itself counts the gigabytes after it has answered.

    :raises QuotaExceededError: one has not
    """
    for project_id in dict.fromkeys(projects):
        if shortage := cinder.find_shortage(project_id, wanted.volume_type, size_gib):
            raise exceptions.QuotaExceededError(f'{wanted.image}: {shortage}')


def image_of(cinder: client.Cinder, volume: resources.Volume) -> image_types.ImageRef:
    """Return the image of a volume.

    :raises NotAdoptableError: its back end is none of Ceph, or is down
    """
    found = _find_backend(cinder, volume.backend, f'volume {volume.id}')
    return image_types.ImageRef(found.pool, volume.image_name)


def _check_place(
    cinder: client.Cinder, name: str | None, image: image_types.ImageRef
) -> resources.StorageBackend:
    found = _find_backend(cinder, name, str(image))
    if found.pool != image.pool:
        raise exceptions.NotAdoptableError(f'{image}: {name} has its volumes in pool {found.pool}')
    return found


def _find_backend(
    cinder: client.Cinder, name: str | None, subject: str
) -> resources.StorageBackend:
    backends = {each.name: each for each in cinder.list_backends()}
    if name not in backends:
        raise exceptions.NotAdoptableError(
            f'{subject}: Cinder has no RBD back end {name} that is up, but '
            f'{", ".join(sorted(backends)) or "none"}'
        )
    return backends[name]
