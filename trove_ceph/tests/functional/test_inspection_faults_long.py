# SPDX-License-Identifier: Apache-2.0
"""Every fault in every phase of an inspection, if TROVE_CEPH_LONG_TESTS is set: an hour."""

import itertools
import os
from unittest import mock

import fixtures

from trove_ceph.tests.functional import base, inspection_faults
from trove_ceph.verification import inspection

TIMEOUT_SEC = 7200
#: The phases without a storage daemon.
WITHOUT_DAEMON = ('removing',)


@base.long
class EveryInspectionFaultTest(inspection_faults.InspectionFaultsTestCase):
    def setUp(self):
        if not os.environ.get('TROVE_CEPH_LONG_TESTS'):
            self.skipTest('set TROVE_CEPH_LONG_TESTS to run it')
        super().setUp()
        self.useFixture(fixtures.Timeout(TIMEOUT_SEC, gentle=True))

    def test_no_fault_causes_a_verdict(self):
        steps = inspection.make_steps(mock.Mock(spec=inspection.Context))
        for step, target, how in itertools.product(
            steps, inspection_faults.TARGETS, inspection_faults.SIGNALS
        ):
            fault, _ = self.assert_no_verdict(step.name, target, how)
            if step.name not in WITHOUT_DAEMON:
                self.assertTrue(fault.has_struck, f'{target} at {step.name}')
        self.assert_sound()
