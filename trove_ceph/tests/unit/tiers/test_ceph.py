# SPDX-License-Identifier: Apache-2.0
import json

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.tiers import fake_ceph
from trove_ceph.tiers import ceph, crush, resources
from trove_ceph.tiers.resources import Placement

NVME = Placement('default', 'nvme', 'host')


def rule(*steps):
    return {'steps': [{'op': op, **values} for op, values in steps]}


TAKE = ('take', {'item_name': 'default~nvme'})
EMIT = ('emit', {})


class CrushTestCase(base.BaseTestCase):
    def test_supported_rules(self):
        for op, domain in (
            ('choose_firstn', 'osd'),
            ('chooseleaf_firstn', 'host'),
            ('choose_indep', 'osd'),
            ('chooseleaf_indep', 'rack'),
        ):
            found = crush.read_placement(
                rule(
                    ('set_choose_tries', {'num': 100}), TAKE, (op, {'num': 0, 'type': domain}), EMIT
                )
            )
            self.assertEqual(Placement('default', 'nvme', domain), found)

    def test_rule_of_every_class(self):
        take = ('take', {'item_name': 'default'})
        found = crush.read_placement(rule(take, ('choose_firstn', {'num': 0, 'type': 'osd'}), EMIT))
        self.assertIsNone(found.device_class)

    def test_unsupported_rules(self):
        leaf = ('chooseleaf_firstn', {'num': 0, 'type': 'host'})
        for steps in (
            (TAKE, ('chooseleaf_firstn', {'num': 1, 'type': 'host'}), EMIT),
            (TAKE, leaf, EMIT, TAKE, leaf, EMIT),
            (TAKE, ('choose_firstn', {'num': 0, 'type': 'rack'}), leaf, EMIT),
            (TAKE, ('choose_firstn', {'num': 0, 'type': 'host'}), EMIT),
        ):
            self.assertIsNone(crush.read_placement(rule(*steps)))

    def test_osds_and_members_of_failure_domains(self):
        fake = fake_ceph.FakeCeph(hosts=2, osds=2)
        fake.nodes[-1]['reweight'] = 0
        fake.nodes[2] |= {'status': 'down'}
        state = ceph.Ceph('c', 'admin', run=fake).observe()
        self.assertEqual(8, len(state.osds))
        self.assertEqual({'host': 'host0', 'root': 'default'}, state.osds[0].buckets)
        self.assertEqual({'host0', 'host1'}, state.members(NVME))
        hdd = Placement('default', 'hdd', 'osd')
        self.assertEqual({'osd.2', 'osd.3', 'osd.6'}, state.members(hdd))
        self.assertEqual(set(), state.members(Placement('other', 'hdd', 'osd')))
        # A down OSD still counts: it will come back or be marked out.
        self.assertEqual(4, len(state.serving(NVME)))
        self.assertEqual(3, sum(osd.up for osd in state.serving(NVME)))


class CephTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.fake = fake_ceph.FakeCeph()
        self.ceph = ceph.Ceph('/etc/my.conf', 'operator', run=self.fake)

    def test_every_command_names_cluster_and_user(self):
        calls = []

        def run(*words, **options):
            calls.append([str(word) for word in words])
            return self.fake(*words, **options)

        observer = ceph.Ceph('/etc/my.conf', 'operator', run=run)
        observer.create_rule(resources.Rule('nvme-host', NVME))
        observer.create_pool(resources.Pool('p', 'nvme-host', 2, 1, 8, 'off'))
        observer.observe({'p'})
        for words in calls:
            self.assertEqual(['--conf', '/etc/my.conf', '--id', 'operator'], words[1:5])

    def test_keys_are_not_stored(self):
        self.ceph.create_user(resources.User('client.x', {'mon': 'profile rbd'}))
        self.assertIn('client.x', self.ceph.users())
        self.assertNotIn('secret', repr(self.ceph.observe()))

    def test_refused_command(self):
        def refuse(*words, **options):
            raise exceptions.StorageCommandError('no')

        broken = ceph.Ceph('c', 'admin', run=refuse)
        self.assertRaises(exceptions.StorageCommandError, broken.observe)
        self.assertRaises(exceptions.StorageCommandError, broken.set_pool, 'p', 'pg_num', 8)

    def test_new_pool_is_enabled_for_rbd_last(self):
        self.ceph.create_rule(resources.Rule('nvme-host', NVME))
        self.fake.changes.clear()
        self.ceph.create_pool(resources.Pool('p', 'nvme-host', 2, 1, 8, 'off'))
        self.assertEqual(
            [
                'ceph osd pool create p 8 8 replicated nvme-host --size 2 --autoscale_mode off',
                'ceph osd pool set p min_size 1',
                'rbd pool init p',
            ],
            self.fake.changes,
        )

    def test_single_copy_requires_a_confirmation(self):
        self.ceph.create_rule(resources.Rule('nvme-host', NVME))
        self.ceph.create_pool(resources.Pool('p', 'nvme-host', 1, 1, 8, 'off'))
        self.assertIn('ceph osd pool set p size 1 --yes-i-really-mean-it', self.fake.changes)
        self.assertEqual(1, self.ceph.pools()['p'].size)

    def test_pool_round_trip(self):
        profile = resources.Profile('d', 2, 1, 'jerasure', 'reed_sol_van', NVME)
        self.ceph.create_profile(profile)
        self.ceph.create_rule(resources.Rule('d', NVME, profile='d'))
        self.ceph.create_rule(resources.Rule('nvme-host', NVME))
        data = resources.Pool(
            name='d',
            rule='d',
            size=3,
            min_size=3,
            pg_num=8,
            autoscale='on',
            target_size_ratio=0.25,
            compression_mode='force',
            compression_algorithm='lz4',
            profile='d',
            overwrites=True,
        )
        metadata = resources.Pool('m', 'nvme-host', 2, 2, 8, 'off', data_pool='d')
        self.ceph.create_pool(data)
        self.ceph.create_pool(metadata)
        self.assertEqual({'d': data, 'm': metadata}, self.ceph.pools({'m'}))
        self.assertEqual(profile, self.ceph.profiles()['d'])
        default = self.ceph.profiles()['default']
        self.assertEqual(resources.Placement('default', None, 'host'), default.placement)

    def test_pg_num_of_a_pool_that_is_being_split(self):
        self.ceph.create_rule(resources.Rule('nvme-host', NVME))
        self.ceph.create_pool(resources.Pool('p', 'nvme-host', 2, 1, 8, 'off'))
        self.ceph.set_pool('p', 'pg_num', 32)
        self.assertEqual(32, self.ceph.pools()['p'].pg_num)

    def test_limit_of_the_running_monitor(self):
        self.fake.max_pgs = 321
        self.assertEqual(321, self.ceph.observe().max_pgs_per_osd)

    def test_answers_are_json(self):
        answer = self.fake('ceph', '--conf', 'c', '--id', 'a', 'df', '--format', 'json')
        self.assertEqual({'pools': []}, json.loads(answer))
