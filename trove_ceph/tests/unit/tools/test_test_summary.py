# SPDX-License-Identifier: Apache-2.0
import io

import subunit
import testtools
from oslotest import base

from trove_ceph.tests.unit import tools


class Sample(testtools.TestCase):
    def passes(self):
        pass

    def skips(self):
        self.skipTest('not here')

    def fails(self):
        self.addDetail('facts', testtools.content.json_content({'pid': 1}))
        self.addDetail('mysqld.log', testtools.content.text_content('long\n' * 1000))
        self.assertEqual(1, len('ab'), 'the server')


class SummaryTest(base.BaseTestCase):
    def test_reports_a_failed_test_with_its_reason_and_position(self):
        stream = io.BytesIO()
        result = testtools.ExtendedToStreamDecorator(subunit.StreamResultToBytes(stream))
        result.startTestRun()
        for name in ('passes', 'skips', 'fails'):
            Sample(name).run(result)
        result.stopTestRun()

        outcomes, failed = tools.load('test-summary').count(stream.getvalue())

        self.assertEqual({'passed': 1, 'skipped': 1, 'failed': 1}, dict(outcomes))
        (line,) = failed
        self.assertIn('Sample.fails: testtools.matchers', line)
        self.assertIn('1 != 2: the server', line)
        self.assertIn('test_test_summary.py", line', line)
        self.assertNotIn('\n', line)
