# SPDX-License-Identifier: Apache-2.0
"""Send guests the I/O rates of their storage tiers, which they cannot see from inside.

A guest gets its rate when its instance is created, and again when its volume's type or the tiers
file changes. It stores the rate; sending the same rate again has no effect.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.mysql import tuning
from trove_ceph.strategies.backup import backup_types
from trove_ceph.tiers import tiers_file

LOG = logging.getLogger(__name__)

#: A rebuilt guest has lost its rate without notice, so the rate is sent again after this time.
_REFRESH_SEC = 3600.0
#: A guest that did not answer is shut off, is being built, or runs an agent of an earlier release.
_RETRY_SEC = 600.0


class Cinder(Protocol):
    """The client of Cinder."""

    def list_own_volumes(self) -> list[cinder_resources.Volume]: ...

    def find_volume(self, volume_id: str) -> cinder_resources.Volume | None: ...


class Guest(Protocol):
    """The guest agent of one instance."""

    def apply_tier(self, tier: tuning.Tier | None) -> bool:
        """Set the rate of its tier; None: the tier promises no rate.

        :returns: whether it differs from before
        :raises GuestUnavailableError: the guest agent did not accept it
        """


class Trove(Protocol):
    """Trove's table of instances."""

    def find_instance(self, instance_id: str) -> backup_types.Instance | None: ...

    def list_instances(self) -> list[backup_types.Instance]: ...


class TierSettings:
    """Sends rates, and remembers when it sent which rate to which guest.

    :param path: of the tiers file, which is read again at each call
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
        self._sent: dict[str, tuple[tuning.Tier | None, float]] = {}

    def send(self, instance: backup_types.Instance) -> None:
        """Send the rate to the guest of one instance now; log a failure, for a later retry."""
        try:
            rates = self._rates()
            volume = self._cinder.find_volume(instance.volume_id) if instance.volume_id else None
            if volume and volume.volume_type in rates and instance.has_our_guest_agent:
                self._send(instance.id, rates[volume.volume_type])
        except exceptions.TroveCephError as error:
            LOG.warning(
                'Instance %s: the rate of its tier was not sent; will retry: %s',
                *(instance.id, error),
            )

    def send_due(self, instances: Iterable[backup_types.Instance]) -> None:
        """Send the rate to each guest that has not got it yet, or not within the last hour.

        :raises ServiceUnavailableError: Cinder does not answer
        :raises InvalidTiersError: the tiers file cannot be used
        """
        rates = self._rates()
        listed = {volume.id: volume for volume in self._cinder.list_own_volumes()}
        present = set()
        for instance in instances:
            present.add(instance.id)
            volume = self._volume_of(instance, listed)
            if volume is None or volume.volume_type not in rates or not _can_answer(instance):
                continue
            rate = rates[volume.volume_type]
            if self._is_due(instance.id, rate):
                self._send(instance.id, rate)
        for gone in self._sent.keys() - present:
            del self._sent[gone]

    def _volume_of(
        self, instance: backup_types.Instance, listed: Mapping[str, cinder_resources.Volume]
    ) -> cinder_resources.Volume | None:
        if instance.volume_id is None:
            return None
        return listed.get(instance.volume_id) or self._cinder.find_volume(instance.volume_id)

    def _is_due(self, instance_id: str, rate: tuning.Tier | None) -> bool:
        sent, until = self._sent.get(instance_id, (None, float('-inf')))
        return sent != rate or self._clock() >= until

    def _send(self, instance_id: str, rate: tuning.Tier | None) -> None:
        try:
            if self._guest(instance_id).apply_tier(rate):
                LOG.info('Instance %s has a new rate of its tier: %s', instance_id, rate)
            next_sec = _REFRESH_SEC
        except exceptions.GuestUnavailableError as error:
            LOG.info(
                'Instance %s: the rate of its tier was not sent; will retry: %s',
                *(instance_id, error),
            )
            next_sec = _RETRY_SEC
        self._sent[instance_id] = rate, self._clock() + next_sec

    def _rates(self) -> dict[str, tuning.Tier | None]:
        """Return the promised rates of the tiers, by the names of their volume types."""
        tiers = tiers_file.load(self._path).tiers.values()
        return {tier.volume_type.name: tier.iops for tier in tiers if tier.volume_type}


def send_all(get_settings: Callable[[], TierSettings], trove: Trove) -> None:
    """Send their rates to all guests to which they are due; log a failure, for a later retry."""
    try:
        get_settings().send_due(trove.list_instances())
    except exceptions.TroveCephError as error:
        LOG.warning('The rates of tiers were not sent to guests; will retry: %s', error)


def send_to(
    get_settings: Callable[[], TierSettings], trove: Trove, created: str | Sequence[str]
) -> None:
    """Send the rates of their tiers to guests that were just created.

    :param created: the ids of several replicas, or one id
    """
    for instance_id in [created] if isinstance(created, str) else created:
        try:
            instance = trove.find_instance(instance_id)
            if instance is not None:
                get_settings().send(instance)
        except exceptions.TroveCephError as error:
            LOG.warning(
                'Instance %s: the rate of its tier was not sent; will retry: %s',
                *(instance_id, error),
            )


def _can_answer(instance: backup_types.Instance) -> bool:
    # The rate of a new instance is sent when its creation ends; before, the agent only times out.
    return instance.has_our_guest_agent and not (instance.is_building or instance.is_deleting)
