# SPDX-License-Identifier: Apache-2.0
"""List what exists in Ceph, in Cinder, in Nova and in Neutron."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from trove_ceph import exceptions
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.gc.guests import Guests
from trove_ceph.storage import image_types
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.guests.dependencies import GuestResource


@dataclasses.dataclass(frozen=True)
class Inventory:
    """The objects that exist in Ceph, in Cinder, in Nova and in Neutron.

    :param pools: the pools that were listed
    :param of_guests: the servers and ports of warm guests that wait
    :param volumes: those of the service project, like ``volume_snapshots``: metadata that another
        project wrote prove nothing
    """

    pools: tuple[str, ...]
    images: tuple[image_types.ImageFacts, ...]
    trashed: tuple[image_types.TrashedImage, ...]
    volumes: tuple[cinder_resources.Volume, ...]
    volume_snapshots: tuple[cinder_resources.Snapshot, ...]
    of_guests: tuple[GuestResource, ...]


def take_inventory(deps: BackupDependencies, guests: Guests, pools: Sequence[str]) -> Inventory:
    """List images, trash, volumes, snapshots, servers and ports; open each image once."""
    return Inventory(
        pools=tuple(pools),
        images=tuple(facts for pool in pools for facts in _describe(deps, pool)),
        trashed=tuple(one for pool in pools for one in deps.storage.list_trash(pool)),
        volumes=tuple(deps.cinder.list_own_volumes()),
        volume_snapshots=tuple(deps.cinder.list_own_snapshots()),
        of_guests=tuple(guests.list_resources()),
    )


def _describe(deps: BackupDependencies, pool: str) -> Iterator[image_types.ImageFacts]:
    for listed in deps.storage.list_images(pool):
        with contextlib.suppress(exceptions.NotFoundError):
            yield deps.storage.describe(listed.image)
