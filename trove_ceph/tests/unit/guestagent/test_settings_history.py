# SPDX-License-Identifier: Apache-2.0
import itertools

from oslotest import base

from trove_ceph.guestagent import settings_history


class SettingsHistoryTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0
        self.history = settings_history.SettingsHistory(clock=lambda: self.now)

    def observe(self, evidence, position='u:1-7', after_sec=0.0):
        self.now += after_sec
        return self.history.observe(evidence, position)

    def test_first_observation_proves_nothing(self):
        self.assertEqual({'unchanged_sec': 0.0, 'positions': []}, self.observe('a'))

    def test_same_evidence_reaches_back_to_its_first_observation(self):
        self.observe('a')
        self.observe('a', after_sec=60)
        self.assertEqual(90.0, self.observe('a', after_sec=30)['unchanged_sec'])

    def test_change_restarts_the_time(self):
        self.observe('a')
        self.assertEqual(0.0, self.observe('b', after_sec=60)['unchanged_sec'])
        self.assertEqual(5.0, self.observe('b', after_sec=5)['unchanged_sec'])
        # A change back also counts: earlier observations prove nothing.
        answer = self.observe('a', after_sec=5)
        self.assertEqual((0.0, []), (answer['unchanged_sec'], answer['positions']))

    def test_server_without_evidence(self):
        for _ in range(3):
            answer = self.observe(None, after_sec=60)
            self.assertEqual((0.0, []), (answer['unchanged_sec'], answer['positions']))

    def test_positions_are_of_earlier_observations_with_the_same_evidence(self):
        self.observe('a', 'u:1-5')
        self.assertEqual(
            [{'age_sec': 30.0, 'gtid_executed': 'u:1-5'}],
            self.observe('a', 'u:1-9', after_sec=30)['positions'],
        )
        found = self.observe('a', 'u:1-12', after_sec=30)['positions']
        self.assertEqual([60.0, 30.0], [one['age_sec'] for one in found])
        self.assertEqual([], self.observe('b', 'u:1-13', after_sec=30)['positions'])

    def test_positions_are_apart_and_bounded(self):
        for _ in range(100):
            self.observe('a', after_sec=5)
        found = self.observe('a', after_sec=5)['positions']
        ages = [one['age_sec'] for one in found]
        self.assertEqual(4, len(ages))
        for older, newer in itertools.pairwise(ages):
            self.assertGreaterEqual(older - newer, 20)

    def test_clock_is_never_set(self):
        self.assertLessEqual(settings_history.raw_monotonic(), settings_history.raw_monotonic())
