# SPDX-License-Identifier: Apache-2.0
"""Trims the data volume: gives the blocks that the file system freed back to Ceph.

What MySQL deletes (dropped tables, purged binary logs, a smaller redo log) stays in the RBD image
until it is discarded, and the first copy of a backup to the vault moves it.

While FITRIM works through an allocation group of XFS it holds the lock of that group's free space,
and a commit that needs space from it waits. So the file system is trimmed in ranges, with a pause
after each that is as long as the range took. Only the first trim has much to discard: of blocks
that are discarded already, nothing reaches Ceph.

XFS of older kernels (Linux 6.1 among them) discards each free extent as a whole of which a part is
in the range, and says so by the number of bytes, which is more than the range has. Small ranges
would discard the same extents again and again there, so they become larger.

A trim stays out of the way of backups: no range is begun while a backup holds the instance, or
within the time in which a snapshot may be made. That is for speed alone. What a snapshot holds is
the same with a trim beside it, since a discard touches nothing but free blocks.
"""

import collections.abc
import dataclasses
import random
import threading
import time

from oslo_log import log as logging
from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.host import data_volume

LOG = logging.getLogger(__name__)

#: Of one FITRIM, unless a volume would need more than MAX_RANGES of them.
RANGE_BYTES = 256 * units.Mi
MAX_RANGES = 1024
#: librbd leaves out what is smaller (``rbd_discard_granularity_bytes``).
MIN_EXTENT_BYTES = 64 * units.Ki

#: After the agent's start, or a database's first start.
_SOON_SEC = (60, 300)
#: Part of the interval, so that the guests of a cloud do not trim at the same time.
_JITTER = 0.1
# A range takes milliseconds; what takes longer than this must not fail a backup.
_RANGE_PATIENCE_SEC = 10
_POLL_SEC = 1

Clock = collections.abc.Callable[[], float]


@dataclasses.dataclass(frozen=True)
class Report:
    """What one trim did.

    :param ranges: how many FITRIMs it was
    :param seconds: how long it took, pauses included
    :param longest_sec: the longest FITRIM, which is as long as a commit may have waited
    """

    ranges: int
    seconds: float
    longest_sec: float


class VolumeTrimmer:
    """Trims one volume every interval, in a thread of its own, never twice at once.

    :param volume: gives the data volume as it is now
    :param interval_sec: between the beginnings of two trims; 0: there are none
    :param start: runs a function beside everything else
    :param between: gives a number between two, at random
    """

    def __init__(
        self,
        volume: collections.abc.Callable[[], data_volume.DataVolume],
        interval_sec: int,
        clock: Clock = time.monotonic,
        sleep: collections.abc.Callable[[float], None] = time.sleep,
        start: collections.abc.Callable[[collections.abc.Callable[[], None]], None] | None = None,
        between: collections.abc.Callable[[float, float], float] = random.uniform,
    ):
        self._volume = volume
        self._interval_sec = interval_sec
        self._clock = clock
        self._sleep = sleep
        self._start = start or _start_thread
        self._between = between
        self._running = threading.Lock()
        self._in_range = threading.Lock()
        self._aside_until = clock()
        self._ended_at: float | None = None
        self._due_at = clock() + between(*_SOON_SEC)

    def trim_if_due(self) -> bool:
        """Begin a trim if one is due, and return whether it was begun; does not wait for it."""
        if not self._interval_sec or self._clock() < self._due_at:
            return False
        return self._begin()

    def trim_unless_recent(self, max_age_sec: float) -> bool:
        """Begin a trim unless one ended less than ``max_age_sec`` ago; does not wait for it."""
        if not self._interval_sec:
            return False
        if self._ended_at is not None and self._clock() - self._ended_at < max_age_sec:
            return False
        return self._begin()

    def trim_soon(self) -> None:
        """Have the next trim be due within minutes, as after the first start of a database."""
        self._due_at = min(self._due_at, self._clock() + self._between(*_SOON_SEC))

    def stand_aside(self, seconds: float) -> None:
        """Begin no further range for so long, and wait for the one that is under way."""
        self._aside_until = max(self._aside_until, self._clock() + seconds)
        if not self._in_range.acquire(timeout=_RANGE_PATIENCE_SEC):
            LOG.warning('The volume is still being trimmed after %s s', _RANGE_PATIENCE_SEC)
            return
        self._in_range.release()

    def go_on(self) -> None:
        """End what :meth:`stand_aside` began."""
        self._aside_until = self._clock()

    def _begin(self) -> bool:
        if not self._running.acquire(blocking=False):
            return False
        spread = self._interval_sec * _JITTER
        self._due_at = self._clock() + self._interval_sec + self._between(-spread, spread)
        try:
            self._start(self._run)
        except BaseException:
            self._running.release()
            raise
        return True

    def _run(self) -> None:
        try:
            report = self.trim()
            self._ended_at = self._clock()
            LOG.info(
                'Trimmed the data volume: %d ranges, %.1f s, the longest %.3f s',
                *(report.ranges, report.seconds, report.longest_sec),
            )
        except exceptions.TroveCephError as error:
            LOG.warning('The data volume is not trimmed: %s', error)
        except Exception:
            LOG.exception('The data volume is not trimmed')
        finally:
            self._running.release()

    def trim(self) -> Report:
        """Trim the whole volume; blocks until that is done.

        :raises StorageCommandError: the volume does not support it, or fstrim failed
        :raises VolumeNotReadyError: the volume is not mounted, or not any more
        """
        volume = self._volume()
        size_bytes = volume.filesystem_bytes()
        length = max(RANGE_BYTES, -(-size_bytes // MAX_RANGES))
        began = self._clock()
        ranges, offset, longest_sec = 0, 0, 0.0
        while offset < size_bytes:
            trimmed_bytes, took_sec = self._trim_range(volume, offset, length)
            ranges += 1
            offset += length
            if trimmed_bytes > length:
                length *= 2
            longest_sec = max(longest_sec, took_sec)
            self._sleep(took_sec)
        return Report(ranges, self._clock() - began, longest_sec)

    def _trim_range(
        self, volume: data_volume.DataVolume, offset: int, length: int
    ) -> tuple[int, float]:
        while True:
            with self._in_range:
                if self._clock() >= self._aside_until:
                    began = self._clock()
                    trimmed = volume.trim(offset, length, MIN_EXTENT_BYTES)
                    return trimmed, self._clock() - began
            self._sleep(_POLL_SEC)


def _start_thread(function: collections.abc.Callable[[], None]) -> None:
    threading.Thread(target=function, name='volume-trim', daemon=True).start()
