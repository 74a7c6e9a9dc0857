# SPDX-License-Identifier: Apache-2.0
"""What is there, in Ceph and in Cinder, whosever it is."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from trove_ceph import exceptions
from trove_ceph.cinder import model as cinder_model
from trove_ceph.storage import model as storage_model
from trove_ceph.strategies.backup.tools import Tools


@dataclasses.dataclass(frozen=True)
class Objects:
    """What is there.

    :param pools: all that were looked at
    :param volumes: of our own project in Cinder, as the snapshots are: metadata of others proves
        nothing
    """

    pools: tuple[str, ...]
    images: tuple[storage_model.ImageFacts, ...]
    trashed: tuple[storage_model.TrashedImage, ...]
    volumes: tuple[cinder_model.Volume, ...]
    volume_snapshots: tuple[cinder_model.Snapshot, ...]


def see(tools: Tools, pools: Sequence[str]) -> Objects:
    """Look at all that is there; each image is opened once."""
    return Objects(
        pools=tuple(pools),
        images=tuple(facts for pool in pools for facts in _describe(tools, pool)),
        trashed=tuple(one for pool in pools for one in tools.storage.list_trash(pool)),
        volumes=tuple(tools.cinder.list_own_volumes()),
        volume_snapshots=tuple(tools.cinder.list_own_snapshots()),
    )


def _describe(tools: Tools, pool: str) -> Iterator[storage_model.ImageFacts]:
    for listed in tools.storage.list_images(pool):
        with contextlib.suppress(exceptions.NotFoundError):
            yield tools.storage.describe(listed.image)
