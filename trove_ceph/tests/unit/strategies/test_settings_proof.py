# SPDX-License-Identifier: Apache-2.0
import random

from oslotest import base

from trove_ceph.guestagent import settings_history
from trove_ceph.strategies.backup import settings_proof


def answer(unchanged_sec, settings_id='same', positions=()):
    return {
        'settings_id': settings_id,
        'unchanged_sec': unchanged_sec,
        'positions': [{'age_sec': age, 'gtid_executed': gtid} for age, gtid in positions],
    }


class ProofTest(base.BaseTestCase):
    def test_proves_settings_unchanged_since_before_the_snapshot(self):
        self.assertIsNone(settings_proof.find_gap(answer(60.0), 2.0))

    def test_does_not_prove_settings_unchanged_for_less(self):
        for unchanged_sec in (0.0, 1.9, 2.0, 2.2):
            reason = settings_proof.find_gap(answer(unchanged_sec), 2.0)
            self.assertIn(f'unchanged for {unchanged_sec:.1f} s', reason)

    def test_does_not_prove_without_evidence(self):
        for found in (answer(60.0, None), {}, {'settings_id': 'a'}, answer(None)):
            self.assertIsNotNone(settings_proof.find_gap(found, 2.0))

    def test_finds_the_latest_position_that_is_old_enough(self):
        found = answer(90, positions=[(90.0, 'u:1-5'), (30.0, 'u:1-9'), (1.0, 'u:1-12')])
        self.assertEqual('u:1-9', settings_proof.find_position(found, 2.0))
        self.assertEqual('u:1-5', settings_proof.find_position(found, 60.0))
        self.assertIsNone(settings_proof.find_position(found, 100.0))
        self.assertIsNone(settings_proof.find_position({}, 2.0))


class Server:
    """A server whose setting changes at random, and an agent with its own clock."""

    def __init__(self, seeded):
        self._random = seeded
        self.now = 0.0
        self._rate, self._offset = seeded.uniform(0.97, 1.0), seeded.uniform(-1e6, 1e6)
        self.is_safe, self.changes, self.position = True, 0, 0
        self.history = settings_history.SettingsHistory(self.agent_clock)

    def agent_clock(self):
        return self._offset + self._rate * self.now

    def go_on(self, seconds):
        """Let time pass, with the changes that fall into it."""
        self.now += seconds
        self.position += 1
        if self._random.random() < 0.15:
            self.is_safe, self.changes = not self.is_safe, self.changes + 1

    def look(self):
        """Read the settings as the agent does, the evidence before the value, in some time."""
        self.go_on(self._random.uniform(0, 0.5))
        changes = self.changes
        self.go_on(self._random.uniform(0, 0.5))
        is_safe, position = self.is_safe, self.position
        self.go_on(self._random.uniform(0, 0.5))
        found = self.history.observe(f'{changes} {is_safe}', str(position))
        self.go_on(self._random.uniform(0, 0.5))
        return is_safe, {'settings_id': 'known', **found}


class NeverWrongTest(base.BaseTestCase):
    """A thousand histories with changes at any instant, in which no proof may be wrong."""

    def test_no_proof_is_wrong(self):
        proved = unproved = positions = 0
        for seed in range(1000):
            seeded = random.Random(seed)
            server = Server(seeded)
            for _ in range(seeded.randrange(4)):
                server.look()
                server.go_on(seeded.uniform(0, 30))
            began = server.now
            position = server.position
            server.go_on(seeded.uniform(0, 0.5))
            was_safe = server.is_safe
            server.go_on(seeded.uniform(0, 0.5))
            is_safe, found = server.look()
            elapsed_sec = server.now - began
            if settings_proof.find_gap(found, elapsed_sec):
                unproved += 1
                continue
            proved += 1
            self.assertEqual(was_safe, is_safe, f'seed {seed}')
            known = settings_proof.find_position(found, elapsed_sec)
            if known:
                positions += 1
                self.assertLessEqual(int(known), position, f'seed {seed}')
        self.assertGreater(min(proved, unproved, positions), 100)
