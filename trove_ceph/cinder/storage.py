# SPDX-License-Identifier: Apache-2.0
"""What adoption asks of storage: of the storage service, or of a back end in the same process."""

from typing import Protocol

from trove_ceph.storage import model


class Storage(Protocol):
    """The verbs of trove_ceph.storage.backend that both have, with the same promises."""

    def describe(self, image: model.ImageRef, with_usage: bool = ...) -> model.ImageFacts: ...

    def remove_snapshot(self, snapshot: model.SnapshotRef) -> None: ...

    def list_trash(self, pool: str) -> list[model.TrashedImage]: ...
