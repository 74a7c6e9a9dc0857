# SPDX-License-Identifier: Apache-2.0
"""Where in Ceph the volumes of the tiers lie."""

from trove_ceph import exceptions
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.storage import image_types
from trove_ceph.tiers import resources, tier_types, tiers_file
from trove_ceph.tiers.qos import planning


class VolumeLocations:
    """The tiers file's back ends and their pools.

    :param path: of the tiers file, which is read anew each time
    :param vault_tier: the tier that copies of backups go to; None: the only one for that
    """

    def __init__(self, path: str, vault_tier: str | None = None):
        self._path = path
        self._vault_tier = vault_tier

    def find(self, volume: cinder_resources.Volume) -> image_types.ImageRef | None:
        """Return where the image of a volume lies; None outside of the tiers.

        :raises InvalidTiersError: the file cannot be used
        """
        # host@back end#pool, where the RBD driver's only pool has the back end's name
        _, _, backend = (volume.backend or '').partition('#')
        listed = resources.VolumeOfTier(
            id=volume.id,
            name_id=volume.name_id or volume.id,
            backend=backend or None,
            volume_type=volume.volume_type,
            size_gib=volume.size_gib,
            status=volume.status,
        )
        return planning.image_of(tiers_file.load(self._path), listed)

    def vault(self) -> str:
        """Return the pool that copies of backups go to.

        :raises InvalidTiersError: the file cannot be used, or does not say which
        """
        tiers = tiers_file.load(self._path).tiers.values()
        vaults = {one.name: one.pool for one in tiers if one.purpose is tier_types.Purpose.VAULT}
        if self._vault_tier in vaults:
            return vaults[self._vault_tier]
        if self._vault_tier is None and len(vaults) == 1:
            return next(iter(vaults.values()))
        asked = 'vault_tier is not set' if self._vault_tier is None else self._vault_tier
        raise exceptions.InvalidTiersError(
            f'{self._path}: which tier copies of backups go to is not clear: {asked}, tiers with '
            f'the purpose vault are {", ".join(vaults) or "none"}'
        )
