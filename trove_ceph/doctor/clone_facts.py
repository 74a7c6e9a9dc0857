# SPDX-License-Identifier: Apache-2.0
"""Facts of volumes that are clones; this module needs no Trove."""

import dataclasses

from trove_ceph.storage import image_types


@dataclasses.dataclass(frozen=True)
class ClonedVolume:
    """The volume of an instance, which reads from other images.

    :param clone_depth: their number, one above the other
    """

    instance_id: str
    image: image_types.ImageRef
    clone_depth: int
