# SPDX-License-Identifier: Apache-2.0
"""Published figures and ratios: complete, consistent, and only beside what they belong to."""

import re

from oslotest import base

from trove_ceph.tests.unit.bench import sample
from trove_ceph_bench import fio, result_groups, results, workloads
from trove_ceph_bench.report import references

RATIO = {'name': 'r', 'of': 'ours', 'to': 'stock'}


def number(text):
    return float(text.replace(' ', ''))


class PublishedTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.known = references.published()

    def test_each_is_bound_to_a_known_workload_or_job_and_metric(self):
        for entry in self.known['figures'] + self.known['ratios']:
            self.assertIn(entry['source'], self.known['sources'])
            if 'job' in entry:
                self.assertIn(entry['job'], fio.JOBS)
                self.assertEqual('iops', entry['metric'])
            else:
                self.assertEqual(set(), set(entry['workloads']) - set(workloads.names()))
                self.assertIn(entry['metric'], result_groups.METRICS)

    def test_ratios_are_computed_from_their_sources(self):
        computed = 0
        for ratio in self.known['ratios']:
            quotient = re.fullmatch(r'([\d .]+) / ([\d .]+) \S+', ratio['from'])
            times = re.search(r'(\d+) times( lower)?', ratio['from'])
            if quotient:
                value = number(quotient[1]) / number(quotient[2])
            elif times:
                value = 1 / int(times[1]) if times[2] else int(times[1])
            else:
                continue
            computed += 1
            self.assertAlmostEqual(1, ratio['value'] / value, delta=0.003)
        self.assertEqual(18, computed)

    def test_all_of_flash_to_hdd(self):
        found = {
            (name, ratio['metric']): ratio['value']
            for ratio in self.known['ratios']
            for name in ratio['workloads']
            if ratio['id'] == 'redhat-flash-to-hdd'
        }
        self.assertEqual((16, 14), (found['write', 'tps'], found['write', 'qps']))
        self.assertEqual(
            {('write', metric) for metric in ('tps', 'qps', 'avg_ms', 'p99_ms')}
            | {('read', metric) for metric in ('avg_ms', 'p99_ms')}
            | {('mixed-70-30', metric) for metric in ('tps', 'qps', 'avg_ms', 'p99_ms')},
            set(found),
        )


class BuildTest(base.BaseTestCase):
    def build(self, *names, ratios=(), job=None):
        runs = []
        for name in names:
            for variant in ('ours', 'stock'):
                config = sample.load_config(variant)
                config['workload'] = {'name': name, 'script': 's', 'options': {}}
                run = {
                    'complete': True,
                    'totals': {'tps': 10.0, 'qps': 100.0, 'latency_ms': {'avg': 2.0, 'p99': 9.0}},
                    'rbd': {'totals': {'write_iops_per_gib': 12.0}},
                    'fio': {job: {'iops': 5000.0}} if job else None,
                }
                runs += [results.Run(0, config, run, {}, None)]
        found = result_groups.group(result_groups.gather(runs))
        return references.build(found, {'ratios': list(ratios)}, result_groups.label)

    def ids(self, built):
        return {figure['id'] for figure in built['figures']}

    def test_figures_of_measured_workloads_only(self):
        self.assertEqual({'intel-read'}, self.ids(self.build('intel-read')))
        self.assertEqual(8, len(self.ids(self.build('seagate'))))
        self.assertEqual(set(), self.ids(self.build('mixed-75-25')))

    def test_our_own_figure_stands_beside_the_published_one(self):
        (figure,) = self.build('intel-read')['figures']
        self.assertEqual(
            [('ours', 100.0), ('stock', 100.0)],
            sorted((each['variant'], each['value']) for each in figure['measured']),
        )

    def test_classes_of_iops_per_gb_are_held_against_writes_only(self):
        figures = self.build('write')['figures']
        self.assertEqual(
            {'30', '3', '3\u201310', '4\u20135'}, {figure['value'] for figure in figures}
        )
        self.assertEqual(
            {12.0}, {each['value'] for figure in figures for each in figure['measured']}
        )
        self.assertEqual([], self.build('read')['figures'])

    def test_figures_of_a_fio_job(self):
        built = self.build('read', job='randwrite-4k-qd64')
        self.assertEqual({'intel-4k-ceph', 'intel-4k-p3700'}, self.ids(built))
        self.assertEqual(
            [5000.0, 5000.0], [each['value'] for each in built['figures'][0]['measured']]
        )

    def test_a_ratio_for_writes_is_not_shown_beside_reads(self):
        ratio = RATIO | {'reference': 'redhat-flash-to-hdd'}
        rows = self.build('read', 'write', ratios=[ratio])['measured']
        shown = {
            (row['where'].partition(' ')[0], row['metric'], row['reference']['value'])
            for row in rows
        }
        self.assertEqual(
            {
                ('read', 'avg_ms', 0.0667),
                ('read', 'p99_ms', 0.0667),
                ('write', 'tps', 16),
                ('write', 'qps', 14),
                ('write', 'avg_ms', 0.005),
                ('write', 'p99_ms', 0.00133),
            },
            shown,
        )

    def test_a_ratio_without_a_published_one_for_its_workload(self):
        ratio = RATIO | {'reference': 'seagate-replica-2'}
        (row,) = self.build('write', ratios=[ratio])['measured']
        self.assertEqual(('tps', None), (row['metric'], row['reference']))
        self.assertAlmostEqual(1.0, row['ratio']['value'])

    def test_unknown_reference(self):
        built = self.build('write', ratios=[RATIO | {'reference': 'nobody'}])
        self.assertEqual(['nobody'], built['unknown'])
