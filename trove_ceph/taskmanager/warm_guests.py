# SPDX-License-Identifier: Apache-2.0
"""The warm guests as the creation of an instance sees them."""

from collections.abc import Callable

from trove_ceph.db import guests
from trove_ceph.db.guest_record import GuestRecord, PoolKey
from trove_ceph.strategies.guests import bind


class WarmGuests:
    """Claims and binds warm guests.

    :param request_key: see :meth:`.guest_servers.GuestServers.request_key`
    :param is_of_tier: returns whether the volume type with a name is that of a tier
    :param deps: of bindings
    """

    def __init__(
        self,
        store: guests.GuestStore,
        request_key: Callable[[str, str, str, str | None], PoolKey | None],
        is_of_tier: Callable[[str | None], bool],
        deps: bind.BindDependencies,
    ):
        self._store = store
        self._request_key = request_key
        self._is_of_tier = is_of_tier
        self._deps = deps

    def can_fence(self, volume_type: str | None) -> bool:
        """Return whether volumes of a type can be fenced: those of the tiers.

        :raises InvalidTiersError: the tiers file cannot be used
        """
        return self._is_of_tier(volume_type)

    def claim(
        self,
        instance_id: str,
        version_id: str,
        flavor_id: str,
        image_id: str,
        zone: str | None,
        not_on_host: str | None = None,
    ) -> GuestRecord | None:
        """Claim a waiting guest for an instance; None: none fits.

        :param not_on_host: see :meth:`.GuestStore.claim`
        """
        key = self._request_key(version_id, flavor_id, image_id, zone)
        return None if key is None else self._store.claim(key, instance_id, not_on_host)

    def bind(self, guest: GuestRecord, request: bind.BindRequest) -> None:
        """Bind a claimed guest to an instance.

        :raises NotFencedError: it failed, and the guest may still write to the volume
        :raises TroveCephError: it failed; the volume and the ports are free for another server
        """
        bind.Binding(self._deps, guest, request).run()

    def retire(self, guest: GuestRecord, reason: str) -> None:
        """Have a claimed guest deleted."""
        self._store.retire(guest.guest_id, reason)
