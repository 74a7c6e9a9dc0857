# SPDX-License-Identifier: Apache-2.0
"""Trimming of the data volume: return blocks that the file system has freed to Ceph.

Data that MySQL deletes (dropped tables, purged binary logs, a smaller redo log) stays in the RBD
image until it is discarded, and the first copy of a backup to the vault transfers it.

While FITRIM processes an allocation group of XFS, it holds the lock of that group's free space, and
a commit that needs space from it waits. So the file system is trimmed in ranges, and after each
range follows a pause of the same duration. Only the first trim discards much: blocks that are
discarded already cause no request to Ceph.

XFS of older kernels (such as Linux 6.1) discards a free extent as a whole if a part of it is in the
range, and reports more bytes than the range has. There, small ranges would discard the same extents
repeatedly, so the ranges become larger.

No range starts while a backup holds the instance, or while a snapshot may be created. The reason is
speed only: a discard affects free blocks only, so the content of a snapshot does not depend on it.
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

#: Size of the range of one FITRIM, unless a volume would need more than MAX_RANGES of them.
RANGE_BYTES = 256 * units.Mi
MAX_RANGES = 1024
#: librbd ignores smaller discards (``rbd_discard_granularity_bytes``).
MIN_EXTENT_BYTES = 64 * units.Ki

#: Delay after the start of the agent, or the first start of a database.
_SOON_SEC = (60, 300)
#: Random part of the interval, so that the guests of a cloud do not trim at the same time.
_JITTER = 0.1
# A range takes milliseconds. A slower one must not fail a backup.
_RANGE_TIMEOUT_SEC = 10
_POLL_SEC = 1

Clock = collections.abc.Callable[[], float]


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of one trim.

    :param ranges: number of FITRIM calls
    :param seconds: total duration, including pauses
    :param longest_sec: duration of the longest FITRIM, the upper bound of a commit's delay
    """

    ranges: int
    seconds: float
    longest_sec: float


class VolumeTrimmer:
    """Trim one volume periodically in a thread, at most one trim at a time.

    :param volume: returns the present data volume
    :param interval_sec: time between the starts of two trims; 0: never trim
    :param clock: seconds of a monotonic clock
    :param sleep: pauses the thread for a number of seconds
    :param start: runs a function in the background
    :param between: returns a random number between two
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
        self._paused_until = clock()
        self._ended_at: float | None = None
        self._due_at = clock() + between(*_SOON_SEC)

    def trim_if_due(self) -> bool:
        """Start a trim if one is due, and return whether it was started; does not wait for it."""
        if not self._interval_sec or self._clock() < self._due_at:
            return False
        return self._start_trim()

    def trim_unless_recent(self, max_age_sec: float) -> bool:
        """Start a trim unless one ended less than ``max_age_sec`` ago; does not wait for it."""
        if not self._interval_sec:
            return False
        if self._ended_at is not None and self._clock() - self._ended_at < max_age_sec:
            return False
        return self._start_trim()

    def schedule_soon(self) -> None:
        """Schedule the next trim within minutes, as after the first start of a database."""
        self._due_at = min(self._due_at, self._clock() + self._between(*_SOON_SEC))

    def pause(self, seconds: float) -> None:
        """Start no range for this time, and wait for the end of a running one."""
        self._paused_until = max(self._paused_until, self._clock() + seconds)
        if not self._in_range.acquire(timeout=_RANGE_TIMEOUT_SEC):
            LOG.warning(
                'A range of the volume is still being trimmed after %s s', _RANGE_TIMEOUT_SEC
            )
            return
        self._in_range.release()

    def resume(self) -> None:
        """End a pause that :meth:`pause` started."""
        self._paused_until = self._clock()

    def _start_trim(self) -> bool:
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
            LOG.warning('Trimming the data volume failed: %s', error)
        except Exception:
            LOG.exception('Trimming the data volume failed')
        finally:
            self._running.release()

    def trim(self) -> Report:
        """Trim the whole volume; blocks until it is done.

        :raises StorageCommandError: the volume does not support discards, or fstrim failed
        :raises VolumeNotReadyError: the volume is not mounted
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
                if self._clock() >= self._paused_until:
                    began = self._clock()
                    trimmed = volume.trim(offset, length, MIN_EXTENT_BYTES)
                    return trimmed, self._clock() - began
            self._sleep(_POLL_SEC)


def _start_thread(function: collections.abc.Callable[[], None]) -> None:
    threading.Thread(target=function, name='volume-trim', daemon=True).start()
