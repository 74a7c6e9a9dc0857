# SPDX-License-Identifier: Apache-2.0
"""Fence an image: blocklist every client that can write to it, and prove that no write can land.

The argument. Every request carries the epoch of the OSD map that its client knows, and a
placement group answers only once its own map is as new; with a map that has a client on the
blocklist it refuses that client's requests, including those that already wait in its queue. Maps
spread lazily, so the monitors' answer to ``osd blocklist add`` proves nothing about the OSDs yet
(the kernel's client was corrected for just that: commit bb229bbb3bf6, "libceph: wait for latest
osdmap in ceph_monc_blacklist_add()"). Therefore, after the entry is in our own map, a request is
sent to each placement group of the image's pools: when all have answered, none accepts a write of a
fenced client any more, whichever OSD leads it later, since maps only become newer.

A client that can write holds the exclusive lock or is a watcher of the image's header, or gets the
lock from one that does. A client that was cut off from the network loses its watch after 30 s, but
keeps the lock until another client breaks it. So those two lists name every client that may still
write, provided that the image has the exclusive-lock feature.

A fence stops the existing clients, not a host: a process that opens the image later is another
client. The caller must ensure that no process opens it.
"""

import dataclasses
import datetime
import json
import time
from collections.abc import Callable

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.storage import backend, image_types

LOG = logging.getLogger(__name__)

#: How long entries stay by themselves: longer than any host stays paused or partitioned unnoticed.
#: Entries that librbd added before expire after mon_osd_blocklist_default_expire.
EXPIRE_SEC = 7 * 86400
#: The key of the addresses in the metadata of the image.
METADATA_KEY = 'trove_ceph.fenced'
#: Entries of an earlier attempt of the same fence end later than this.
_LEAST_LEFT = datetime.timedelta(seconds=EXPIRE_SEC, days=-1)
_POLL_SEC = 0.2


@dataclasses.dataclass(frozen=True)
class Fence:
    """The proof: no client that held the image can write to it.

    :param addresses: the fenced clients; empty if no client held the image
    """

    image: image_types.ImageRef
    addresses: frozenset[str]


def fence(
    storage: backend.Backend,
    image: image_types.ImageRef,
    timeout_sec: float = 60,
    only: frozenset[str] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Fence:
    """Blocklist every client that holds an image, including our own writers, and break its lock.

    Returns only with the proof. It may be called again after an interruption, and when the image is
    fenced already. The addresses are in the image's metadata before the first is blocklisted.

    :param timeout_sec: how long clients may keep appearing
    :param only: the clients that may be fenced, besides those that were before; a request that
        comes late then cannot fence a client that its sender does not know. None: all clients
    :raises NotFencedError: there is no proof; blocklisted clients stay on the blocklist
    """
    began = clock()
    header = storage.read_header(image)
    if 'exclusive-lock' not in header.features:
        raise exceptions.NotFencedError(
            f'{image}: has no exclusive-lock feature, so a client that was cut off from the '
            'network cannot be found'
        )
    fenced = saved = recorded(header)
    held: frozenset[str] = frozenset()
    while True:
        clients = storage.find_clients(image)
        _check_known(image, clients, fenced, only)
        held |= clients.addresses
        fenced |= clients.addresses
        if fenced != saved:
            _save(storage, header, fenced)
            saved = fenced
        # Before breaking the lock: that adds the owner with Ceph's default expiry, but an existing
        # entry keeps its own.
        storage.blocklist(fenced, EXPIRE_SEC)
        if clients.lock_owner is not None:
            storage.break_lock(image, clients.lock_owner)
        storage.await_blocklist(image)
        left = storage.find_clients(image).addresses
        if not left:
            break
        if clock() - began > timeout_sec:
            raise exceptions.NotFencedError(
                f'{image}: still held by {", ".join(sorted(left))} after {timeout_sec:.0f} s'
            )
        # A watch ends when its OSD has seen the map; a client may have appeared meanwhile.
        sleep(_POLL_SEC)
    _warn_of_short_entries(storage, image, held)
    LOG.info(
        'Fenced %s in %.1f s: %s', image, clock() - began, ', '.join(sorted(fenced)) or 'no client'
    )
    return Fence(image, fenced)


def _check_known(
    image: image_types.ImageRef,
    clients: image_types.Clients,
    fenced: frozenset[str],
    only: frozenset[str] | None,
) -> None:
    strangers = set() if only is None else clients.addresses - only - fenced
    if strangers:
        raise exceptions.NotFencedError(
            f'{image}: is held by {", ".join(sorted(strangers))}, which this fence must not cut '
            'off; list its clients again'
        )


def _warn_of_short_entries(
    storage: backend.Backend, image: image_types.ImageRef, held: frozenset[str]
) -> None:
    """Warn of clients that librbd had blocklisted before: their entries keep a shorter expiry.

    Clients that were fenced off the image earlier may have older entries, and do not count.
    """
    if not held:
        return
    expiries = storage.blocklist_expiries()
    least = datetime.datetime.now(datetime.UTC) + _LEAST_LEFT
    short = [
        f'{address} until {expiries[address].astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC'
        for address in sorted(held & expiries.keys())
        if expiries[address] < least
    ]
    if short:
        LOG.warning(
            '%s: is fenced for less than a week, because librbd had blocklisted its client before: '
            '%s. A client that was only cut off can write again then: switch its host off and on. '
            'Set mon_osd_blocklist_default_expire of the monitors to %d',
            *(image, ', '.join(short), EXPIRE_SEC),
        )


def unfence(storage: backend.Backend, image: image_types.ImageRef) -> None:
    """Remove the clients from the blocklist that fencing an image added.

    Only for clients whose processes are known to be dead: a client that was merely paused would
    continue to write. Otherwise entries expire after EXPIRE_SEC. It needs the cap to remove
    entries, which ``profile rbd`` does not include.
    """
    fenced = recorded(storage.read_header(image))
    storage.unblocklist(fenced)
    storage.set_image_metadata(image, {METADATA_KEY: None})
    LOG.info('Unfenced %s: %s', image, ', '.join(sorted(fenced)) or 'no client')


def recorded(header: image_types.ImageHeader | image_types.ImageFacts) -> frozenset[str]:
    """Return the addresses that were fenced off an image."""
    entry = json.loads(header.metadata.get(METADATA_KEY, '{}'))
    # A clone inherits the metadata, which then describes another image.
    return frozenset(entry['addresses'] if entry.get('image_id') == header.image_id else ())


def _save(
    storage: backend.Backend, header: image_types.ImageHeader, addresses: frozenset[str]
) -> None:
    entry = json.dumps({'image_id': header.image_id, 'addresses': sorted(addresses)})
    storage.set_image_metadata(header.image, {METADATA_KEY: entry})
