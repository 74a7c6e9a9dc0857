# SPDX-License-Identifier: Apache-2.0
"""The metrics of a taskmanager: its operations, and the figures of the tables."""

from typing import TYPE_CHECKING

from oslo_config import cfg
from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db import figures, transactions
from trove_ceph.operation_events import Operation

if TYPE_CHECKING:
    from trove_ceph.metrics import exporter

LOG = logging.getLogger(__name__)

OPERATIONS = tuple(one for one in Operation if not one.is_of_storage)


class MetricsExporter:
    """Exports the metrics of this process once it is started, if the configuration says so.

    :raises InvalidConfigurationError: it does, and prometheus-client is not installed
    """

    def __init__(self, conf: cfg.ConfigOpts):
        self._is_started = False
        self._exporter: exporter.Exporter | None = None
        if conf.trove_ceph_metrics.enabled:
            self._exporter = make(conf)

    def start(self) -> None:
        """Start to export; harmless when repeated."""
        if self._exporter is not None and not self._is_started:
            self._is_started = True
            self._exporter.start()


def make(conf: cfg.ConfigOpts) -> 'exporter.Exporter':
    """Return the exporter of a taskmanager, not yet started.

    :raises InvalidConfigurationError: prometheus-client is not installed
    """
    try:
        # Only here: a taskmanager without metrics does not need the package.
        from trove_ceph.metrics import exporter, sampling, tables
    except ModuleNotFoundError as error:
        raise exceptions.InvalidConfigurationError(
            f'[trove_ceph_metrics] enabled: the Python package {error.name} is missing; install '
            "'trove-ceph[metrics]', or do not enable metrics"
        ) from error
    options = conf.trove_ceph_metrics
    ages = tables.BackupAges(tuple(options.backup_age_hours), options.instance_labels)
    database = transactions.Transactions()
    sampler = sampling.Sampler(
        'tables',
        lambda: tables.metrics_of(figures.read(database), ages),
        options.interval_sec,
    )
    return exporter.Exporter(options, OPERATIONS, [sampler])
