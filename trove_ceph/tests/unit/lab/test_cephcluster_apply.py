# SPDX-License-Identifier: Apache-2.0
"""What apply asks of the monitor, and what it never asks."""

import json
import os

import fixtures
import testscenarios
from oslotest import base

from cephcluster import apply, layout, spec
from cephcluster.errors import UsageError

READING = ('osd crush rule dump', 'osd crush dump', 'osd dump', 'auth get')
READING += ('osd erasure-code-profile get',)


def rule(name, number, device_class, failure_domain='osd'):
    steps = [
        {'op': 'take', 'item_name': f'default~{device_class}'},
        {'op': 'choose_firstn' if failure_domain == 'osd' else 'chooseleaf_firstn'},
        {'op': 'emit'},
    ]
    steps[1]['type'] = failure_domain
    return {'rule_name': name, 'rule_id': number, 'steps': steps}


def pool(name, number, **changes):
    return {
        'pool_name': name,
        'crush_rule': number,
        'size': 2,
        'min_size': 1,
        'pg_num': 16,
        'pg_num_target': 16,
        'erasure_code_profile': '',
        'application_metadata': {'rbd': {}},
    } | changes


class FakeMonitor:
    """Answers as a cluster with two tiers and records what would change it."""

    def __init__(self):
        self.rules = [rule('nvme', 1, 'nvme'), rule('hdd', 2, 'hdd', 'host')]
        self.pools = [pool('volumes', 1)]
        self.profiles = {'ec21': {'k': '2', 'm': '1'}}
        self.users = {'client.cinder': {'mon': 'profile rbd'}}
        self.asked = []
        self.prepared = []

    def command(self, prefix, data=b'', **arguments):
        if prefix not in READING:
            self.asked.append((prefix, arguments))
        answers = {
            'osd crush rule dump': lambda: self.rules,
            'osd crush dump': lambda: {
                'types': [{'name': 'osd', 'type_id': 0}, {'name': 'host', 'type_id': 1}]
            },
            'osd dump': lambda: {'pools': self.pools},
            'osd erasure-code-profile get': lambda: self.profiles.get(arguments['name']),
            'auth get': lambda: self._auth(arguments['entity']),
            'auth get-or-create': lambda: [{'key': 'new', 'caps': {}}],
            'osd crush rule create-replicated': lambda: self.rules.append(
                rule(arguments['name'], 9, arguments['class'], arguments['type'])
            ),
        }
        return answers.get(prefix, lambda: None)()

    find = command

    def _auth(self, entity):
        caps = self.users.get(entity)
        return None if caps is None else [{'key': 'secret', 'caps': caps}]

    def initialise_rbd_pool(self, name):
        self.prepared.append(name)

    def wait_until_clean(self, timeout_sec):
        self.asked.append(('wait', timeout_sec))


class ApplyTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.mon = FakeMonitor()
        self.conf_dir = self.useFixture(fixtures.TempDir()).path
        self.settings = layout.Settings(
            fsid='f',
            mon_addr='127.0.0.1',
            mon_port_v2=1,
            mon_port_v1=2,
            osd_classes=('nvme',),
            osd_gib=1,
            conf_dir=self.conf_dir,
            log_dir=self.conf_dir,
        )

    def apply(self, rules=(), pools=(), users=()):
        described = {'rules': list(rules), 'pools': list(pools), 'users': list(users)}
        return apply.Applier(self.mon, self.settings).apply(spec.parse(described), 7)

    def changing(self):
        return [entry for entry in self.mon.asked if entry[0] != 'wait']


NVME = {'name': 'nvme', 'device_class': 'nvme'}
HDD = {'name': 'hdd', 'device_class': 'hdd', 'failure_domain': 'host'}


