# SPDX-License-Identifier: Apache-2.0
"""The exporters of both kinds of process, from their configurations."""

from unittest import mock

import fixtures
import yaml
from oslo_config import cfg
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.conf import metrics as metrics_conf
from trove_ceph.conf import storage as storage_conf
from trove_ceph.metrics import catalog, cluster, storage_exporter
from trove_ceph.taskmanager import metrics_exporter
from trove_ceph.tests.unit.tiers import sample


class TaskmanagerTest(base.BaseTestCase):
    def configure(self, **values):
        conf = cfg.ConfigOpts()
        metrics_conf.register_taskmanager(conf)
        conf([])
        for name, value in values.items():
            conf.set_override(name, value, 'trove_ceph_metrics')
        return conf

    def test_nothing_is_exported_by_default(self):
        exporter = metrics_exporter.MetricsExporter(self.configure())
        exporter.start()
        self.assertIsNone(exporter._exporter)

    def test_started_once(self):
        exporter = metrics_exporter.MetricsExporter(self.configure(enabled=True, port=0))
        self.addCleanup(exporter._exporter.stop)
        exporter.start()
        port = exporter._exporter.port
        exporter.start()
        self.assertEqual(port, exporter._exporter.port)

    def test_a_missing_package_is_told_at_the_start(self):
        conf = self.configure(enabled=True)
        # What Python does where a module is missing.
        with mock.patch.dict('sys.modules', {'trove_ceph.metrics': None}):
            error = self.assertRaises(
                exceptions.InvalidConfigurationError, metrics_exporter.MetricsExporter, conf
            )
        self.assertIn("install 'trove-ceph[metrics]'", str(error))


class StorageTest(base.BaseTestCase):
    def options(self, **values):
        conf = cfg.ConfigOpts()
        storage_conf.register(conf)
        conf([])
        for name, value in values.items():
            conf.set_override(name, value, 'trove_ceph_storage')
        return conf.trove_ceph_storage

    def test_pools_of_the_tiers_file(self):
        path = self.useFixture(fixtures.TempDir()).join('tiers.yaml')
        with open(path, 'w') as file:
            yaml.safe_dump(sample.changed(), file)
        options = self.options(tiers_file=path, ceph_user='client.storage')
        self.assertEqual(
            [
                cluster.MeasuredPool('volumes-fast', 'fast', 'data', True),
                cluster.MeasuredPool('replicas', 'follower', 'replica', True),
                cluster.MeasuredPool('vault', 'vault', 'vault', True),
                cluster.MeasuredPool('vault-data', 'vault', 'vault', False),
            ],
            list(storage_exporter.measured_pools(options)),
        )

    def test_pools_without_a_tiers_file(self):
        options = self.options(pools=['a'], data_pools=['b'])
        self.assertEqual(
            [cluster.MeasuredPool('a', '', '', True), cluster.MeasuredPool('b', '', '', False)],
            list(storage_exporter.measured_pools(options)),
        )


class CatalogTest(base.BaseTestCase):
    def test_names_are_unique_and_ours(self):
        names = [one.name for each in catalog.METRICS.values() for one in each]
        self.assertEqual(sorted(set(names)), sorted(names))
        for name in names:
            self.assertRegex(name, '^trove_ceph_[a-z_]+$')

    def test_counters_end_in_total(self):
        for each in catalog.METRICS.values():
            for one in each:
                self.assertEqual(one.kind == 'counter', one.name.endswith('_total'), one.name)
