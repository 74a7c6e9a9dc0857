# SPDX-License-Identifier: Apache-2.0
"""Rounds: start an operation, kill a service at a random moment, wait for a result."""

import dataclasses
import time
from collections.abc import Callable, Iterator

import keystoneauth1.exceptions
import troveclient.exceptions

from fault_injection import operations
from fault_injection.plan import Plan

POLL_SEC = 0.5
#: The timeout of a round; far beyond the limit for its result.
GIVE_UP_SEC = 600.0
_UNREACHABLE = (
    keystoneauth1.exceptions.ConnectFailure,
    keystoneauth1.exceptions.HttpServerError,
    troveclient.exceptions.ClientException,
)
_REPEATED = (*_UNREACHABLE, operations.SourceReturnsError)


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a round.

    :param was_settled: the operation was settled before the kill, which then had no effect
    :param settled_sec: the time from the kill to the result; None without a result
    """

    plan: Plan
    was_settled: bool
    settled_sec: float | None
    text: str
    good: bool


class Rounds:
    """Run rounds one after the other.

    :param kill: kills a service by its name
    """

    def __init__(
        self,
        cloud: operations.Cloud,
        kill: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._cloud = cloud
        self._kill = kill
        self._clock = clock
        self._sleep = sleep

    def run(self, plans: list[Plan]) -> Iterator[Result]:
        """Run rounds; each removes the objects that it created before the next one begins."""
        for plan in plans:
            yield self._run(plan)

    def _run(self, plan: Plan) -> Result:
        label = f'{plan.number}-{plan.operation}'
        subject = self._prepare(plan.operation, label)
        operation = self._cloud.start(plan.operation, label, subject.made_id if subject else '')
        self._sleep(plan.delay_sec)
        before = self._ask(operation.state)
        self._kill(plan.service)
        killed_at = self._clock()
        state = self._wait(operation.state, killed_at + GIVE_UP_SEC)
        settled_sec = self._clock() - killed_at if state.settled else None
        for remove in (operation.remove, *([subject.remove] if subject else [])):
            self.repeat(remove)
        return Result(plan, before.settled, settled_sec, state.text, state.good)

    def _prepare(self, name: str, label: str) -> operations.Operation | None:
        """Create what an operation works on, without a fault."""
        subject = self._cloud.prepare(name, f'{label}-source')
        if subject is not None:
            state = self._wait(subject.state, self._clock() + GIVE_UP_SEC)
            if not state.good:
                raise RuntimeError(f'round {label} could not be prepared: {state.text}')
        return subject

    def _wait(self, ask: Callable[[], operations.State], until: float) -> operations.State:
        while True:
            state = self._ask(ask)
            if state.settled or self._clock() > until:
                return state
            self._sleep(POLL_SEC)

    def _ask(self, ask: Callable[[], operations.State]) -> operations.State:
        try:
            return ask()
        except _UNREACHABLE as error:
            return operations.State(False, f'the cloud does not answer: {error}')

    def repeat(self, remove: Callable[[], None]) -> None:
        """Remove objects, also if the cloud does not answer for a while."""
        deadline = self._clock() + GIVE_UP_SEC
        while True:
            try:
                return remove()
            except _REPEATED:
                if self._clock() > deadline:
                    raise
            self._sleep(POLL_SEC)
