# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage metrics``: the figures of the tables in the text format of Prometheus."""

import argparse
import time
from collections.abc import Iterator, Sequence

import prometheus_client
from prometheus_client import core

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, database
from trove_ceph.metrics import sampling

#: The values of the labels, as a taskmanager has them.
_SOURCE = ('tables',)

_EXIT_CODES = """\
exit status:
  0  the metrics were printed or written
  2  the command line is wrong
  3  the database did not answer, or a file cannot be read or written; the file of --output then
     says no more than trove_ceph_figures_up 0
"""
_EXAMPLES = """\
examples:
  Print the metrics:
    trove-ceph-manage metrics

  Write them for the textfile collector of the node exporter, from a timer each minute:
    trove-ceph-manage metrics --output /var/lib/node-exporter/trove-ceph.prom
"""


class Metrics(base.Command):
    """Print metrics of backups, warm guests, replacements and replicas, for Prometheus.

    They are computed from trove_ceph's tables; run the command on one host only. No label has the
    id or the name of an instance or a project. A taskmanager exports the same metrics by itself,
    with those of its operations, if [trove_ceph_metrics] enabled is set.
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
        """Print or write the metrics; a file never keeps figures that could not be read again."""
        try:
            found = _read(parsed_args.config_file)
        except Exception:
            if parsed_args.output:
                _write(parsed_args.output, _registry([sampling.UP.gauge({_SOURCE: 0})]))
            raise
        if parsed_args.output:
            _write(parsed_args.output, _registry(found))
        else:
            self.app.stdout.write(prometheus_client.generate_latest(_registry(found)).decode())


def _read(config_file: str) -> list[core.Metric]:
    """Return the figures of the tables, and when they were read."""
    with database.connect(config_file) as facade:
        from trove_ceph.db import figures, transactions
        from trove_ceph.metrics import tables

        found = tables.metrics_of(figures.read(transactions.Transactions(facade)))
        return [
            sampling.UP.gauge({_SOURCE: 1}),
            sampling.READ_AT.gauge({_SOURCE: time.time()}),
            *found,
        ]


def _registry(found: Sequence[core.Metric]) -> prometheus_client.CollectorRegistry:
    registry = prometheus_client.CollectorRegistry(auto_describe=False)
    registry.register(_Collector(found))
    return registry


def _write(path: str, registry: prometheus_client.CollectorRegistry) -> None:
    try:
        prometheus_client.write_to_textfile(path, registry)
    except OSError as error:
        raise exceptions.ServiceUnavailableError(f'{path} cannot be written: {error}') from error


class _Collector:
    """Metrics that were read once."""

    def __init__(self, found: Sequence[core.Metric]):
        self._found = found

    def collect(self) -> Iterator[core.Metric]:
        yield from self._found
