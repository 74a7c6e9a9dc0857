# SPDX-License-Identifier: Apache-2.0
"""A tenant loads the database with sysbench; it is as fast as the configuration requires."""

from tempest import config
from tempest.lib import decorators

from trove_ceph_tempest_plugin.tests import base

CONF = config.CONF


class LoadScenario(base.DatabaseTest):
    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a002')
    def test_load_read(self):
        self._measure('read')

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a003')
    def test_load_write(self):
        self._measure('write')

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a004')
    @decorators.attr(type='smoke')
    def test_load_mixed(self):
        self._measure('mixed-70-30')

    def _measure(self, workload):
        options = CONF.trove_ceph
        load = self.prepare_load(workload)
        figures = load.run(options.sysbench_threads, options.sysbench_seconds)
        self.record(workload, figures)
        self.assertGreater(figures['tps'], 0)
        self.assertGreaterEqual(figures['tps'], options.minimum_tps.get(workload, 0))
        allowed_ms = options.maximum_p95_ms.get(workload)
        if allowed_ms:
            self.assertLessEqual(figures['p95_ms'], allowed_ms)
