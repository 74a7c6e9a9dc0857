# SPDX-License-Identifier: Apache-2.0
"""Metrics of what tiers promise: latency beside its objective, and the limits of volumes."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from oslo_log import log as logging
from prometheus_client import core

from trove_ceph import exceptions
from trove_ceph.metrics.descriptions import STATISTICS, Description
from trove_ceph.storage import backend, image_types
from trove_ceph.tiers import tier_types
from trove_ceph.tiers.qos import service as qos_service

LOG = logging.getLogger(__name__)

_MILLISECOND = 1e-3

OBJECTIVE = Description(
    'trove_ceph_tier_latency_objective_seconds',
    'The objective for the mean time of a write: latency_ms of the tier. Missing without it.',
    ('tier',),
)
LATENCY = Description(
    'trove_ceph_tier_latency_seconds',
    'Mean time of requests on the OSDs within some seconds, without the network: the mean over the '
    'requests of the 64 images of the tier with most writes, and the mean of the slowest of them. '
    'Missing if there was no request.',
    ('tier', 'request', 'statistic'),
)
REQUESTS = Description(
    'trove_ceph_tier_requests_per_second',
    'Requests of these images to the OSDs within some seconds.',
    ('tier', 'request'),
)
QOS_VOLUMES = Description(
    'trove_ceph_qos_volumes', 'Volumes in the tiers, at the last sweep over their limits.'
)
QOS_DRIFT = Description(
    'trove_ceph_qos_drift',
    'Volumes whose limits were not those of their tier at the last sweep, which corrected them.',
)
QOS_FAILURES = Description(
    'trove_ceph_qos_failures', 'Volumes whose limits the last sweep could not set.'
)
QOS_AGE = Description(
    'trove_ceph_qos_sweep_age_seconds', 'Time since the last sweep ended that was not aborted.'
)
DESCRIPTIONS = tuple(one for one in globals().values() if isinstance(one, Description))


class Latencies:
    """The latencies of tiers beside their objectives.

    :param load: returns the tiers by name; called at each read
    """

    def __init__(self, storage: backend.Backend, load: Callable[[], Mapping[str, tier_types.Tier]]):
        self._storage = storage
        self._load = load

    def read(self) -> Iterator[core.Metric]:
        """Yield the metrics; those of a pool that Ceph cannot measure are missing.

        :raises InvalidTiersError: the tiers file is invalid
        """
        tiers = self._load()
        yield OBJECTIVE.gauge(
            {
                (name,): tier.latency_ms * _MILLISECOND
                for name, tier in tiers.items()
                if tier.latency_ms is not None
            }
        )
        latencies: dict[tuple[str, str, str], float] = {}
        rates: dict[tuple[str, str], float] = {}
        for name, tier in tiers.items():
            try:
                found = self._storage.busiest_images(tier.pool)
            except exceptions.StorageError as error:
                LOG.warning('The latency of tier %s is missing: %s', name, error)
                continue
            for request, samples in _by_request(found):
                rates[name, request] = sum(rate for rate, _ in samples)
                for statistic, _ in STATISTICS if rates[name, request] else ():
                    latencies[name, request, statistic] = _condense(statistic, samples)
        yield LATENCY.gauge(latencies)
        yield REQUESTS.gauge(rates)


def _by_request(
    found: Sequence[image_types.ImagePerformance],
) -> Iterable[tuple[str, Sequence[tuple[float, float]]]]:
    """Return rate and mean duration for each image, by the kind of request."""
    return (
        ('read', [(one.reads_per_sec, one.read_sec) for one in found if one.reads_per_sec]),
        ('write', [(one.writes_per_sec, one.write_sec) for one in found if one.writes_per_sec]),
    )


def _condense(statistic: str, samples: Sequence[tuple[float, float]]) -> float:
    if statistic == 'max':
        return max(seconds for _, seconds in samples)
    total = sum(rate for rate, _ in samples)
    return sum(rate * seconds for rate, seconds in samples) / total


class Limits:
    """The limits of volumes, by the last sweep of this process.

    :param service: does the sweeps
    """

    def __init__(
        self, service: qos_service.QosService, clock: Callable[[], float] = time.monotonic
    ):
        self._service = service
        self._clock = clock

    def collect(self) -> Iterator[core.Metric]:
        """Yield the metrics; none before the first sweep has ended."""
        swept = self._service.last_sweep
        if swept is None:
            return
        report = swept.report
        yield QOS_VOLUMES.gauge({(): report.volumes})
        yield QOS_DRIFT.gauge({(): len(report.changes)})
        yield QOS_FAILURES.gauge({(): len(report.failures)})
        yield QOS_AGE.gauge({(): self._clock() - swept.ended_at})