class ApplyTest(ApplyTestCase):
    def test_nothing_differs(self):
        user = {'name': 'client.cinder', 'caps': {'mon': 'profile rbd'}}
        described = {
            'rules': [NVME, HDD],
            'pools': [{'name': 'volumes', 'rule': 'nvme', 'size': 2, 'min_size': 1}],
            'users': [user],
        }
        first = self.apply(**described)
        self.assertEqual(['keyring ceph.client.cinder.keyring written'], first['changes'])
        second = self.apply(**described)
        self.assertEqual({'changed': False, 'changes': [], 'kept': []}, second)
        self.assertEqual([], self.changing())
        self.assertEqual([('wait', 7), ('wait', 7)], self.mon.asked)

    def test_new_rule_and_pool(self):
        summary = self.apply(
            [{'name': 'ssd', 'device_class': 'ssd'}],
            [{'name': 'one', 'rule': 'ssd', 'size': 1, 'min_size': 1, 'pg_num': 8}],
        )
        self.assertEqual(['rule ssd created', 'pool one created'], summary['changes'])
        prefixes = [prefix for prefix, _ in self.changing()]
        self.assertEqual(
            [
                'osd crush rule create-replicated',
                'osd pool create',
                'osd pool set',
                'osd pool set',
                'osd pool application enable',
            ],
            prefixes,
        )
        single = {
            'pool': 'one',
            'var': 'size',
            'val': '1',
            'yes_i_really_mean_it': True,
        }
        self.assertEqual(single, self.changing()[2][1])
        self.assertEqual(['one'], self.mon.prepared)

    def test_new_coded_pool(self):
        self.apply([NVME], [{'name': 'cold', 'rule': 'nvme', 'erasure': {'k': 2, 'm': 1}}])
        asked = dict(self.changing())
        self.assertIn('crush-device-class=nvme', asked['osd erasure-code-profile set']['profile'])
        self.assertEqual('cold', asked['osd pool create']['erasure_code_profile'])
        self.assertEqual('allow_ec_overwrites', asked['osd pool set']['var'])
        self.assertEqual([], self.mon.prepared)

    def test_raises_what_is_too_low(self):
        summary = self.apply(
            [NVME], [{'name': 'volumes', 'rule': 'nvme', 'size': 3, 'min_size': 2, 'pg_num': 32}]
        )
        self.assertEqual(
            [
                'pool volumes: size 2 -> 3',
                'pool volumes: min_size 1 -> 2',
                'pool volumes: pg_num 16 -> 32',
            ],
            summary['changes'],
        )

    def test_keeps_what_is_higher(self):
        self.mon.pools = [pool('volumes', 1, size=3, min_size=2, pg_num=32)]
        summary = self.apply(
            [NVME], [{'name': 'volumes', 'rule': 'nvme', 'size': 2, 'min_size': 1, 'pg_num': 16}]
        )
        self.assertEqual([], self.changing())
        self.assertEqual(3, len(summary['kept']))

    def test_moves_a_pool_to_a_rule_that_is_as_wide(self):
        self.apply([HDD], [{'name': 'volumes', 'rule': 'hdd', 'size': 2}])
        self.assertEqual(
            [('osd pool set', {'pool': 'volumes', 'var': 'crush_rule', 'val': 'hdd'})],
            self.changing(),
        )

    def test_keeps_the_wider_failure_domain(self):
        self.mon.pools = [pool('volumes', 2)]
        summary = self.apply([NVME], [{'name': 'volumes', 'rule': 'nvme', 'size': 2}])
        self.assertEqual([], self.changing())
        self.assertEqual(['pool volumes: rule hdd has the wider failure domain'], summary['kept'])

    def test_user_is_made_and_its_keyring_is_private(self):
        summary = self.apply(
            users=[{'name': 'client.new', 'caps': {'osd': 'profile rbd', 'mon': 'allow r'}}]
        )
        self.assertEqual('user client.new created', summary['changes'][0])
        self.assertEqual(['mon', 'allow r', 'osd', 'profile rbd'], self.changing()[0][1]['caps'])
        path = os.path.join(self.conf_dir, 'ceph.client.new.keyring')
        with open(path) as stream:
            self.assertEqual('[client.new]\n\tkey = new\n', stream.read())
        self.assertEqual(0o640, os.stat(path).st_mode & 0o777)

    def test_caps_are_replaced_whole(self):
        self.apply(users=[{'name': 'client.cinder', 'caps': {'mon': 'allow r'}}])
        expected = {'entity': 'client.cinder', 'caps': ['mon', 'allow r']}
        self.assertEqual([('auth caps', expected)], self.changing())


class ContradictionTest(testscenarios.WithScenarios, ApplyTestCase):
    """What cannot be changed in place is an error, before anything is changed."""

    scenarios = [
        (
            'device class',
            {
                'pool': None,
                'described': {'rules': [{'name': 'nvme', 'device_class': 'hdd'}]},
                'words': 'rule nvme exists for nvme by osd',
            },
        ),
        (
            'type of pool',
            {
                'pool': pool('volumes', 1),
                'described': {
                    'rules': [NVME],
                    'pools': [{'name': 'volumes', 'rule': 'nvme', 'erasure': {'k': 2, 'm': 1}}],
                },
                'words': 'is of the other type',
            },
        ),
        (
            'code of pool',
            {
                'pool': pool('volumes', 1, erasure_code_profile='ec21'),
                'described': {
                    'rules': [NVME],
                    'pools': [{'name': 'volumes', 'rule': 'nvme', 'erasure': {'k': 4, 'm': 2}}],
                },
                'words': 'is coded 2+1, described 4+2',
            },
        ),
    ]

    def test_refused(self):
        if self.pool:
            self.mon.pools = [self.pool]
        error = self.assertRaises(UsageError, self.apply, **json.loads(json.dumps(self.described)))
        self.assertIn(self.words, str(error))
        self.assertEqual([], self.mon.asked)
