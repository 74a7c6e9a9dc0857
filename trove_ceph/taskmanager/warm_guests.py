# SPDX-License-Identifier: Apache-2.0
"""The warm guests as the creation of an instance sees them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from trove_ceph.db import guests
from trove_ceph.db.guest_record import GuestRecord, PoolKey
from trove_ceph.strategies.backup import background, dependencies
from trove_ceph.strategies.guests import bind


class WarmGuests:
    """Claims and binds warm guests.

    :param request_key: see :meth:`.guest_servers.GuestServers.request_key`
    :param deps: of bindings
    :param is_of_tier: returns whether the volume type with a name is that of a tier
    :param forget_agent: deletes the queues of a guest's agent on the message bus, best effort
    :param begin: starts a request in the background, as :func:`.background.begin` does
    """

    def __init__(
        self,
        store: guests.GuestStore,
        request_key: Callable[[str, str, str, str | None], PoolKey | None],
        deps: bind.BindDependencies,
        is_of_tier: Callable[[str | None], bool] = lambda _type: True,
        forget_agent: Callable[[str], object] = lambda _guest_id: None,
        begin: dependencies.Begin = background.begin,
    ):
        self._store = store
        self._request_key = request_key
        self._is_of_tier = is_of_tier
        self._deps = deps
        self._forget_agent = forget_agent
        self._begin = begin

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

    def claim_hot(
        self,
        instance_id: str,
        version_id: str,
        flavor_id: str,
        image_id: str,
        zone: str | None,
        hot_digest: str,
    ) -> GuestRecord | None:
        """Claim a hot guest for an instance; None: none fits.

        :param hot_digest: see :meth:`.GuestStore.claim_hot`
        """
        key = self._request_key(version_id, flavor_id, image_id, zone)
        return None if key is None else self._store.claim_hot(key, hot_digest, instance_id)

    def bind(
        self,
        guest: GuestRecord,
        request: bind.BindRequest,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Bind a claimed guest to an instance.

        :param check: called right before each request; raises an error if this worker must stop
        :raises NotFencedError: it failed, and the guest may still write to the volume
        :raises TroveCephError: it failed; the volume and the ports are free for another server
        """
        deps = self._deps if check is None else _checked(self._deps, check)
        bind.Binding(deps, guest, request).run()
        # The agent has left the topic of the guest. The instance does not wait for a slow bus.
        self._begin(functools.partial(self._forget_agent, guest.guest_id))

    def release(self, guest: GuestRecord) -> None:
        """Have a claimed guest wait as before; it must not be bound, nor have been hot."""
        assert guest.instance_id is not None
        self._store.release(guest.guest_id, guest.instance_id)

    def retire(self, guest: GuestRecord, reason: str) -> None:
        """Have a claimed guest deleted."""
        self._store.retire(guest.guest_id, reason)


class _Checked:
    """A dependency whose calls are preceded by a check."""

    def __init__(self, target: Any, check: Callable[[], None]):
        self._target = target
        self._check = check

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._target, name)

        @functools.wraps(verb)
        def checked(*arguments: Any, **options: Any) -> Any:
            self._check()
            return verb(*arguments, **options)

        return checked


def _checked(deps: bind.BindDependencies, check: Callable[[], None]) -> bind.BindDependencies:
    guarded: dict[str, Any] = {
        name: _Checked(getattr(deps, name), check)
        for name in ('agents', 'servers', 'ports', 'store', 'volumes')
    }

    def fence(volume_id: str, confirm: Callable[[], None] | None = None) -> None:
        deps.fence(volume_id, confirm or check)

    return dataclasses.replace(deps, fence=fence, **guarded)
