# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage metrics``: the figures of the tables in the text format of Prometheus."""

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import prometheus_client
from prometheus_client import core

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, database

if TYPE_CHECKING:
    from trove_ceph.db import figures

_EXIT_CODES = """\
exit status:
  0  the metrics were printed or written
  2  the command line is wrong
  3  the database did not answer, or a file cannot be read or written
"""
_EXAMPLES = """\
examples:
  Print the metrics:
    trove-ceph-manage metrics

  Write them for the textfile collector of the node exporter, from a timer each minute:
    trove-ceph-manage metrics --output /var/lib/node-exporter/trove-ceph.prom
"""

_STATISTICS: Sequence[tuple[str, Callable[[Sequence[float]], float]]] = (
    ('mean', statistics.fmean),
    ('max', max),
)


class Metrics(base.Command):
    """Print metrics of warm guests, replacements of servers and replicas, for Prometheus.

    They are computed from trove_ceph's tables; run the command on one host only. No label has the
    id or the name of an instance or a project.
    """

    examples = _EXAMPLES
    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        database.add_option(parser)
        parser.add_argument(
            '--output',
            metavar='PATH',
            help='write to this file, whose name must end in ".prom" for the node exporter, and '
            'replace it at once (default: print)',
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print or write the metrics."""
        with database.connect(parsed_args.config_file) as facade:
            from trove_ceph.db import figures, transactions

            found = figures.read(transactions.Transactions(facade))
        registry = prometheus_client.CollectorRegistry(auto_describe=False)
        registry.register(_Collector(found))
        if not parsed_args.output:
            self.app.stdout.write(prometheus_client.generate_latest(registry).decode())
            return
        try:
            prometheus_client.write_to_textfile(parsed_args.output, registry)
        except OSError as error:
            raise exceptions.ServiceUnavailableError(
                f'{parsed_args.output} cannot be written: {error}'
            ) from error


class _Collector:
    """The figures as metrics. All are gauges: the tables forget old rows."""

    def __init__(self, found: 'figures.Figures'):
        self._found = found

    def collect(self) -> Iterator[core.Metric]:
        found = self._found
        yield _gauge('trove_ceph_guests', 'Warm guests.', ('pool', 'state'), found.guests)
        yield _gauge(
            'trove_ceph_guest_requests',
            'Requests for warm guests within the last two windows of demand; "missed" got none.',
            ('pool', 'outcome'),
            found.requests,
        )
        yield _durations(
            'trove_ceph_guest_bind_seconds',
            'Time from the claim of a guest to its binding, of those requests.',
            'pool',
            found.bind_sec,
        )
        yield _gauge(
            'trove_ceph_replacements',
            'Replacements of the servers of instances.',
            ('kind', 'requested_by', 'state'),
            found.replacements,
        )
        yield _durations(
            'trove_ceph_replacement_seconds',
            'Time from request to end, of the replacements completed within the last day.',
            'kind',
            found.replacement_sec,
        )
        yield _gauge(
            'trove_ceph_replacement_oldest_open_seconds',
            'Age of the oldest replacement that has not ended; 0 if there is none.',
            ('kind',),
            {(kind,): seconds for kind, seconds in found.oldest_open_sec.items()},
        )
        yield from _of_replicas(found.replicas)


def _of_replicas(found: 'figures.ReplicaFigures') -> Iterator[core.Metric]:
    counts = {(state,): count for state, count in found.counts.items()}
    yield _gauge('trove_ceph_replicas', 'Replicas.', ('state',), counts)
    yield _gauge(
        'trove_ceph_replicas_not_replicating',
        'Replicas that do not replicate by their last look, without those being re-provisioned.',
        (),
        {(): found.not_replicating},
    )
    for name, text, seconds in (
        ('lag', 'Time by which replicas are behind their sources.', found.lag_sec),
        ('clone_age', 'Age of the clones of replicas.', found.clone_age_sec),
    ):
        yield _gauge(
            f'trove_ceph_replica_{name}_seconds',
            text,
            ('statistic',),
            {(statistic,): compute(seconds) for statistic, compute in _STATISTICS if seconds},
        )
    yield _gauge(
        'trove_ceph_replica_own_bytes',
        'Space of all replicas that they do not share with their sources, before replication.',
        (),
        {(): found.own_bytes},
    )
    yield _gauge(
        'trove_ceph_replica_reprovisionings',
        'Replicas whose last re-provisioning was completed within the last day.',
        ('cause',),
        {(cause,): count for cause, count in found.reprovisioned.items()},
    )
    yield _gauge(
        'trove_ceph_replica_reprovisionings_failed',
        'Replicas whose last re-provisioning has failed.',
        (),
        {(): found.failed},
    )


def _gauge(
    name: str, text: str, labels: Sequence[str], values: Mapping[Any, float]
) -> core.GaugeMetricFamily:
    """Return a gauge with a sample for each combination of the values of its labels."""
    metric = core.GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        metric.add_metric([str(one) for one in key], value)
    return metric


def _durations(
    name: str, text: str, label: str, seconds: Mapping[Any, Sequence[float]]
) -> core.GaugeMetricFamily:
    """Return the mean and the maximum of durations; nothing where there is none."""
    return _gauge(
        name,
        text,
        (label, 'statistic'),
        {
            (key, statistic): compute(each)
            for key, each in seconds.items()
            for statistic, compute in _STATISTICS
        },
    )
