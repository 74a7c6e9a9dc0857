# SPDX-License-Identifier: Apache-2.0
"""Find the tiers of instances."""

import time
from collections.abc import Callable, Iterable

from trove_ceph.cinder import client
from trove_ceph.strategies.backup import backup_types
from trove_ceph.tiers import tiers_file

#: How long a volume's type is cached; a volume seldom moves to another tier.
_CACHE_SEC = 3600.0


class InstanceTiers:
    """Finds tiers by volume type; caches the types of volumes for an hour.

    :param path: of the tiers file, which is read again at each call
    """

    def __init__(
        self, cinder: client.Cinder, path: str, clock: Callable[[], float] = time.monotonic
    ):
        self._cinder = cinder
        self._path = path
        self._clock = clock
        self._cache: dict[str, tuple[float, str | None]] = {}

    def find(self, instances: Iterable[backup_types.Instance]) -> dict[str, str]:
        """Return the names of the tiers, by the ids of the instances that are on a tier.

        :raises ServiceUnavailableError: Cinder does not answer
        :raises InvalidTiersError: the file cannot be used
        """
        names = {
            tier.volume_type.name: tier.name
            for tier in tiers_file.load(self._path).tiers.values()
            if tier.volume_type
        }
        types = {one.id: one.volume_id and self._type_of(one.volume_id) for one in instances}
        return {one: names[found] for one, found in types.items() if found and found in names}

    def _type_of(self, volume_id: str) -> str | None:
        now = self._clock()
        at, volume_type = self._cache.get(volume_id, (now - _CACHE_SEC, None))
        if now - at >= _CACHE_SEC:
            volume = self._cinder.find_volume(volume_id)
            volume_type = volume.volume_type if volume else None
            self._cache[volume_id] = now, volume_type
        return volume_type
