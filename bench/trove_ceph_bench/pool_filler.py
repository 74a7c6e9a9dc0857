# SPDX-License-Identifier: Apache-2.0
"""Fill a pool to a percentage with an image that serves nothing else.

The percentage is Ceph's ``percent_used``: used space as a share of used and available space, where
the available space ends when the fullest OSD reaches the full ratio. It includes all else in the
pool, so the filler shrinks and grows with the rest. After a crash the image ``bench-filler`` is
left; the next run of the plan continues with it and removes it at its end.

A pool above the nearfull ratio warns, and above the backfillfull ratio it does not recover, so a
percentage that would bring an OSD of the pool there is refused before anything is written.
"""

import dataclasses
from collections.abc import Callable

from oslo_utils import units

from trove_ceph import exceptions, waiting
from trove_ceph.host import rbd_pool
from trove_ceph_bench import ceph_facts, fio, model

IMAGE = 'bench-filler'
#: The pool is filled to this many points around the wanted percentage.
TOLERANCE = 0.5
#: Points to fill at once; the OSDs are checked again after each step.
STEP = 5.0
#: The sums of a pool arrive every few seconds (mgr_stats_period and the OSDs' reports).
SETTLE_POLL_SEC = 6
SETTLE_TIMEOUT_SEC = 180
_STEPS = 60
#: Points by which an idle server changes its pool.
_NOISE = 0.05

#: Writes a range of an image: the image, offset and size in MiB.
Write = Callable[[model.Image, int, int], None]


class PoolFiller:
    """Keep one pool filled to a percentage, as a context manager that removes the filler.

    :param image: any image of the pool, which names its cluster
    :param note: called with a short text about the current activity
    """

    def __init__(
        self,
        image: model.Image,
        note: model.Note,
        facts: ceph_facts.CephFacts | None = None,
        pool: rbd_pool.RbdPool | None = None,
        write: Write = fio.fill,
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._facts = facts or ceph_facts.CephFacts(image.conf, image.user)
        self._pool = pool or rbd_pool.RbdPool(image.conf, image.user, image.pool)
        self._image = dataclasses.replace(image, name=IMAGE)
        self._note = note
        self._write = write
        self._start_wait = start_wait

    def __enter__(self) -> 'PoolFiller':
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove the filler.

        :raises StorageCommandError: it cannot be removed
        """
        self._pool.ensure_no_image(IMAGE)

    def ensure(self, percent: float) -> ceph_facts.PoolUsage:
        """Fill the pool to a percentage, give or take ``TOLERANCE``, and return its usage then.

        :raises LoadFailedError: the pool holds more without the filler, it would pass nearfull, or
            its sums do not change
        :raises StorageCommandError: Ceph refuses or does not answer
        """
        usage = self._settled()
        for _ in range(_STEPS):
            missing = percent - usage.used_percent
            if abs(missing) <= TOLERANCE:
                return usage
            self._refuse_nearfull(usage, percent)
            self._note(
                f'pool {self._pool.pool}: {usage.used_percent:.1f} % full, goal {percent:g} %',
                None,
            )
            size_mib = max(1, int(min(abs(missing), STEP) / 100 * usage.total_bytes / units.Mi))
            before = self._size_mib()
            if missing > 0:
                self._grow(before, size_mib)
            else:
                self._shrink(before, size_mib, usage, percent)
            usage = self._settled(usage.used_percent)
        raise exceptions.LoadFailedError(
            f'pool {self._pool.pool} is {usage.used_percent:.1f} % full after {_STEPS} steps, '
            f'expected {percent:g} %; another client of the pool writes or deletes'
        )

    def _grow(self, before: int, size_mib: int) -> None:
        if before:
            self._pool.resize_image(IMAGE, before + size_mib)
        else:
            self._pool.ensure_no_image(IMAGE)
            self._pool.create_image(IMAGE, size_mib / 1024)
        self._write(self._image, before, size_mib)

    def _shrink(
        self, before: int, size_mib: int, usage: ceph_facts.PoolUsage, percent: float
    ) -> None:
        if size_mib > before:
            raise exceptions.LoadFailedError(
                f'pool {self._pool.pool} is {usage.used_percent:.1f} % full, and only {before} MiB '
                f'of it are the filler: {percent:g} % cannot be measured; name a higher percentage'
            )
        # An image of no size cannot be told from a missing one.
        self._pool.resize_image(IMAGE, max(1, before - size_mib))

    def _size_mib(self) -> int:
        """Return the size of the filler; 0 if there is none."""
        if not self._pool.has_image(IMAGE):
            return 0
        return self._pool.image_facts(IMAGE)['size'] // units.Mi

    def _refuse_nearfull(self, usage: ceph_facts.PoolUsage, percent: float) -> None:
        fullest = usage.fullest_osd_percent_at(percent)
        if fullest >= usage.nearfull_percent:
            raise exceptions.LoadFailedError(
                f'pool {self._pool.pool} at {percent:g} % would fill an OSD to {fullest:.1f} %, '
                f'and OSDs are nearfull at {usage.nearfull_percent:g} %; name a lower percentage, '
                f'or add OSDs'
            )

    def _settled(self, before: float | None = None) -> ceph_facts.PoolUsage:
        """Return the usage once two readings agree; it must differ from an earlier percentage.

        :raises LoadFailedError: it still changes, or has not changed, after the time limit
        """
        deadline = self._start_wait(SETTLE_TIMEOUT_SEC)
        last: float | None = None
        while True:
            usage = self._facts.pool_usage(self._pool.pool)
            if _is_same(usage.used_percent, last) and not _is_same(usage.used_percent, before):
                return usage
            last = usage.used_percent
            if not deadline.pause(SETTLE_POLL_SEC):
                raise exceptions.LoadFailedError(
                    f'pool {self._pool.pool}: Ceph reports {last:.2f} % used, and the sums do not '
                    f'settle within {SETTLE_TIMEOUT_SEC} s; other clients use the pool'
                )


def _is_same(percent: float, other: float | None) -> bool:
    return other is not None and abs(percent - other) <= _NOISE
