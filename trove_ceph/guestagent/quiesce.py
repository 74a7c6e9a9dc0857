# SPDX-License-Identifier: Apache-2.0
"""Brings the instance to rest while its volume is snapshotted, and never for longer than agreed.

Each level includes the one before it:

``ddl``
    LOCK INSTANCE FOR BACKUP. Rows change as ever; definitions and files stay as they are.
``freeze``
    Nothing is written at all: the file system is frozen. InnoDB needs no lock for that, neither
    FLUSH TABLES WITH READ LOCK nor a flush: it recovers what it was doing at that instant, as after
    a power cut. Only tables that recover nothing (MyISAM and the like) have to be at rest before,
    so they alone, if there are any, are locked and written out by name. The global read lock would
    wait for every query of every table to end, with all writers queued behind it.

Two clocks watch each hold, neither of them ours: the holder of the freeze thaws by itself
(:mod:`freeze_process`), and the server drops a connection that is silent for too long. The thaw
always comes before the unlock, for with the general log on, an UNLOCK is written before it works.

A hold belongs to one attempt at a backup, by a random token. Only the release that carries the
token ends the hold and proves it. An attempt that was released holds nothing any more, so a quiesce
request that arrives after its own release is refused. Another attempt at the same backup ends the
hold of the one before, whose process is dead or has lost its claim, and whose release then says so.
"""

import collections
import collections.abc
import contextlib
import threading
import time
import typing

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.guestagent import backup_lock, volume_freeze

LOG = logging.getLogger(__name__)

DDL = 'ddl'
FREEZE = 'freeze'
LEVELS = (DDL, FREEZE)
_UNLOCK_AFTER_SEC = 5
#: How many attempts that have ended are remembered.
_ENDED = 256

#: Given the seconds that the server keeps the locks of a silent connection.
OpenLock = collections.abc.Callable[[int], backup_lock.BackupLock]
#: Given the seconds after which the volume thaws by itself.
OpenFreeze = collections.abc.Callable[[float], volume_freeze.VolumeFreeze]
Clock = collections.abc.Callable[[], float]
Answer = dict[str, typing.Any]


class _Hold:
    """What is held for one attempt; :meth:`take` takes all of it or nothing."""

    def __init__(self, backup_id: str, token: str, level: str, limit_sec: int, clock: Clock):
        self.backup_id = backup_id
        self.token = token
        self.level = level
        self._limit_sec = limit_sec
        self._clock = clock
        self._began = clock()
        self._locked_tables = 0
        self._freeze_sec = 0.0
        self._lock: backup_lock.BackupLock
        self._freeze: volume_freeze.VolumeFreeze | None = None
        self._ended = contextlib.ExitStack()

    def take(self, open_lock: OpenLock, open_freeze: OpenFreeze) -> None:
        # The server's clock runs from the last statement. It must not let the writers of locked
        # tables in before the volume has thawed, which nobody waits for any longer than the limit.
        hold_sec = self._limit_sec if self.level == DDL else self._limit_sec + _UNLOCK_AFTER_SEC
        with contextlib.ExitStack() as undo:
            self._lock = open_lock(hold_sec)
            undo.callback(self._lock.close)
            if self.level == FREEZE:
                # Programs are started while nobody waits for us yet.
                self._freeze = open_freeze(self._limit_sec)
                undo.callback(self._freeze.close)
                self._freeze.wait_until_ready()
            self._lock.lock_instance()
            if self._freeze:
                self._locked_tables = self._lock.lock_plain_tables()
            self._began = self._clock()
            if self._freeze:
                self._freeze_sec = self._freeze.freeze()
            self._ended = undo.pop_all()

    def is_lost(self) -> bool:
        """Return whether it is over already; no statement is sent to a frozen server."""
        if self.remaining_sec() <= 0:
            return True
        return not (self._freeze.is_frozen() if self._freeze else self._lock.is_held())

    def remaining_sec(self) -> float:
        return self._limit_sec - (self._clock() - self._began)

    def describe(self) -> Answer:
        return {
            'backup_id': self.backup_id,
            'level': self.level,
            'remaining_sec': max(self.remaining_sec(), 0),
            'freeze_sec': self._freeze_sec,
            'locked_tables': self._locked_tables,
        }

    def release(self) -> Answer:
        held_sec = self._clock() - self._began
        with self._ended:
            lost = self._freeze.thaw() if self._freeze else ''
            lost = self._lock.unlock() or lost
        return {
            'backup_id': self.backup_id,
            'level': self.level,
            'held': not lost,
            'reason': lost,
            'held_sec': held_sec,
        }


