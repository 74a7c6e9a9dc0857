# SPDX-License-Identifier: Apache-2.0
"""The exporter over HTTP, as Prometheus sees it."""

import socket
import urllib.request

from oslo_config import cfg
from oslotest import base
from prometheus_client import parser

from trove_ceph import operation_events
from trove_ceph.conf import metrics as metrics_conf
from trove_ceph.metrics import exporter, sampling
from trove_ceph.operation_events import Operation


def broken():
    raise RuntimeError('the database is gone')


class ExporterTest(base.BaseTestCase):
    def make(self, *samplers, port=0):
        conf = cfg.ConfigOpts()
        metrics_conf.register_storage(conf)
        conf([])
        self.assertFalse(conf.trove_ceph_metrics.enabled)
        self.assertEqual('127.0.0.1', conf.trove_ceph_metrics.address)
        conf.set_override('port', port, 'trove_ceph_metrics')
        made = exporter.Exporter(conf.trove_ceph_metrics, [Operation.STORAGE_COPY], samplers)
        self.addCleanup(made.stop)
        return made

    def scrape(self, made):
        url = f'http://127.0.0.1:{made.port}/metrics'
        with urllib.request.urlopen(url, timeout=60) as answer:
            text = answer.read().decode()
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples
        }

    def test_a_source_that_fails_does_not_break_the_scrape(self):
        sampler = sampling.Sampler('tables', broken, 3600)
        sampler.sample()
        made = self.make(sampler)
        self.assertTrue(made.start())
        with operation_events.reported(Operation.STORAGE_COPY):
            pass
        found = self.scrape(made)
        self.assertEqual(0, found['trove_ceph_figures_up', 'tables'])
        self.assertLessEqual(1, found['trove_ceph_figures_errors_total', 'tables'])
        name = 'trove_ceph_operation_seconds_count'
        self.assertEqual(1, found[name, 'storage.copy', 'end'])
        self.assertIn(('process_resident_memory_bytes',), found)

    def test_a_port_that_is_in_use_does_not_stop_the_process(self):
        with socket.create_server(('127.0.0.1', 0)) as other:
            made = self.make(port=other.getsockname()[1])
            self.assertFalse(made.start())
        made.stop()
