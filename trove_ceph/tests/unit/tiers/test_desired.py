# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph.tests.unit.tiers import fake_ceph, sample
from trove_ceph.tiers import caps, ceph, desired


def observe(fake):
    return ceph.Ceph('ceph.conf', 'admin', run=fake).observe()


class DesiredTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.ceph = observe(fake_ceph.FakeCeph(hosts=3, osds=10))

    def _derive(self, changes=()):
        return desired.derive(sample.read(changes), self.ceph)

    def test_pools(self):
        pools = {pool.name: pool for pool in self._derive().pools}
        self.assertEqual(['volumes-fast', 'replicas', 'vault-data', 'vault', 'images'], list(pools))
        fast = pools['volumes-fast']
        self.assertEqual(('nvme-host', 2, 1, 64, 'off'), _shape(fast))
        self.assertIsNone(fast.compression_algorithm)
        self.assertEqual(('hdd-host', 2, 1, None, 'on'), _shape(pools['images']))
        self.assertEqual(0.1, pools['images'].target_size_ratio)

    def test_coded_pool_and_its_metadata(self):
        pools = {pool.name: pool for pool in self._derive().pools}
        data, metadata = pools['vault-data'], pools['vault']
        # 30 OSDs x 100 x 0.5 / 3 chunks
        self.assertEqual(('vault-data', 3, 2, 512, 'off'), _shape(data))
        self.assertEqual(('vault-data', True), (data.profile, data.overwrites))
        self.assertEqual(
            ('aggressive', 'zstd'), (data.compression_mode, data.compression_algorithm)
        )
        self.assertEqual(('hdd-host', 2, 1, 16, 'off'), _shape(metadata))
        self.assertEqual(('vault-data', None), (metadata.data_pool, metadata.profile))

    def test_rules_are_shared_by_tiers_with_the_same_placement(self):
        rules = {rule.name: str(rule.placement) for rule in self._derive().rules}
        self.assertEqual(
            {
                'nvme-host': 'nvme by host under default',
                'vault-data': 'hdd by host under default',
                'hdd-host': 'hdd by host under default',
            },
            rules,
        )

    def test_rule_under_another_root_has_its_name(self):
        rules = self._derive({'tiers/fast/crush_root': 'east'}).rules
        self.assertIn('east-nvme-host', [rule.name for rule in rules])

    def test_front_end_limits(self):
        (specs,) = self._derive().qos
        self.assertEqual(('fast', 'front-end'), (specs.name, specs.consumer))
        self.assertEqual(
            {
                'total_iops_sec_per_gb': '30',
                'total_iops_sec_per_gb_min': '3000',
                'total_iops_sec_max': '20000',
                'total_bytes_sec': '524288000',
            },
            specs.specs,
        )

    def test_cinder_gets_no_limits_of_images(self):
        target = self._derive({'tiers/fast/qos': 'image'})
        self.assertEqual((), target.qos)
        self.assertIsNone(target.types[0].qos)

    def test_types_and_associations(self):
        target = self._derive()
        (fast,) = target.types
        self.assertEqual(
            ('fast', 'NVMe', True, 'fast'), (fast.backend, fast.description, fast.public, fast.qos)
        )
        self.assertEqual({'mysql/9.7.4': frozenset({'fast'})}, target.associations)

    def test_nothing_for_ceph_if_it_is_left_out(self):
        target = desired.derive(sample.read(), None)
        self.assertEqual(
            ((), (), (), ()), (target.profiles, target.rules, target.pools, target.users)
        )
        self.assertEqual(1, len(target.types))


def _shape(pool):
    return pool.rule, pool.size, pool.min_size, pool.pg_num, pool.autoscale


class CapsTestCase(base.BaseTestCase):
    def _caps(self, name, changes=()):
        content = sample.read(changes)
        return caps.derive(content.users[name], content.tiers)

    def test_cinder_writes_to_its_back_ends_and_reads_the_rest(self):
        self.assertEqual(
            {
                'mgr': 'profile rbd pool=volumes-fast',
                'mon': 'profile rbd',
                'osd': 'profile rbd pool=volumes-fast, profile rbd-read-only pool=replicas, '
                'profile rbd-read-only pool=vault, profile rbd-read-only pool=vault-data, '
                'profile rbd-read-only pool=images',
            },
            self._caps('client.cinder'),
        )

    def test_glance(self):
        self.assertEqual(
            {
                'mgr': 'profile rbd pool=images',
                'mon': 'profile rbd',
                'osd': 'profile rbd pool=images',
            },
            self._caps('client.glance'),
        )

    def test_only_the_storage_service_may_remove_a_fence(self):
        found = self._caps('client.storage')
        self.assertEqual('profile rbd, allow command "osd blocklist"', found['mon'])
        self.assertEqual(found['mgr'], found['osd'])
        self.assertNotIn('images', found['osd'])
        for other in ('client.cinder', 'client.glance'):
            self.assertNotIn('blocklist', self._caps(other)['mon'])

    def test_tiers_of_a_user(self):
        given = {'role': 'storage', 'tiers': ['vault']}
        found = self._caps('client.storage', {'users/client.storage': given})
        self.assertEqual('profile rbd pool=vault, profile rbd pool=vault-data', found['osd'])

    def test_grants_compare_without_order_and_blanks(self):
        first = caps.grants({'osd': 'profile rbd pool=a,  profile rbd pool=b', 'mon': ''})
        self.assertEqual(first, caps.grants({'osd': 'profile  rbd pool=b;profile rbd pool=a'}))
        self.assertNotEqual(first, caps.grants({'osd': 'profile rbd pool=a'}))
