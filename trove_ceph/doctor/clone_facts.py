# SPDX-License-Identifier: Apache-2.0
"""Facts of volumes that are clones; this module needs no Trove."""

import dataclasses

from trove_ceph.storage import image_types


@dataclasses.dataclass(frozen=True)
class ClonedVolume:
    """The volume of an instance, which reads from other images.

    :param clone_depth: their number, one above the other
    :param why_waiting: why it is not flattened although it is to be; None: it is, or need not be
    """

    instance_id: str
    image: image_types.ImageRef
    clone_depth: int
    why_waiting: str | None = None
