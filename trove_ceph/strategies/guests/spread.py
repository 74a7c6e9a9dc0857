# SPDX-License-Identifier: Apache-2.0
"""On which host the server of a guest is requested: a pool is to have guests on two hosts.

A host that fails takes its guests with it, and a failover takes a guest of another host only, and
no hot one. Nova places servers by its own rules, which may prefer one host. So Nova chooses, until
all warm guests whose host is known are on one host; then another one is requested.
"""

import collections
import datetime
from collections.abc import Sequence

from trove_ceph import exceptions
from trove_ceph.db.guest_record import GuestRecord, GuestState
from trove_ceph.strategies.guests import fitness
from trove_ceph.strategies.guests.dependencies import KeeperDependencies
from trove_ceph.strategies.guests.pool_memory import PoolMemory

#: Nova shows the host of a server some seconds after the request.
_PLACE_TIMEOUT = datetime.timedelta(minutes=1)
#: A failure that the log shows until Nova lists its hosts.
_LISTING = 'listing the compute hosts'
#: The states of a guest that a failover can claim, now or soon.
_WARM = (GuestState.BOOTING, GuestState.READY)


class Spread:
    """The hosts of the guests of one pool."""

    def __init__(self, deps: KeeperDependencies, pool: str, memory: PoolMemory):
        self._deps = deps
        self._pool = pool
        self._memory = memory

    def find_host(self, guest: GuestRecord) -> str | None:
        """Return on which host Nova must place a guest; None: Nova chooses.

        :raises InProgressError: boot it later, when the host of another guest is known; otherwise
            all guests of an empty pool, which boot at once, might be on one host
        """
        if not self._memory.may_request_host(self._deps.clock()):
            return None
        others = self._list_others(guest)
        hosts = self._find_hosts(others)
        if not hosts:
            since = self._deps.store.now() - _PLACE_TIMEOUT
            is_placing = any(one.created_at > since for one in others)
            if is_placing and len(self._find_other_hosts(guest, None)) > 1:
                raise exceptions.InProgressError(f'{guest}: waits for the host of another guest')
        if len(hosts) != 1:
            return None
        found = self._find_other_hosts(guest, hosts.pop())
        if not found:
            return None
        self._memory.requested[guest.guest_id] = found[0]
        return found[0]

    def _list_others(self, guest: GuestRecord) -> Sequence[GuestRecord]:
        """Return the other warm guests that have a server, and will keep it."""
        now, settings = self._deps.store.now(), self._deps.settings
        return [
            one
            for one in self._deps.store.list(self._pool, _WARM)
            if one.guest_id != guest.guest_id
            and one.server_id is not None
            and not fitness.is_old(one, now, settings)
        ]

    def _find_hosts(self, guests: Sequence[GuestRecord]) -> set[str]:
        """Return the hosts of guests, as far as they are known or requested."""
        found = {one.host or self._memory.requested.get(one.guest_id) for one in guests}
        return {one for one in found if one is not None}

    def _find_other_hosts(self, guest: GuestRecord, host: str | None) -> Sequence[str]:
        try:
            found = self._deps.servers.find_other_hosts(guest, host)
        except exceptions.ServiceUnavailableError as error:
            # A guest on the same host is better than none.
            self._memory.warn(_LISTING, error)
            return ()
        self._memory.succeed(_LISTING)
        return found


def choose_for_load(ready: Sequence[GuestRecord]) -> GuestRecord:
    """Return the guest that is made hot: the youngest of the host that has most warm guests.

    :param ready: the ready guests, the oldest first
    """
    counts = collections.Counter(one.host for one in ready)
    return max(reversed(ready), key=lambda one: counts[one.host])
