# SPDX-License-Identifier: Apache-2.0
"""Read figures in the background, so that a scrape costs no request and waits for nothing.

Prometheus may scrape as often as it likes, and a database or a Ceph cluster that does not answer
cannot break a scrape. Figures that could not be read are left out rather than repeated, so that no
alert is silent because of old values; ``trove_ceph_figures_up`` tells so.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from oslo_log import log as logging
from prometheus_client import core

from trove_ceph import exceptions
from trove_ceph.metrics.descriptions import Description, Kind

LOG = logging.getLogger(__name__)

UP = Description(
    'trove_ceph_figures_up',
    'Whether figures of the source could be read at the last attempt and are not too old; without '
    'it, the metrics of the source are missing.',
    ('source',),
)
AGE = Description(
    'trove_ceph_figures_age_seconds',
    'Time since figures of the source were last read.',
    ('source',),
)
READ_SECONDS = Description(
    'trove_ceph_figures_read_seconds',
    'How long the last successful read took.',
    ('source',),
)
ERRORS = Description(
    'trove_ceph_figures_errors_total',
    'Reads that failed since the start of the process.',
    ('source',),
    Kind.COUNTER,
)
#: Of a file, which the node exporter serves for ever; a process exports the age instead.
READ_AT = Description(
    'trove_ceph_figures_read_timestamp_seconds',
    'When the figures in the file were read, in seconds since 1970.',
    ('source',),
)
DESCRIPTIONS = (UP, AGE, READ_SECONDS, ERRORS)

#: Figures that are older than this number of intervals are not exported.
_MOST_INTERVALS = 3


@dataclasses.dataclass(frozen=True)
class _Sample:
    metrics: Sequence[core.Metric]
    read_at: float
    read_sec: float


class Sampler:
    """Metrics of one source, read every few seconds; a collector of prometheus_client.

    :param source: the name of the source in the metrics
    :param read: returns the metrics, and may take long or raise
    :param interval_sec: from the end of a read to the next one
    """

    def __init__(
        self,
        source: str,
        read: Callable[[], Iterable[core.Metric]],
        interval_sec: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._source = source
        self._read = read
        self._interval_sec = interval_sec
        self._clock = clock
        self._lock = threading.Lock()
        self._sample: _Sample | None = None
        self._has_failed = False
        self._errors = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f'metrics-{source}', daemon=True)

    def start(self) -> None:
        """Start to read, at once."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more; do not wait for a read that is under way."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.sample()
            self._stopping.wait(self._interval_sec)

    def sample(self) -> None:
        """Read the figures once; log what the read raises."""
        began = self._clock()
        try:
            metrics = tuple(self._read())
        except Exception as error:
            is_known = isinstance(error, exceptions.TroveCephError)
            LOG.warning(
                'Metrics of %s cannot be read: %s', self._source, error, exc_info=not is_known
            )
            with self._lock:
                self._has_failed = True
                self._errors += 1
            return
        now = self._clock()
        with self._lock:
            self._sample = _Sample(metrics, now, now - began)
            self._has_failed = False

    def collect(self) -> Iterator[core.Metric]:
        """Yield the last figures, unless they are out of date."""
        key = (self._source,)
        with self._lock:
            sample, has_failed, errors = self._sample, self._has_failed, self._errors
        age = None if sample is None else self._clock() - sample.read_at
        is_up = age is not None and not has_failed and age <= _MOST_INTERVALS * self._interval_sec
        yield UP.gauge({key: int(is_up)})
        yield AGE.gauge({} if age is None else {key: age})
        yield READ_SECONDS.gauge({} if sample is None else {key: sample.read_sec})
        errors_metric = core.CounterMetricFamily(ERRORS.name, ERRORS.text, labels=ERRORS.labels)
        errors_metric.add_metric(key, errors)
        yield errors_metric
        if is_up and sample is not None:
            yield from sample.metrics
