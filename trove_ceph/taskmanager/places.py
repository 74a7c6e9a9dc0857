# SPDX-License-Identifier: Apache-2.0
"""Where in Ceph the volumes of the tiers lie."""

from trove_ceph.cinder import model as cinder_model
from trove_ceph.qos import planning
from trove_ceph.storage import model as storage_model
from trove_ceph.tiers import resources, tiers_file


class Places:
    """The tiers file's back ends and their pools.

    :param path: of the tiers file, which is read anew each time
    """

    def __init__(self, path: str):
        self._path = path

    def find(self, volume: cinder_model.Volume) -> storage_model.ImageRef | None:
        """Return where the image of a volume lies; None outside of the tiers.

        :raises InvalidTiersError: the file cannot be used
        """
        # host@back end#pool, where the RBD driver's only pool has the back end's name
        _, _, backend = (volume.backend or '').partition('#')
        listed = resources.Volume(
            id=volume.id,
            name_id=volume.name_id or volume.id,
            backend=backend or None,
            volume_type=volume.volume_type,
            size_gib=volume.size_gib,
            status=volume.status,
        )
        return planning.image_of(tiers_file.load(self._path), listed)
