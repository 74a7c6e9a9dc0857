# SPDX-License-Identifier: Apache-2.0
"""The verbs of storage that adoption uses, of the storage service or of a local back end."""

from typing import Protocol

from trove_ceph.storage import image_types


class Storage(Protocol):
    """A subset of trove_ceph.storage.backend.Backend, with the same promises."""

    def describe(
        self, image: image_types.ImageRef, with_usage: bool = ...
    ) -> image_types.ImageFacts: ...

    def remove_snapshot(self, snapshot: image_types.SnapshotRef) -> None: ...

    def list_trash(self, pool: str) -> list[image_types.TrashedImage]: ...
