# SPDX-License-Identifier: Apache-2.0
"""What adoption asks of storage: of the storage service, or of a back end in the same process."""

from typing import Protocol

from trove_ceph.storage import image_types


class Storage(Protocol):
    """The verbs of trove_ceph.storage.backend that both have, with the same promises."""

    def describe(
        self, image: image_types.ImageRef, with_usage: bool = ...
    ) -> image_types.ImageFacts: ...

    def remove_snapshot(self, snapshot: image_types.SnapshotRef) -> None: ...

    def list_trash(self, pool: str) -> list[image_types.TrashedImage]: ...
