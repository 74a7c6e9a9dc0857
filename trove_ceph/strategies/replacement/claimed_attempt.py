# SPDX-License-Identifier: Apache-2.0
"""What one attempt of a replacement and one of a re-provisioning have in common."""

import abc
import dataclasses
import datetime
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

from trove_ceph import exceptions, operation_events, waiting
from trove_ceph.db import heartbeat
from trove_ceph.db.claims import Claim
from trove_ceph.operation_events import Phase
from trove_ceph.strategies.backup.claimed import Guarded
from trove_ceph.strategies.replacement import rules
from trove_ceph.strategies.replacement.dependencies import InstanceFacts

_POLL_SEC = 1


class Record(Protocol):
    """The row on which the attempt works."""

    @property
    def instance_id(self) -> str: ...
    @property
    def step(self) -> str | None: ...
    @property
    def attempts(self) -> int: ...


class Dependencies(Protocol):
    """Those that every attempt uses; see :class:`.ReplacementDependencies`."""

    @property
    def store(self) -> Any: ...
    @property
    def heartbeat(self) -> heartbeat.Heartbeat: ...
    @property
    def instances(self) -> Any: ...
    @property
    def clock(self) -> Callable[[], float]: ...
    @property
    def sleep(self) -> Callable[[float], None]: ...
    @property
    def patience_sec(self) -> float: ...


_D = TypeVar('_D', bound=Dependencies)
_R = TypeVar('_R', bound=Record)
_E = TypeVar('_E')


class ClaimedAttempt(abc.ABC, Generic[_D, _R, _E]):
    """One attempt by the worker that has claimed a record.

    Each write names the claim. Each request to another service first checks whether the claim is
    still valid, because a worker that was suspended for long may have a successor.

    :param guarded: the names of the dependencies whose requests check the claim
    :ivar deps: the dependencies, guarded by the claim
    :ivar record: as this attempt has written it last
    """

    def __init__(self, deps: _D, claim: Claim, record: _R, guarded: Collection[str]):
        changes = {name: Guarded(getattr(deps, name), deps.heartbeat, claim) for name in guarded}
        self.deps: _D = dataclasses.replace(cast(Any, deps), **changes)
        self.record = record
        self._claim = claim

    def note(self, **values: Any) -> None:
        """Set columns of the record."""
        self.record = self.deps.store.note(self._claim, **values)

    def advance(self, event: _E, **values: Any) -> None:
        """Apply an event that does not end the operation; attempts are counted anew."""
        anew = {'attempts': 0, 'retry_at': None, 'error': None}
        self.record = self.deps.store.advance(self._claim, event, **anew | values)

    def count(self, **values: Any) -> None:
        """Count an attempt that failed: no worker makes the next one before its time.

        :param values: columns to set as well
        """
        attempts = self.record.attempts + 1
        pause = datetime.timedelta(seconds=rules.retry_sec(attempts))
        self.note(attempts=attempts, retry_at=self.deps.store.now() + pause, **values)

    def complete(self) -> None:
        self.record = self.deps.store.complete(self._claim)
        self.report(Phase.END)

    def fail(self, reason: str, cause: str) -> None:
        """End without success.

        :param cause: the name of the class of the error
        """
        self.record = self.deps.store.fail(self._claim, reason)
        self.report(Phase.ERROR, cause, reason)

    def report(self, phase: Phase, cause: str | None = None, message: str | None = None) -> None:
        """Report what happened to the operation.

        :param cause: the name of the class of an error
        """
        operation_events.publish(
            operation_events.Event(
                self._operation,
                phase,
                self._subject(),
                self._seconds(phase),
                cause=cause,
                message=message,
            )
        )

    @property
    @abc.abstractmethod
    def _operation(self) -> operation_events.Operation:
        """The operation of which this is an attempt."""

    @abc.abstractmethod
    def _subject(self) -> Mapping[str, Any]:
        """Return on what it works, and why."""

    @abc.abstractmethod
    def _seconds(self, phase: Phase) -> float | None:
        """Return the seconds from the request to the end; None: it has not ended."""

    def enter(self, step: str) -> None:
        """Begin a step, which tenants see.

        :raises ReplacementCanceledError: the instance is being deleted
        """
        self.find_instance()
        if self.record.step != step:
            self.note(step=step)

    def find_instance(self) -> InstanceFacts:
        """Return the instance.

        :raises ReplacementCanceledError: it is being deleted
        """
        facts: InstanceFacts | None = self.deps.instances.find(self.record.instance_id)
        if facts is None or facts.is_deleted or facts.task == 'DELETING':
            raise exceptions.ReplacementCanceledError(f'{self.record}: the instance is deleted')
        return facts

    def wait(self, is_done: Callable[[], bool], what: str, shown: str | None = None) -> None:
        """Wait until a condition is met, for as long as one attempt waits.

        :param what: is waited for
        :param shown: see :class:`.InProgressError`
        :raises InProgressError: the condition is not met yet
        """
        deadline = self._deadline()
        while not is_done():
            if not deadline.pause(_POLL_SEC):
                raise exceptions.InProgressError(f'{self.record}: {what}', shown)

    def insist(self, request: Callable[[], object]) -> None:
        """Repeat a request that cannot be made yet, for as long as one attempt waits.

        :raises InProgressError: that of the request, which still cannot be made
        """
        deadline = self._deadline()
        while True:
            try:
                request()
                return
            except exceptions.InProgressError:
                if not deadline.pause(_POLL_SEC):
                    raise

    def _deadline(self) -> waiting.Deadline:
        return waiting.Deadline(self.deps.patience_sec, self.deps.clock, self.deps.sleep)
