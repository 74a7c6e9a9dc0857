# SPDX-License-Identifier: Apache-2.0
import json

from oslotest import base

from trove_ceph import exceptions
from trove_ceph_bench import ceph_facts, model

RULES = [
    {
        'rule_id': 1,
        'rule_name': 'nvme',
        'steps': [
            {'op': 'take', 'item_name': 'default~nvme'},
            {'op': 'chooseleaf_firstn', 'num': 0, 'type': 'host'},
            {'op': 'emit'},
        ],
    },
    {'rule_id': 2, 'rule_name': 'any', 'steps': [{'op': 'take', 'item_name': 'default'}]},
]


def pool(name, rule, **more):
    facts = {'pool_name': name, 'size': 2, 'min_size': 1, 'pg_num': 32, 'crush_rule': rule}
    facts |= {'erasure_code_profile': '', 'application_metadata': {'rbd': {}}}
    return facts | more


class FakeCluster:
    """Fake of the commands ``ceph`` and ``rbd``."""

    def __init__(self):
        self.pools = [
            pool('metrics', 2, application_metadata={'mgr': {}}),
            pool('volumes', 1),
            pool('capacity', 2, erasure_code_profile='k2m1'),
        ]
        self.notes = {'trove-ceph-bench/hdd': 'slow'}
        self.images = {'volumes': ['one'], 'capacity': []}
        self.info = {'size': 2**30, 'object_size': 2**22, 'features': ['layering']}

    def __call__(self, *arguments):
        if arguments[0] == 'rbd':
            return json.dumps(self._rbd(arguments[5:]))
        assert arguments[:5] == ('ceph', '--conf', '/c', '--id', 'bench'), arguments
        replies = {
            ('osd', 'pool', 'ls', 'detail'): self.pools,
            ('osd', 'crush', 'rule', 'dump'): RULES,
            ('versions',): {'overall': {'ceph version 16': 8}},
            ('df',): {
                'pools': [
                    {
                        'name': one['pool_name'],
                        'stats': {'percent_used': 0.125, 'max_avail': 7 * 2**30},
                    }
                    for one in self.pools
                ]
            },
            ('config-key', 'dump', 'trove-ceph-bench/'): self.notes,
            ('osd', 'dump'): {'nearfull_ratio': 0.85, 'full_ratio': 0.95},
            ('pg', 'ls-by-pool', 'volumes'): {'pg_stats': [{'acting': [0, 1]}, {'acting': [1, 0]}]},
            ('osd', 'df'): {
                'nodes': [
                    {'id': 0, 'utilization': 11.0},
                    {'id': 1, 'utilization': 13.0},
                    {'id': 2, 'utilization': 60.0},
                ]
            },
            ('osd', 'tree'): {
                'nodes': [
                    {'type': 'root', 'name': 'default'},
                    {'type': 'osd', 'status': 'up', 'device_class': 'nvme'},
                    {'type': 'osd', 'status': 'up', 'device_class': 'nvme'},
                    {'type': 'osd', 'status': 'down', 'device_class': 'hdd'},
                ]
            },
        }
        return json.dumps(replies[arguments[7:-2]])

    def _rbd(self, arguments):
        if arguments[0] == 'ls':
            return self.images[arguments[-1]]
        if arguments[0] == 'info':
            return self.info
        return [{'name': 'rbd_qos_iops_limit', 'value': '100', 'source': 'image'}]


class CephFactsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.cluster = FakeCluster()
        self.facts = ceph_facts.CephFacts('/c', 'bench', run=self.cluster)

    def test_image_with_its_pool_rule_and_options(self):
        found = self.facts.describe(model.Image('volumes', 'one', '/c', 'bench'))

        self.assertEqual({'nvme': 2}, found['osds'])
        self.assertEqual({'ceph version 16': 8}, found['versions'])
        self.assertEqual({'rbd_qos_iops_limit': '100'}, found['image']['options'])
        (described,) = found['pools']
        self.assertEqual((2, 1, 32), tuple(described[k] for k in ('size', 'min_size', 'pg_num')))
        self.assertEqual(12.5, described['percent_used'])
        self.assertEqual(
            {
                'name': 'nvme',
                'root': 'default',
                'device_class': 'nvme',
                'failure_domain': 'host',
            },
            described['crush_rule'],
        )

    def test_describes_the_data_pool_of_an_image(self):
        self.cluster.info['data_pool'] = 'capacity'

        found = self.facts.describe(model.Image('volumes', 'one', '/c', 'bench'))

        self.assertEqual(['volumes', 'capacity'], [one['name'] for one in found['pools']])
        self.assertEqual('k2m1', found['pools'][1]['erasure_code_profile'])
        self.assertIsNone(found['pools'][1]['crush_rule']['device_class'])

    def test_notes_of_the_operator(self):
        image = model.Image('volumes', 'one', '/c', 'bench')
        self.assertEqual(['slow'], self.facts.describe(image)['notes'])

    def test_a_user_that_may_not_read_notes(self):
        def run(*arguments):
            if 'config-key' in arguments:
                raise exceptions.StorageCommandError('Error EACCES: access denied')
            return self.cluster(*arguments)

        facts = ceph_facts.CephFacts('/c', 'bench', run=run)
        found = facts.describe(model.Image('volumes', 'one', '/c', 'bench'))
        self.assertEqual(([], {'nvme': 2}), (found['notes'], found['osds']))

    def test_usage_of_a_pool_counts_its_own_osds_only(self):
        usage = self.facts.pool_usage('volumes')
        self.assertEqual(12.5, usage.used_percent)
        self.assertEqual(8 * 2**30, usage.total_bytes)
        self.assertEqual(13.0, usage.fullest_osd_percent)
        self.assertEqual((85.0, 95.0), (usage.nearfull_percent, usage.full_percent))

    def test_pool_that_holds_an_image(self):
        self.assertEqual('volumes', self.facts.find_pool_of('one'))

    def test_image_in_no_pool(self):
        self.assertIsNone(self.facts.find_pool_of('two'))
