# SPDX-License-Identifier: Apache-2.0
"""A test of the keeper of pools, round by round."""

import fixtures
from oslotest import base

from trove_ceph.db.guest_record import PoolKey
from trove_ceph.strategies.backup import backup_types
from trove_ceph.tests.unit.strategies import guest_world

KEY = PoolKey('flavor', 'image', 'digest', None, guest_world.POOL)


class KeeperTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('trove_ceph', level=20))

    def make(self, rounds=2, **settings):
        """Return a world whose pool is filled, and its keeper."""
        self.world = guest_world.World(**settings)
        self.keeper = self.world.keeper()
        self.run_rounds(rounds)

    def run_rounds(self, rounds=1, seconds=10):
        self.world.run(self.keeper, rounds, seconds)

    def one(self, *states):
        (found,) = self.world.guests(*states)
        return found

    def claim(self, instance_id='instance', **facts):
        """Claim a guest for an instance."""
        claimed = self.world.store.claim(KEY, instance_id)
        facts = {'is_building': True} | facts
        self.world.instances[instance_id] = backup_types.Instance(
            instance_id, 'project', None, **facts
        )
        return claimed

    def count_in_log(self, text):
        return self.log.output.count(text)
