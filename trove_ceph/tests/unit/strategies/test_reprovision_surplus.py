# SPDX-License-Identifier: Apache-2.0
"""Re-provision a replica that has, or may have, what its source lacks."""

from trove_ceph import exceptions
from trove_ceph.db.replica_record import Observation, ReplicaState, Requester
from trove_ceph.strategies.replication import reprovision_rules as rules
from trove_ceph.tests.unit.strategies import reprovision_world
from trove_ceph.tests.unit.strategies.reprovision_cloud import OLD


class SurplusTest(reprovision_world.ReprovisionCase):
    def make_policy_world(self, **options):
        """Have the watch request the re-provisioning."""
        self.world = reprovision_world.World(requester=Requester.POLICY, **options)

    def test_replica_that_has_what_its_source_has_lost_keeps_it(self):
        self.make_policy_world()
        self.world.volumes[OLD].executed = 120
        self.assert_ends('it has 20 transactions that its source lacks')
        self.world.check_as_before()
        self.assertEqual(120, self.world.volumes[OLD].executed)

    def test_replica_that_accepts_writes_keeps_them(self):
        """It was detached, and nothing has recorded that."""
        self.make_policy_world()
        self.world.volumes[OLD].password = None
        self.assert_ends('it accepts writes')
        self.assertEqual((OLD, OLD), (self.world.shown, self.world.running))

    def test_who_requests_a_re_provisioning_gives_up_writes(self):
        self.world = reprovision_world.World(requester=Requester.TENANT)
        self.world.volumes[OLD].password = None
        self.world.finish()
        self.world.check_completed()

    def test_who_requests_a_re_provisioning_gives_up_what_the_source_lacks(self):
        for requester in (Requester.TENANT, Requester.OPERATOR):
            self.world = reprovision_world.World(requester=requester)
            self.world.volumes[OLD].executed = 120
            self.world.finish()
            self.world.check_completed()

    def test_replica_that_does_not_answer_is_not_asked_for_what_the_source_lacks(self):
        self.make_policy_world(is_lost=True)
        self.world.finish()
        self.world.check_completed()

    def test_replica_that_had_what_the_source_lacks_and_does_not_answer_keeps_it(self):
        self.make_policy_world(is_lost=True)
        self.world.store.observe(self.world.record(), Observation(has_surplus=True))
        self.assert_ends('may have transactions that its source lacks')
        self.assertEqual(OLD, self.world.shown)

    def test_a_fresh_clone_has_nothing_that_the_source_lacks(self):
        self.world = reprovision_world.World(requester=Requester.TENANT, is_lost=True)
        self.world.store.observe(self.world.record(), Observation(has_surplus=True))
        self.world.finish()
        self.world.check_completed()
        self.assertIsNone(self.world.record().has_surplus)

    def reach_lacking(self, executed):
        """Have a new source that lacks what its former one had when the exchange began."""
        self.reach(ReplicaState.CATCHING_UP)
        self.world.follow('source-2')
        self.world.volumes[self.world.shown].executed = executed
        self.world.position = self.world.requested_position = 90

    def test_old_volume_that_may_have_what_the_source_lacks_is_given_back(self):
        """As after an ejection, while the re-provisioning was blocked."""
        self.make_policy_world()
        self.reach_lacking(90)
        self.assert_ends('transactions that the former one had')
        self.world.check_as_before()

    def test_old_volume_is_given_up_for_a_clone_that_has_what_the_source_lacks(self):
        self.make_policy_world()
        self.reach_lacking(100)
        self.world.finish()
        self.world.check_completed()

    def test_old_volume_that_may_have_what_the_source_lacks_is_kept_until_it_is_gone(self):
        """Its pool may answer again."""
        self.make_policy_world()
        self.reach_lacking(90)
        self.world.volumes[OLD].is_lost = True
        self.world.pass_time = lambda seconds: None
        for _ in range(2 * rules.MOST_ATTEMPTS):
            self.assertRaises(exceptions.OperatorNeededError, self.world.attempt().run)
        self.assertIs(ReplicaState.CATCHING_UP, self.world.record().state)
        self.assertIn('which cannot be read now', self.world.record().error)
        self.assertNotIn(f'volume {OLD}', self.world.record().error)
        self.assertNotIn(OLD, self.world.discarded)
        # An operator has deleted it.
        del self.world.volumes[OLD]
        self.world.attempt().run()
        self.world.check_completed()
