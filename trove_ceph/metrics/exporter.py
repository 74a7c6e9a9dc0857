# SPDX-License-Identifier: Apache-2.0
"""Serve the metrics of a process to Prometheus, over HTTP."""

from collections.abc import Collection, Sequence
from typing import Any

import prometheus_client
from oslo_config import cfg
from oslo_log import log as logging

from trove_ceph.metrics import operations, sampling
from trove_ceph.operation_events import Operation

LOG = logging.getLogger(__name__)


class Exporter:
    """The metrics of one process.

    :param options: those of ``[trove_ceph_metrics]``
    :param own: the operations that this kind of process carries out
    :param samplers: the sources of figures that are read in the background
    """

    def __init__(
        self,
        options: cfg.ConfigOpts.GroupAttr,
        own: Collection[Operation],
        samplers: Sequence[sampling.Sampler] = (),
    ):
        self._address = options.address
        self._port = options.port
        self._samplers = samplers
        # One of its own: the default one also has what other libraries of the process register.
        self.registry = prometheus_client.CollectorRegistry(auto_describe=False)
        prometheus_client.ProcessCollector(registry=self.registry)
        self._operations = operations.OperationMetrics(self.registry, own)
        for sampler in samplers:
            self.registry.register(sampler)
        self._server: Any = None

    def start(self) -> bool:
        """Serve, and read figures in the background; return whether the address can be used.

        A process that cannot export its metrics does its work all the same.
        """
        try:
            self._server, _ = prometheus_client.start_http_server(
                self._port, self._address, self.registry
            )
        except OSError as error:
            LOG.error(
                'No metrics are exported: %s port %d cannot be used: %s; each process on a host '
                'needs a port of its own in [trove_ceph_metrics] port',
                *(self._address, self._port, error),
            )
            return False
        self._unsubscribe = self._operations.follow()
        for sampler in self._samplers:
            sampler.start()
        LOG.info('Metrics are exported on %s port %d', self._address, self.port)
        return True

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._server.server_address[1]

    def stop(self) -> None:
        """Serve no more."""
        if self._server is None:
            return
        self._unsubscribe()
        for sampler in self._samplers:
            sampler.stop()
        self._server.shutdown()
        self._server.server_close()
        self._server = None