class Quiescer:
    """At most one hold at a time, known by the attempt at a backup that it is for.

    :param max_limit_sec: bounds what callers ask for
    """

    def __init__(
        self,
        open_lock: OpenLock,
        open_freeze: OpenFreeze,
        max_limit_sec: int,
        clock: Clock = time.monotonic,
    ):
        self._open_lock = open_lock
        self._open_freeze = open_freeze
        self._max_limit_sec = max_limit_sec
        self._clock = clock
        self._hold: _Hold | None = None
        # By token, what attempts that have ended were told. One that is forgotten is too old for a
        # message of it still to be under way.
        self._ended: collections.OrderedDict[str, Answer] = collections.OrderedDict()
        # A release that overtakes its own quiesce waits here, and then undoes it.
        self._turn = threading.Lock()

    def quiesce(self, backup_id: str, token: str, level: str, limit_sec: int) -> Answer:
        """Bring the instance to rest for an attempt; a repetition tells what is held already.

        :param token: of this attempt alone
        :param level: one of LEVELS
        :param limit_sec: after which everything is given back, whatever happens to anybody
        :returns: ``backup_id``, ``level``, ``remaining_sec``, ``freeze_sec`` (what freezing took),
            ``locked_tables`` (that cannot be recovered, and were written out)
        :raises NotQuiescedError: nothing is held for this attempt, nor left of it
        :raises StorageCommandError: the same; the program that freezes cannot be run
        """
        if level not in LEVELS:
            raise exceptions.NotQuiescedError(
                f'There is no way to hold {level!r}, only {" and ".join(LEVELS)}'
            )
        limit_sec = max(1, min(int(limit_sec), self._max_limit_sec))
        with self._turn:
            self._drop_lost()
            if token in self._ended:
                raise exceptions.NotQuiescedError(
                    f'This attempt at backup {backup_id} has ended already'
                )
            if self._hold is not None and self._hold.backup_id == backup_id:
                if (self._hold.token, self._hold.level) == (token, level):
                    return self._hold.describe()
                self._release('another attempt at this backup holds the instance')
            if self._hold is None:
                hold = _Hold(backup_id, token, level, limit_sec, self._clock)
                hold.take(self._open_lock, self._open_freeze)
                self._hold = hold
                LOG.info('Holding %s for backup %s: %s', level, backup_id, hold.describe())
            else:
                raise exceptions.NotQuiescedError(
                    f'Backup {self._hold.backup_id} holds the instance ({self._hold.level}) for at '
                    f'most {self._hold.remaining_sec():.0f} s more'
                )
            return self._hold.describe()

    def release(self, backup_id: str, token: str) -> Answer:
        """End an attempt and give back everything that it holds; a repetition gets the same answer.

        What is held for another attempt or backup stays. Waits for a quiesce that is under way.

        :returns: ``backup_id``, ``held``: whether the instance was at rest for this attempt all the
            time until now, otherwise ``reason``; ``held_sec``
        """
        with self._turn:
            if self._hold is not None and self._hold.token == token:
                self._release()
            if token not in self._ended:
                self._end(
                    token,
                    {
                        'backup_id': backup_id,
                        'level': None,
                        'held': False,
                        'reason': 'nothing was held for this attempt',
                        'held_sec': 0.0,
                    },
                )
            return self._ended[token]

    def _drop_lost(self) -> None:
        if self._hold is not None and self._hold.is_lost():
            # Its own release comes later, and must not be told that it was held until then.
            self._release('the hold was over before its release')

    def _release(self, because: str = '') -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            answer = hold.release()
            if because:
                answer |= {'held': False, 'reason': answer['reason'] or because}
            self._end(hold.token, answer)
            LOG.info('Released what backup %s held: %s', hold.backup_id, answer)

    def _end(self, token: str, answer: Answer) -> None:
        self._ended[token] = answer
        while len(self._ended) > _ENDED:
            self._ended.popitem(last=False)
