# SPDX-License-Identifier: Apache-2.0
"""Find the Ceph images of volumes, and the pool of the vault, by the tiers file."""

from collections.abc import Sequence

from trove_ceph import exceptions
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.storage import image_types
from trove_ceph.tiers import resources, tier_types, tiers_file
from trove_ceph.tiers.qos import planning


class VolumeLocations:
    """The pools of the tiers and of the vault.

    :param path: of the tiers file, which is read again at each call
    :param vault_tier: the tier for copies of backups; None: the only tier with purpose vault
    """

    def __init__(self, path: str, vault_tier: str | None = None):
        self._path = path
        self._vault_tier = vault_tier

    def find(self, volume: cinder_resources.Volume) -> image_types.ImageRef | None:
        """Return the image of a volume; None if the volume is on no tier.

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

    def pools_of(self, pool: str) -> Sequence[str]:
        """Return the pools in which the images of a pool have their data and headers.

        :raises InvalidTiersError: the file cannot be used
        """
        tiers = tiers_file.load(self._path).tiers.values()
        return next((one.pools for one in tiers if one.pool == pool), (pool,))

    def has_type(self, volume_type: str | None) -> bool:
        """Return whether a volume type is that of a tier.

        :param volume_type: its name; None: none was requested
        :raises InvalidTiersError: the file cannot be used
        """
        return tiers_file.load(self._path).find_by_type(volume_type) is not None

    def vault(self) -> str:
        """Return the pool for copies of backups.

        :raises InvalidTiersError: the file cannot be used, or does not determine the pool
        """
        tiers = tiers_file.load(self._path).tiers.values()
        vaults = {one.name: one.pool for one in tiers if one.purpose is tier_types.Purpose.VAULT}
        if self._vault_tier in vaults:
            return vaults[self._vault_tier]
        if self._vault_tier is None and len(vaults) == 1:
            return next(iter(vaults.values()))
        option = 'is not set' if self._vault_tier is None else f'is {self._vault_tier}'
        raise exceptions.InvalidTiersError(
            f'{self._path}: no tier for copies of backups is determined: vault_tier {option}, '
            f'tiers with purpose vault: {", ".join(vaults) or "none"}'
        )
