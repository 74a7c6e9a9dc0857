# SPDX-License-Identifier: Apache-2.0
"""The plans of the reference documents from the plan to the report, with fake servers and loads."""

import io
import random
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph.tests.unit.bench import fakes, sample
from trove_ceph.tests.unit.bench.targets import test_created
from trove_ceph_bench import loads, plan_file, progress, results, targets, trove_operations
from trove_ceph_bench.report import model, page
from trove_ceph_bench.targets import created

SMALL_FLEET = (
    'scale=0.01',
    'repeats=1',
    'instances=[1, 2]',
    'variants.0.count=2',
    'variants.0.target.create.volume_gib=4',
    'variants.0.target.create.flavor={name: db.hci}',
)


class PublishedLoadsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.notes = []
        self.measured = []
        self.path = Path(self.useFixture(fixtures.TempDir()).path) / 'results'
        self.trove = test_created.fake_trove()
        for name, fake in (
            ('trove_operations.time.sleep', lambda seconds: None),
            ('targets.create', self.make),
            ('measure.measure', self.measure),
            ('measure.prefill', lambda used, data, note: self.notes.append(('fill', data.rows))),
            ('disclosure.host', lambda: {'cores': 2}),
            ('report.write', lambda store: store.path / 'report' / 'index.html'),
        ):
            self.useFixture(fixtures.MonkeyPatch(f'trove_ceph_bench.{name}', fake))
        self.useFixture(fixtures.MonkeyPatch('os.fsync', lambda descriptor: None))

    def make(self, name, spec, settings):
        inner = fakes.Target(name, self.notes)
        if 'create' not in spec:
            return inner
        operations = trove_operations.Operations(self.trove, lambda phase: None)
        return created.CreatedTarget(name, spec, inner, lambda: (self.trove, operations))

    def measure(self, used, load, directory, note, fio_jobs):
        names = [one.name for one in self.trove.instances.listed]
        self.measured.append((load.workload.name, load.threads, len(used), names))
        config = sample.load_config('ours', 'read', 16)
        return sample.load_run(config, random.Random(load.workload.name)) | {
            'warmup_sec': load.warmup_sec
        }

    def run_plan(self, name, *settings):
        plan = plan_file.load(name, {'BENCH_INSTANCE': 'shop'}, settings)
        self.store = results.Store(self.path).create(plan.text)
        display = progress.Progress(io.StringIO())
        return loads.LoadRunner(plan, self.store, display, targets.Settings({})).run()

    def test_the_fleet_is_created_measured_and_removed(self):
        outcome = self.run_plan('hci-fleet', *SMALL_FLEET)

        self.assertEqual((6, []), (outcome.measured, outcome.failures))
        fleet = ['shop', 'bench-fleet-1', 'bench-fleet-2']
        self.assertEqual(
            [
                (workload, 16, count, fleet)
                for count in (1, 2)
                for workload in ('write', 'read', 'mixed-70-30')
            ],
            self.measured,
        )
        self.assertEqual(['shop'], [one.name for one in self.trove.instances.listed])
        # A hundredth of 75 GiB in ten tables.
        self.assertEqual([('fill', 330043)], [note for note in self.notes if note[0] == 'fill'])

    def test_the_division_of_cpus_is_switched_before_each_run(self):
        trace = self.path.parent / 'trace'
        program = self.path.parent / 'divide'
        program.write_text(f'#!/bin/sh\necho "$1" >> {trace}\n')
        program.chmod(0o755)
        self.useFixture(fixtures.EnvironmentVariable('BENCH_HCI', str(program)))
        outcome = self.run_plan('hci-split', 'scale=0.01', 'repeats=1', 'workloads=[write]')
        self.assertEqual((12, []), (outcome.measured, outcome.failures))
        self.assertEqual(['lift', 'apply'] * 6 + ['apply'], trace.read_text().split())
        self.assertEqual(
            [1, 1, 2, 2, 3, 3, 4, 4, 6, 6, 8, 8], [at_once for _, _, at_once, _ in self.measured]
        )
        (_, _, _, names) = self.measured[-1]
        self.assertEqual(9, len(names))
        self.assertEqual(['shop'], [one.name for one in self.trove.instances.listed])

    def test_the_division_of_cpus_needs_a_command(self):
        self.useFixture(fixtures.EnvironmentVariable('BENCH_HCI'))
        outcome = self.run_plan('hci-split', 'repeats=1', 'workloads=[write]')
        self.assertEqual(0, outcome.measured)
        log = (self.path / 'prepare-decoupled.log').read_text()
        self.assertIn('BENCH_HCI: is not set. Set it to a command', log)

    def test_the_same_command_resumes_and_creates_no_fleet_for_nothing(self):
        self.run_plan('hci-fleet', *SMALL_FLEET)
        requests = len(self.trove.instances.requests)
        outcome = self.run_plan('hci-fleet', *SMALL_FLEET)
        self.assertEqual((0, 6), (outcome.measured, outcome.present))
        self.assertEqual(requests, len(self.trove.instances.requests))

    def test_the_report_of_a_reduced_load_says_so(self):
        outcome = self.run_plan('intel', 'scale=0.001', 'repeats=1', 'instances=[1, 2]')
        self.assertEqual((6, []), (outcome.measured, outcome.failures))
        self.assertEqual({8}, {threads for _, threads, _, _ in self.measured})

        built = model.build(self.store)
        text = page.markdown(built)
        self.assertIn('14000000 rows at scale 0.001', text)
        self.assertTrue(any('Reduced data' in each['text'] for each in built['caveats']))
        self.assertEqual(
            {'intel-read', 'intel-write', 'intel-mixed'},
            {figure['id'] for figure in built['references']['figures']},
        )
        self.assertIn('2 366 000 QPS', text)
        self.assertEqual([1, 2], built['instance_sweeps'][0]['values'])
