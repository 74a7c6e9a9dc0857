# SPDX-License-Identifier: Apache-2.0
"""The report and the progress of the main job."""

import contextlib
import io
import json
import os
from pathlib import Path
from unittest import mock

import fixtures
from main_job import progress, report
from oslotest import base

from trove_ceph.tests.unit import tools

REPORT = {
    'instance': {
        'id': 'u-1',
        'name': 'first-database',
        'status': 'ACTIVE, HEALTHY',
        'address': '10.21.0.9',
        'flavor': 'db.small',
        'volume_type': 'nvme',
        'size_gib': 2,
    },
    'mysql': {
        'version': '9.7.4',
        'innodb_buffer_pool_size': str(1000 * 1024**2),
        'innodb_redo_log_capacity': str(100 * 1024**2),
        'innodb_flush_method': 'O_DIRECT',
        'gtid_mode': 'ON',
    },
    'sysbench': {'tps': 37.36, 'latency_p95_ms': 189.93},
    'sysbench_seconds': 30,
    'placement': {
        'pool': 'volumes-nvme',
        'image': 'volume-7',
        'objects': 60,
        'device_class': 'nvme',
        'copies_by_osd': {'0': 40, '2': 80},
    },
    'virt_type': 'software emulation',
    'seconds': {'create_to_healthy': 211.5},
    'connect': 'mysql -h 10.21.0.9 -u shop -psecret shop',
    'try_next': ['make lab-status', 'make lab-down'],
}


class ReportTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.path = Path(self.useFixture(fixtures.TempDir()).path) / 'report.json'

    def test_renders_the_report(self):
        text = report.render(REPORT)
        for expected in (
            'first-database (u-1), ACTIVE, HEALTHY',
            'db.small, volume 2 GiB of type nvme',
            '10.21.0.9:3306',
            'MySQL 9.7.4, buffer pool 1000 MiB, redo 100 MiB, O_DIRECT, GTID ON',
            'volumes-nvme/volume-7: 60 objects',
            'nvme only: osd.0 (40), osd.2 (80)',
            'oltp_read_write 30 s, 37.4 TPS, p95 190 ms (CPU: software emulation)',
            '   211.5  create to healthy',
            '\n    mysql -h 10.21.0.9 -u shop -psecret shop\n',
            '\n    make lab-status\n    make lab-down',
        ):
            self.assertIn(expected, text)

    def test_saved_report_can_be_read_back(self):
        self.assertEqual({}, report.load(self.path))
        report.save(self.path, REPORT)
        self.assertEqual(REPORT, report.load(self.path))
        self.assertEqual(['report.json'], os.listdir(self.path.parent))

    def test_only_root_can_read_the_report(self):
        report.save(self.path, REPORT)
        self.assertEqual(0o600, self.path.stat().st_mode & 0o777)

    def test_ignores_a_damaged_report(self):
        self.path.write_text(json.dumps(REPORT)[:100])
        self.assertEqual({}, report.load(self.path))

    def test_replaces_the_report_atomically(self):
        report.save(self.path, REPORT)
        self.assertRaises(TypeError, report.save, self.path, {'instance': object()})
        self.assertEqual(REPORT, report.load(self.path))

    def test_check_lab_report_accepts_the_report(self):
        gate = tools.load('check-lab-report')
        report.save(self.path, REPORT)
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(0, gate.main([str(self.path)]))
            report.save(self.path, REPORT | {'sysbench': {'tps': 0.0, 'latency_p95_ms': 0.0}})
            self.assertEqual(1, gate.main([str(self.path)]))


class ProgressTest(base.BaseTestCase):
    def _progress(self, live):
        self.out = io.StringIO()
        self.out.isatty = lambda: live
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        stack.enter_context(contextlib.redirect_stdout(self.out))
        return progress.Progress({})

    def test_records_the_duration_of_a_step(self):
        shown = self._progress(live=False)
        with mock.patch('main_job.progress.time.monotonic', side_effect=[100.0, 161.26]):
            with shown.step('build', 'build it'):
                pass
        self.assertEqual({'build': 61.3}, shown.durations)
        self.assertIn('61.3 s  build it', self.out.getvalue())

    def test_does_not_record_a_failed_step(self):
        shown = self._progress(live=False)
        with contextlib.suppress(ValueError), shown.step('build', 'build it'):
            raise ValueError
        self.assertEqual({}, shown.durations)
        self.assertEqual('  build it …\n', self.out.getvalue())

    def test_log_shows_only_changes(self):
        shown = self._progress(live=False)
        for text, seconds in (('BUILD', 0), ('BUILD', 4), ('ACTIVE', 61.9)):
            shown.note(text, seconds)
        self.assertEqual(
            ['0:00  BUILD', '1:01  ACTIVE'],
            [line.strip() for line in self.out.getvalue().splitlines()],
        )

    def test_terminal_shows_one_changing_line(self):
        shown = self._progress(live=True)
        for seconds in (0, 4):
            shown.note('BUILD', seconds)
        self.assertEqual(0, self.out.getvalue().count('\n'))
        self.assertEqual(2, self.out.getvalue().count('\r\033[K'))
