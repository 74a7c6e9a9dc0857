# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage metrics``: the figures of the tables in the text format of Prometheus."""

import argparse
from collections.abc import Iterator, Sequence

import prometheus_client
from prometheus_client import core

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, database

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
        """Print or write the metrics."""
        with database.connect(parsed_args.config_file) as facade:
            from trove_ceph.db import figures, transactions
            from trove_ceph.metrics import tables

            found = tuple(tables.metrics_of(figures.read(transactions.Transactions(facade))))
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
    """Metrics that were read once."""

    def __init__(self, found: Sequence[core.Metric]):
        self._found = found

    def collect(self) -> Iterator[core.Metric]:
        yield from self._found
