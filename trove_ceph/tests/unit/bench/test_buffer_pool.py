# SPDX-License-Identifier: Apache-2.0
"""Data that fit the buffer pool of a server that a plan makes."""

import textwrap
from pathlib import Path

import fixtures
from oslo_utils import units
from oslotest import base

from trove_ceph_bench import buffer_pool, model, plan_file

_SERVER = {'mysqld': {'rootfs': 'auto'}, 'on': {'local': '/srv'}}
_FLAVOR = {'ram_mib': 2048, 'vcpus': 2}
_CREATE = {'name': 'bench-a', 'like': 'first', 'flavor': _FLAVOR, 'volume_gib': 5}
_PLAN = """\
name: fit
description: One server that the plan makes, and one that it does not
variants:
  - name: ours
    role: subject
    target:
      server:
        mysqld: {rootfs: auto}
        options: {innodb_buffer_pool_size: 1G}
        on: {local: /srv}
  - name: stock
    role: baseline
    target: {instance: first-database}
workloads: [read]
tables: 1
"""


class PlannedTest(base.BaseTestCase):
    def test_servers(self):
        for changes, expected in (
            ({}, 128 * units.Mi),
            ({'options': {'innodb_buffer_pool_size': '600M'}}, 600 * units.Mi),
            ({'options': {'innodb_buffer_pool_size': 134217728}}, 128 * units.Mi),
            ({'my_cnf': '/etc/my.cnf'}, None),
            ({'profile': 'stock', 'flavor': _FLAVOR}, None),
            ({'profile': 'trove-ceph', 'flavor': {'ram_mib': 256, 'vcpus': 1}}, None),
            ({'profile': 'trove-ceph'}, None),
        ):
            found = buffer_pool.planned_bytes({'server': _SERVER | changes})
            self.assertEqual(expected, found, changes)

    def test_settings_of_our_guest_manager(self):
        server = _SERVER | {'profile': 'trove-ceph', 'flavor': _FLAVOR, 'volume': {'size_gib': 5}}
        found = buffer_pool.planned_bytes({'server': server})
        self.assertTrue(256 * units.Mi < found < 2 * units.Gi, found)
        self.assertEqual(found, buffer_pool.planned_bytes({'create': _CREATE, 'number': 1}))

    def test_unknown_before_the_run(self):
        for target in (
            {'instance': 'first-database'},
            {'dsn': 'mysql://root@db.example.org'},
            {'create': _CREATE | {'flavor': {'name': 'db.small'}}},
            {'create': _CREATE | {'configuration': 'small-pool'}},
        ):
            self.assertIsNone(buffer_pool.planned_bytes(target), target)

    def test_disclosed(self):
        variables = {'innodb_buffer_pool_size': '134217728'}
        disclosed = {'mysql': {'variables': variables}}
        self.assertEqual(128 * units.Mi, buffer_pool.disclosed_bytes(disclosed))
        for unknown in ({}, {'mysql': None}, {'mysql': {'variables': None}}):
            self.assertIsNone(buffer_pool.disclosed_bytes(unknown))

    def test_fits(self):
        data = model.Dataset('1 rows', 1, 1000)
        for pool_bytes, expected in ((None, False), (243_999, False), (244_000, True)):
            self.assertIs(expected, buffer_pool.fits(data, pool_bytes))


class WarningsTest(base.BaseTestCase):
    def _warnings(self, more, only=()):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'plan.yaml'
        path.write_text(_PLAN + textwrap.dedent(more))
        return list(buffer_pool.warnings(plan_file.load(str(path), {}), only))

    def test_absolute_size(self):
        (text,) = self._warnings('datasets: [512MiB, 2GiB]\n')
        self.assertTrue(
            text.startswith('512MiB: 511 MiB of data fit the buffer pool of ours, 1024')
        )

    def test_data_that_are_meant_to_fit(self):
        self.assertEqual([], self._warnings('datasets: [cached]\nbuffer_pool_mib: 64\n'))

    def test_ratio_to_another_buffer_pool(self):
        self.assertEqual(1, len(self._warnings('datasets: ["1:4"]\nbuffer_pool_mib: 64\n')))
        self.assertEqual([], self._warnings('datasets: ["1:4"]\nbuffer_pool_mib: 512\n'))

    def test_unknown_sizes(self):
        self.assertEqual([], self._warnings('datasets: ["1:4"]\nreference: stock\n'))

    def test_variants_that_do_not_run(self):
        self.assertEqual([], self._warnings('datasets: [512MiB]\n', only=['stock']))
