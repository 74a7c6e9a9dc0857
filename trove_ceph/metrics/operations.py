# SPDX-License-Identifier: Apache-2.0
"""Metrics of the operations of one process, from their events."""

from collections.abc import Callable, Collection
from typing import Any

import prometheus_client

from trove_ceph import operation_events
from trove_ceph.metrics.descriptions import Description, Kind
from trove_ceph.operation_events import Event, Operation, Phase

SECONDS = Description(
    'trove_ceph_operation_seconds',
    'Durations of the operations that ended in this process. The outcome is "end", "error" or, if '
    'another worker or attempt continues it or it is not wanted any more, "interrupted".',
    ('operation', 'outcome'),
    Kind.HISTOGRAM,
)
STEP_SECONDS = Description(
    'trove_ceph_operation_step_seconds',
    'Durations of the steps of operations that ended in this process.',
    ('operation', 'step'),
    Kind.HISTOGRAM,
)
FAILURES = Description(
    'trove_ceph_operation_failures_total',
    'Operations, and attempts of operations that go on, that failed in this process, by the class '
    'of the error.',
    ('operation', 'cause'),
    Kind.COUNTER,
)
RUNNING = Description(
    'trove_ceph_operations_running',
    'Operations that this process carries out now. Those that may take hours, and go on in other '
    'processes, are counted by trove_ceph_replacements and trove_ceph_replicas instead.',
    ('operation',),
)
DESCRIPTIONS = (SECONDS, STEP_SECONDS, FAILURES, RUNNING)

#: From the attachment of a volume to the copy of a large one.
_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 10800, 36000)
_ENDS = (Phase.END, Phase.ERROR, Phase.INTERRUPTED)
#: They start in one process and may end in another.
_ACROSS_PROCESSES = (
    *(Operation.FAILOVER, Operation.RESIZE, Operation.REBUILD, Operation.REPLICA_REPROVISION),
    Operation.POLICY_RUN,
)


class OperationMetrics:
    """The metrics of operations, which follow the events of this process.

    :param operations: those that this kind of process carries out; each has its series from the
        start, since an increase from nothing would not be seen
    """

    def __init__(
        self,
        registry: prometheus_client.CollectorRegistry,
        operations: Collection[Operation],
    ):
        def labelled(kind: Callable[..., Any], description: Description, **more: Any) -> Any:
            # A counter's name is given without its suffix.
            name = description.name.removesuffix('_total')
            return kind(name, description.text, description.labels, registry=registry, **more)

        self._seconds = labelled(prometheus_client.Histogram, SECONDS, buckets=_BUCKETS)
        self._step_seconds = labelled(prometheus_client.Histogram, STEP_SECONDS, buckets=_BUCKETS)
        self._failures = labelled(prometheus_client.Counter, FAILURES)
        self._running = labelled(prometheus_client.Gauge, RUNNING)
        for operation in operations:
            for outcome in _ENDS:
                self._seconds.labels(operation, outcome)
            if operation not in _ACROSS_PROCESSES:
                self._running.labels(operation)
        self._operations = frozenset(operations)

    def follow(self) -> Callable[[], None]:
        """Follow the events of this process; return a function that ends it."""
        return operation_events.subscribe(self.observe)

    def observe(self, event: Event) -> None:
        """Count an event."""
        operation = event.operation
        if operation not in self._operations:
            return
        if event.phase in (Phase.ERROR, Phase.RETRY):
            self._failures.labels(operation, event.cause).inc()
        if event.phase is Phase.STEP:
            self._step_seconds.labels(operation, event.step).observe(event.seconds)
        elif event.phase in _ENDS and event.seconds is not None:
            self._seconds.labels(operation, event.phase).observe(event.seconds)
        if operation not in _ACROSS_PROCESSES and event.phase in (Phase.START, *_ENDS):
            self._running.labels(operation).inc(1 if event.phase is Phase.START else -1)
