# SPDX-License-Identifier: Apache-2.0
"""Quiescing of the instance while its volume is snapshotted, for a limited time.

Each level includes the one before it:

``ddl``
    LOCK INSTANCE FOR BACKUP. Rows can change; definitions and files cannot.
``freeze``
    The file system is frozen, so nothing is written. InnoDB needs neither FLUSH TABLES WITH READ
    LOCK nor a flush for that: it recovers the state at that instant, as after a power cut. Only
    tables without crash recovery (such as MyISAM) must be quiesced first, so they are locked and
    flushed by name, if there are any. The global read lock would wait for every query on every
    table, with all writers queued behind it.

Two independent timers limit each hold: the freeze process thaws by itself
(:mod:`freeze_process`), and the server closes an idle connection. The thaw always comes before the
unlock, because with the general log on, the server writes an UNLOCK to it before it executes it.

A hold belongs to one attempt at a backup, identified by a random token. Only the release with the
same token ends the hold and proves it. A released attempt cannot hold again, so a quiesce request
that arrives after its own release is refused. A new attempt at the same backup ends the hold of the
previous one, whose process is dead or has lost its claim, and whose release then reports the loss.
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
#: Number of ended attempts whose answers are stored.
_MAX_ENDED = 256

#: The argument is the time in seconds for which the server keeps the locks of an idle connection.
OpenLock = collections.abc.Callable[[int], backup_lock.BackupLock]
#: The argument is the time in seconds after which the volume thaws by itself.
OpenFreeze = collections.abc.Callable[[float], volume_freeze.VolumeFreeze]
Clock = collections.abc.Callable[[], float]
Answer = dict[str, typing.Any]


class _Hold:
    """The locks and the freeze of one attempt; :meth:`take` takes all of them or none."""

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
        # The server's timer starts with the last statement. It must not admit writers of locked
        # tables before the volume thaws, which happens within the limit.
        hold_sec = self._limit_sec if self.level == DDL else self._limit_sec + _UNLOCK_AFTER_SEC
        with contextlib.ExitStack() as undo:
            self._lock = open_lock(hold_sec)
            undo.callback(self._lock.close)
            if self.level == FREEZE:
                # Start the process before anything is blocked.
                self._freeze = open_freeze(self._limit_sec)
                undo.callback(self._freeze.close)
                self._freeze.wait_until_ready()
            self._lock.lock_instance()
            if self._freeze:
                self._locked_tables = self._lock.lock_non_transactional_tables()
            self._began = self._clock()
            if self._freeze:
                self._freeze_sec = self._freeze.freeze()
            self._ended = undo.pop_all()

    def is_lost(self) -> bool:
        """Return whether the hold has ended; sends no statement to a frozen server."""
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
    """At most one hold at a time, identified by the attempt at a backup.

    :param open_lock: opens a connection for the locks
    :param open_freeze: starts a freeze process
    :param max_limit_sec: upper bound of the requested limits
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
        # Answers to ended attempts by token. Messages of attempts that were dropped from it have
        # expired.
        self._ended: collections.OrderedDict[str, Answer] = collections.OrderedDict()
        # A release that arrives during its own quiesce waits here and then undoes it.
        self._turn = threading.Lock()

    def quiesce(self, backup_id: str, token: str, level: str, limit_sec: int) -> Answer:
        """Quiesce the instance for an attempt; idempotent.

        :param token: random, unique to the attempt
        :param level: one of LEVELS
        :param limit_sec: time after which everything is released in any case
        :returns: ``backup_id``, ``level``, ``remaining_sec``, ``freeze_sec`` (duration of
            freezing), ``locked_tables`` (number of flushed non-transactional tables)
        :raises NotQuiescedError: the instance could not be quiesced; nothing is held
        :raises StorageCommandError: the freeze process cannot be started; nothing is held
        """
        if level not in LEVELS:
            raise exceptions.NotQuiescedError(
                f'Quiesce level {level!r} is not supported; choose {" or ".join(LEVELS)}'
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
                LOG.info('Quiesced at %s for backup %s: %s', level, backup_id, hold.describe())
            else:
                raise exceptions.NotQuiescedError(
                    f'Backup {self._hold.backup_id} holds the instance ({self._hold.level}) for at '
                    f'most {self._hold.remaining_sec():.0f} s more'
                )
            return self._hold.describe()

    def release(self, backup_id: str, token: str) -> Answer:
        """End an attempt and release its hold; a repetition returns the same answer.

        The hold of another attempt or backup stays. Waits for a running :meth:`quiesce`.

        :returns: ``backup_id``, ``level``; ``held``: whether the instance was quiesced for this
            attempt without interruption until now; ``reason``: why not; ``held_sec``
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
            # Its own release comes later and must report the loss.
            self._release('the hold ended before its release')

    def _release(self, because: str = '') -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            answer = hold.release()
            if because:
                answer |= {'held': False, 'reason': answer['reason'] or because}
            self._end(hold.token, answer)
            LOG.info('Released the hold of backup %s: %s', hold.backup_id, answer)

    def _end(self, token: str, answer: Answer) -> None:
        self._ended[token] = answer
        while len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)
