# SPDX-License-Identifier: Apache-2.0
"""The dashboard queries what is exported, in Prometheus' language."""

import json
import re
from pathlib import Path

import fixtures
import yaml
from oslotest import base

from trove_ceph.metrics import catalog
from trove_ceph.tests.unit.monitoring import promtool

DASHBOARD = promtool.DIRECTORY / 'dashboard.json'
METRIC = re.compile(r'\btrove_ceph_[a-z_]+')
SELECTOR = re.compile(r'(trove_ceph_[a-z_]+)\{([^}]*)\}')
GROUPED = re.compile(r'\bby \(([^)]*)\)')
#: Labels that Prometheus and histograms add.
ADDED = {'instance', 'job', 'le'}


def panels():
    return [one for one in json.loads(DASHBOARD.read_text())['panels'] if one['type'] != 'row']


def expressions():
    return [target['expr'] for one in panels() for target in one['targets']]


class DashboardTest(base.BaseTestCase):
    def check(self, *found):
        """Return whether Prometheus can parse expressions."""
        rules = [{'record': f'r:{number}', 'expr': one} for number, one in enumerate(found)]
        path = self.useFixture(fixtures.TempDir()).join('rules.yml')
        Path(path).write_text(yaml.safe_dump({'groups': [{'name': 'g', 'rules': rules}]}))
        return promtool.run('check', 'rules', path)

    def test_prometheus_parses_each_expression(self):
        succeeded, text = self.check(*expressions())
        self.assertTrue(succeeded, text)
        succeeded, text = self.check('max by (trove_ceph_backups')
        self.assertFalse(succeeded, text)

    def test_metrics_and_labels_are_exported(self):
        labels = {
            name: {*one.labels, *ADDED}
            for each in catalog.METRICS.values()
            for one in each
            for name in one.series
        }
        for expression in expressions():
            names = METRIC.findall(expression)
            self.assertTrue(names, expression)
            for name in names:
                self.assertIn(name, labels, expression)
                for group in GROUPED.findall(expression):
                    self.assertLessEqual(set(group.split(', ')), labels[name], expression)
            for name, text in SELECTOR.findall(expression):
                used = {each.split('=')[0].strip() for each in text.split(', ')}
                self.assertLessEqual(used, labels[name], expression)

    def test_panels_do_not_overlap(self):
        cells = [
            (x, y)
            for one in json.loads(DASHBOARD.read_text())['panels']
            for x in range(one['gridPos']['x'], one['gridPos']['x'] + one['gridPos']['w'])
            for y in range(one['gridPos']['y'], one['gridPos']['y'] + one['gridPos']['h'])
        ]
        self.assertEqual(len(cells), len(set(cells)))
        self.assertLessEqual(max(x for x, _ in cells), 23)

    def test_ids_are_unique(self):
        ids = [one['id'] for one in json.loads(DASHBOARD.read_text())['panels']]
        self.assertEqual(len(ids), len(set(ids)))

    def test_a_panel_takes_its_data_source_from_the_variable(self):
        names = [one['name'] for one in json.loads(DASHBOARD.read_text())['templating']['list']]
        self.assertIn('datasource', names)
        for one in panels():
            self.assertEqual('${datasource}', one['datasource']['uid'], one['title'])
