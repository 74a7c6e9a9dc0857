# SPDX-License-Identifier: Apache-2.0
"""Tell listeners how operations go: that one began, ended or failed, and how long its steps took.

The code of an operation reports it once. Metrics and notifications listen
(:mod:`trove_ceph.metrics.operations` and :mod:`trove_ceph.trove_adapter.notifications`); without a
listener nothing happens. No listener can fail an operation: what it raises is logged.
"""

import contextlib
import dataclasses
import enum
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions

LOG = logging.getLogger(__name__)


class Operation(enum.StrEnum):
    """The operations that are reported, by the names that metrics and notifications have."""

    BACKUP_TAKE = 'backup.take'
    BACKUP_COPY = 'backup.copy'
    BACKUP_VERIFY = 'backup.verify'
    BACKUP_DELETE = 'backup.delete'
    POLICY_RUN = 'policy.run'
    RESTORE = 'restore'
    GOLDEN_CLONE = 'golden.clone'
    GUEST_BIND = 'guest.bind'
    FAILOVER = 'failover'
    RESIZE = 'resize'
    REBUILD = 'rebuild'
    REPLICA_CREATE = 'replica.create'
    REPLICA_REPROVISION = 'replica.reprovision'
    REPLICA_PROMOTE = 'replica.promote'
    REPLICA_EJECT_SOURCE = 'replica.eject_source'
    REPLICA_DETACH = 'replica.detach'
    STORAGE_COPY = 'storage.copy'
    STORAGE_COMPARE = 'storage.compare'
    STORAGE_FENCE = 'storage.fence'
    STORAGE_FLATTEN = 'storage.flatten'
    STORAGE_INSPECT = 'storage.inspect'
    STORAGE_GOLDEN = 'storage.golden'
    STORAGE_PURGE = 'storage.purge'
    STORAGE_CLONE = 'storage.clone'

    @property
    def is_of_storage(self) -> bool:
        """Whether the storage service carries it out; a taskmanager carries out the others."""
        return self.startswith('storage.')


class Phase(enum.StrEnum):
    """What happened to an operation."""

    START = 'start'
    STEP = 'step'
    #: One attempt failed; the operation goes on with another one.
    RETRY = 'retry'
    END = 'end'
    ERROR = 'error'
    #: Another worker, a later attempt or nobody continues it; that is no failure.
    INTERRUPTED = 'interrupted'


#: Errors that say that an operation goes on elsewhere or later, or is not wanted any more.
INTERRUPTIONS = (
    exceptions.CanceledError,
    exceptions.ClaimLostError,
    exceptions.InProgressError,
    exceptions.LockLostError,
    exceptions.ReplacementCanceledError,
)


@dataclasses.dataclass(frozen=True)
class Event:
    """One event of one operation.

    :param subject: what the operation works on, such as ``{'backup_id': …}``, and at its end what
        it found
    :param seconds: since the operation began; of a step: its own duration; None if it is not known
    :param step: the name of a step that has ended
    :param cause: the name of the class of the error
    :param message: the text of the error
    """

    operation: Operation
    phase: Phase
    subject: Mapping[str, Any]
    seconds: float | None = None
    step: str | None = None
    cause: str | None = None
    message: str | None = None


Listener = Callable[[Event], object]

_listeners: tuple[Listener, ...] = ()


def subscribe(listener: Listener) -> Callable[[], None]:
    """Have a listener called with each event of this process, in the thread of the operation.

    :returns: a function that ends the subscription
    """
    global _listeners
    _listeners = (*_listeners, listener)

    def unsubscribe() -> None:
        global _listeners
        _listeners = tuple(one for one in _listeners if one is not listener)

    return unsubscribe


def publish(event: Event) -> None:
    """Call the listeners; log what they raise."""
    for listener in _listeners:
        try:
            listener(event)
        except Exception:
            LOG.exception('%s of %s was not passed on', event.phase, event.operation)


class Report:
    """The report of an operation that runs in this thread.

    :param subject: what it works on
    :param began: when it began, by the clock
    """

    def __init__(
        self,
        operation: Operation,
        subject: Mapping[str, Any],
        began: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._operation = operation
        self._subject = dict(subject)
        self._began = began
        self._clock = clock
        self._step: tuple[str, float] | None = None

    def add(self, **found: Any) -> None:
        """Add to the subject what the operation found; later events have it."""
        self._subject |= found

    def enter(self, step: str, *_: object) -> None:
        """Note that a step begins, and the one before has ended; a ``note`` of steps.run."""
        self._end_step()
        self._step = step, self._clock()

    def _end_step(self) -> None:
        if self._step is not None:
            name, began = self._step
            self._publish(Phase.STEP, self._clock() - began, step=name)
            self._step = None

    def tell(self, phase: Phase, error: BaseException | None = None) -> None:
        """Publish that the operation began, ended or failed.

        :param error: why it failed
        """
        elapsed = None if phase is Phase.START else self._clock() - self._began
        if error is None:
            self._end_step()
            self._publish(phase, elapsed)
        else:
            self._publish(phase, elapsed, cause=type(error).__name__, message=str(error))

    @contextlib.contextmanager
    def guarding(self) -> Iterator[None]:
        """Tell of an error of the block, and let it pass."""
        try:
            yield
        except Exception as error:
            is_interrupted = isinstance(error, INTERRUPTIONS)
            self.tell(Phase.INTERRUPTED if is_interrupted else Phase.ERROR, error)
            raise

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Tell how the operation ends with the block, and let an error pass."""
        with self.guarding():
            yield
        self.tell(Phase.END)

    def _publish(self, phase: Phase, seconds: float | None, **details: str) -> None:
        publish(Event(self._operation, phase, dict(self._subject), seconds, **details))


def begin(
    operation: Operation,
    clock: Callable[[], float] = time.monotonic,
    **subject: Any,
) -> Report:
    """Tell that an operation begins, and return its report.

    :param subject: what it works on, such as ``backup_id=…``
    """
    report = Report(operation, subject, clock(), clock)
    report.tell(Phase.START)
    return report


@contextlib.contextmanager
def reported(operation: Operation, **subject: Any) -> Iterator[Report]:
    """Report the operation that the block carries out, and let its errors pass.

    :param subject: as of :func:`begin`
    """
    report = begin(operation, **subject)
    with report.ending():
        yield report
