# SPDX-License-Identifier: Apache-2.0
import json
import logging
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import rbd_pool
from trove_ceph.tests.unit.bench import recorded
from trove_ceph_bench import fio, model


class ParseTest(base.BaseTestCase):
    def test_reads(self):
        found = fio.parse(recorded.text('randread-16k-qd16.json'))
        self.assertEqual((2453.55, 38.337), (found['iops'], found['mib_s']))
        self.assertEqual(
            {'avg': 6.4992, 'p50': 3.6209, 'p95': 17.6947, 'p99': 83.3618}.items()
            & found['latency_ms'].items(),
            {'avg': 6.4992, 'p50': 3.6209, 'p95': 17.6947, 'p99': 83.3618}.items(),
        )
        self.assertIsNone(found['flush_ms'])

    def test_writes_with_a_flush_after_each(self):
        found = fio.parse(recorded.text('randwrite-16k-qd1-sync.json'))
        self.assertEqual(121.05, found['iops'])
        self.assertEqual(7.8257, found['flush_ms']['avg'])
        self.assertEqual(129.9228, found['flush_ms']['max'])

    def test_writes_at_queue_depth_64_with_p99_99(self):
        found = fio.parse(recorded.text('randwrite-4k-qd64.json'))
        self.assertEqual(66720.64, found['iops'])
        self.assertEqual(187.6951, found['latency_ms']['p99.99'])
        self.assertLess(found['latency_ms']['p99.9'], found['latency_ms']['p99.99'])

    def test_no_percentile_exceeds_the_maximum(self):
        latency = fio.parse(recorded.text('randwrite-16k-qd1-sync.json'))['latency_ms']
        self.assertEqual(latency['max'], latency['p99.9'])

    def test_skips_warnings_before_the_result(self):
        text = 'fio: this platform does not support process shared mutexes\n'
        whole = recorded.text('randread-16k-qd16.json')
        self.assertEqual(fio.parse(whole), fio.parse(text + whole))

    def test_no_result(self):
        for text in ('', 'fio: failed', '{"jobs": []}', '{"jobs": [{}]}'):
            self.assertRaises(exceptions.LoadFailedError, fio.parse, text)


class JobsTest(base.BaseTestCase):
    def test_every_block_size_at_every_depth(self):
        for pattern in ('randread', 'randwrite'):
            for size in (4, 8, 16):
                for depth in (1, 16, 64):
                    self.assertEqual(
                        (f'--rw={pattern}', f'--bs={size}k', f'--iodepth={depth}'),
                        fio.JOBS[f'{pattern}-{size}k-qd{depth}'],
                    )

    def test_a_flush_after_each_write_at_depth_1(self):
        jobs = {name: options for name, options in fio.JOBS.items() if '--fsync=1' in options}
        self.assertEqual({f'randwrite-{size}k-qd1-sync' for size in (4, 8, 16)}, set(jobs))
        self.assertTrue(all('--iodepth=1' in options for options in jobs.values()))


class ScratchImageTest(base.BaseTestCase):
    """Commands ``rbd`` of a scratch image, for which a killed client is a watcher at first."""

    def setUp(self):
        super().setUp()
        self.images = set()
        self.watched = 1
        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.fio._check', lambda jobs: None))
        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.fio.fill', self.fill))
        real = rbd_pool.RbdPool
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph_bench.fio.rbd_pool.RbdPool',
                lambda *where: real(*where, run=self.rbd, sleep=lambda seconds: None),
            )
        )
        self.failure = KeyboardInterrupt()

    def rbd(self, *words, **options):
        name = str(words[-1]).partition('/')[2]
        if 'create' in words:
            self.images.add(name)
        if 'ls' in words:
            return json.dumps(sorted(self.images))
        if 'remove' in words:
            if self.watched:
                self.watched -= 1
                raise exceptions.StorageCommandError('image still has watchers')
            self.images.remove(name)
        return ''

    def fill(self, image, offset_mib, size_mib):
        self.assertEqual({image.name}, self.images)
        raise self.failure

    def measure(self):
        fio.on_pool(model.Image('nvme', 'volume-1', 'c', 'u'), [], 1, 64, Path('/x'))

    def test_is_removed_after_an_interruption(self):
        self.assertRaises(KeyboardInterrupt, self.measure)
        self.assertEqual((set(), 0), (self.images, self.watched))

    def test_an_interruption_remains_one_if_the_image_cannot_be_removed(self):
        self.watched = 1000
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        self.assertRaises(KeyboardInterrupt, self.measure)
        self.assertIn('is left: image still has watchers', log.output)


class RunTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)

    def run_job(self, name):
        return fio.on_directory(self.directory, [name], 1, 1, self.directory / 'raw')

    def test_error_for_an_unknown_job_lists_the_known_ones(self):
        error = self.assertRaises(exceptions.InvalidPlanError, self.run_job, 'randwrite')
        self.assertIn('randwrite-16k-qd1-sync', str(error))

    def test_error_for_a_missing_program_names_the_package(self):
        self.useFixture(fixtures.EnvironmentVariable('PATH', str(self.directory)))
        error = self.assertRaises(exceptions.LoadFailedError, self.run_job, 'randread-16k-qd1')
        self.assertIn('install the package fio', str(error))

    def test_failure_includes_the_message_of_fio(self):
        program = self.directory / 'fio'
        program.write_text('#!/bin/sh\necho "fio: disk on fire"\necho {}\nexit 1\n')
        program.chmod(0o755)
        self.useFixture(fixtures.EnvironmentVariable('PATH', f'{self.directory}:/bin:/usr/bin'))

        error = self.assertRaises(exceptions.LoadFailedError, self.run_job, 'randread-16k-qd1')

        self.assertEqual('fio exited with 1: fio: disk on fire', str(error))
        self.assertEqual(['fio', 'raw'], sorted(path.name for path in self.directory.iterdir()))
