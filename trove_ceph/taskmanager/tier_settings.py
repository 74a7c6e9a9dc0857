# SPDX-License-Identifier: Apache-2.0
"""Handing guests the I/O rates of their storage tiers, which they cannot see from inside.

Each guest is told when its instance was created, and again when the volume type of its volume or
the tiers file has changed. A guest keeps what it was told; telling it the same again does nothing.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.mysql import tuning
from trove_ceph.strategies.backup import backup_types
from trove_ceph.tiers import tiers_file

LOG = logging.getLogger(__name__)

#: A guest that was rebuilt has lost what it was told, and nobody says so.
_TELL_AGAIN_SEC = 3600.0
#: A guest that did not answer is asleep, is being built, or has an agent of an earlier release.
_RETRY_SEC = 600.0


class Cinder(Protocol):
    """Where the volumes are listed."""

    def list_own_volumes(self) -> list[cinder_resources.Volume]: ...

    def find_volume(self, volume_id: str) -> cinder_resources.Volume | None: ...


class Guest(Protocol):
    """The guest agent of one instance."""

    def apply_tier(self, tier: tuning.Tier | None) -> bool:
        """Give it the rate of its tier, None for a tier that promises none.

        :returns: whether it is another one than before
        :raises GuestUnavailableError: it did not take it
        """


class TierSettings:
    """Remembers which guest was told what, and when.

    :param path: of the tiers file, which is read anew each time
    :param guest: returns the guest agent of an instance
    :param clock: returns seconds
    """

    def __init__(
        self,
        cinder: Cinder,
        path: str,
        guest: Callable[[str], Guest],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._cinder = cinder
        self._path = path
        self._guest = guest
        self._clock = clock
        self._told: dict[str, tuple[tuning.Tier | None, float]] = {}

    def tell(self, instance: backup_types.Instance) -> None:
        """Tell the guest of one instance now; what fails is logged, and done by a later sweep."""
        try:
            rates = self._rates()
            volume = self._cinder.find_volume(instance.volume_id) if instance.volume_id else None
            if volume and volume.volume_type in rates and instance.has_our_guest_agent:
                self._tell(instance.id, rates[volume.volume_type])
        except exceptions.TroveCephError as error:
            LOG.warning('Instance %s waits for the rate of its tier: %s', instance.id, error)

    def sweep(self, instances: Iterable[backup_types.Instance]) -> None:
        """Tell each guest that was not told the rate of its tier yet, or not for an hour.

        :raises ServiceUnavailableError: Cinder does not answer
        :raises InvalidTiersError: the tiers file cannot be used
        """
        rates = self._rates()
        listed = {volume.id: volume for volume in self._cinder.list_own_volumes()}
        present = set()
        for instance in instances:
            present.add(instance.id)
            volume = self._volume_of(instance, listed)
            if volume is None or volume.volume_type not in rates or instance.is_deleting:
                continue
            rate = rates[volume.volume_type]
            if instance.has_our_guest_agent and self._is_due(instance.id, rate):
                self._tell(instance.id, rate)
        for gone in self._told.keys() - present:
            del self._told[gone]

    def _volume_of(
        self, instance: backup_types.Instance, listed: Mapping[str, cinder_resources.Volume]
    ) -> cinder_resources.Volume | None:
        if instance.volume_id is None:
            return None
        return listed.get(instance.volume_id) or self._cinder.find_volume(instance.volume_id)

    def _is_due(self, instance_id: str, rate: tuning.Tier | None) -> bool:
        told, until = self._told.get(instance_id, (None, float('-inf')))
        return told != rate or self._clock() >= until

    def _tell(self, instance_id: str, rate: tuning.Tier | None) -> None:
        try:
            if self._guest(instance_id).apply_tier(rate):
                LOG.info('Instance %s has the rate of its tier: %s', instance_id, rate)
            patience = _TELL_AGAIN_SEC
        except exceptions.GuestUnavailableError as error:
            LOG.info('Instance %s waits for the rate of its tier: %s', instance_id, error)
            patience = _RETRY_SEC
        self._told[instance_id] = rate, self._clock() + patience

    def _rates(self) -> dict[str, tuning.Tier | None]:
        """Return what the tiers promise, by the names of their volume types."""
        tiers = tiers_file.load(self._path).tiers.values()
        return {tier.volume_type.name: tier.iops for tier in tiers if tier.volume_type}
