# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph.tests.unit.tiers import sample, world
from trove_ceph.tiers import planning

REVOKES = '--yes-revoke-access'


class CapsTestCase(base.BaseTestCase):
    """Caps of users beyond what their role needs."""

    def setUp(self):
        super().setUp()
        self.world = world.World()
        self.world.apply(sample.read())
        caps = self.world.ceph.users['client.cinder']
        caps['osd'] += ', profile rbd pool=vms'
        caps['mgr'] += ', profile rbd pool=vms'
        caps['mon'] += ', allow command "osd blocklist"'
        self.world.clear_changes()

    def _plan(self, **keys):
        user = {'role': 'cinder'} | keys
        return self.world.plan(sample.read({'users/client.cinder': user}))

    def test_undeclared_caps_stay_and_are_noted(self):
        plan = self._plan()
        self.assertEqual((), plan.changes)
        (note,) = plan.notes
        self.assertIn('cephx user client.cinder keeps caps that the file does not declare', note)
        self.assertIn('osd profile rbd pool=vms', note)

    def test_declared_caps_are_not_noted(self):
        plan = self._plan(pools=['vms'], caps={'mon': ['allow command "osd blocklist"']})
        self.assertEqual(((), ()), (plan.changes, plan.notes))

    def test_declared_exclusive_revokes_the_rest(self):
        plan = self._plan(exclusive=True, pools=['vms'])
        (change,) = plan.changes
        self.assertEqual([REVOKES], [risk.flag for risk in change.risks])
        self.assertEqual(
            'cephx user client.cinder: caps - mon allow command "osd blocklist"', str(change)
        )
        self.assertEqual((), self._plan(pools=['vms'], exclusive=False).changes)

    def test_missing_caps_are_added(self):
        fakes = self.world.ceph.users['client.cinder']
        before = dict(fakes)
        self.world.apply(sample.read({'users/client.cinder': {'role': 'cinder', 'pools': ['x']}}))
        after = self.world.ceph.users['client.cinder']
        more = ', profile rbd pool=x'
        self.assertEqual(before['osd'] + more, after['osd'])
        self.assertEqual(before['mgr'] + more, after['mgr'])
        self.assertEqual(before['mon'], after['mon'])

    def test_caps_granted_meanwhile_are_not_lost(self):
        content = sample.read({'users/client.cinder': {'role': 'cinder', 'pools': ['x']}})
        systems = self.world.systems(content)
        observed = systems.observe()
        (change,) = planning.plan(content, observed).changes
        self.world.ceph.users['client.cinder']['mds'] = 'allow r'
        systems.make(change, observed)
        self.assertEqual('allow r', self.world.ceph.users['client.cinder']['mds'])

    def test_user_without_a_role_gets_declared_caps(self):
        user = {'pools': ['vms'], 'caps': {'mon': ['profile rbd']}}
        self.world.apply(sample.read({'users/client.nova': user}))
        pool = 'profile rbd pool=vms'
        expected = {'mgr': pool, 'mon': 'profile rbd', 'osd': pool}
        self.assertEqual(expected, self.world.ceph.users['client.nova'])
