# SPDX-License-Identifier: Apache-2.0
"""Reading the description of a cluster's rules, pools and users."""

import json
import os

import fixtures
import testscenarios
from oslotest import base

from cephcluster import spec
from cephcluster.errors import UsageError

RULE = {'name': 'r', 'device_class': 'nvme'}
POOL = {'name': 'p', 'rule': 'r', 'size': 2}
CODED = {'name': 'p', 'rule': 'r', 'erasure': {'k': 2, 'm': 1}}
USER = {'name': 'client.cinder', 'caps': {'mon': 'profile rbd'}}


class SpecTest(base.BaseTestCase):
    def test_defaults(self):
        parsed = spec.parse({'rules': [RULE], 'pools': [POOL, {**CODED, 'name': 'q'}]})
        self.assertEqual('osd', parsed.rules[0].failure_domain)
        self.assertEqual((16, 'rbd', None), self._shape(parsed.pools[0]))
        self.assertEqual(('jerasure', 2, 1), self._code(parsed.pools[1]))
        self.assertEqual((), parsed.users)

    @staticmethod
    def _shape(pool):
        return pool.pg_num, pool.application, pool.erasure

    @staticmethod
    def _code(pool):
        return pool.erasure.plugin, pool.erasure.k, pool.erasure.m

    def test_load(self):
        path = os.path.join(self.useFixture(fixtures.TempDir()).path, 'spec.json')
        with open(path, 'w') as stream:
            json.dump({'users': [USER]}, stream)
        self.assertEqual({'mon': 'profile rbd'}, spec.load(path).users[0].caps)
        self.assertRaises(UsageError, spec.load, path + '.absent')
        with open(path, 'w') as stream:
            stream.write('{"users": [')
        error = self.assertRaises(UsageError, spec.load, path)
        self.assertIn(path, str(error))


class BadSpecTest(testscenarios.WithScenarios, base.BaseTestCase):
    """Each impossible description is refused with the place and the reason."""

    scenarios = [
        (words, {'document': document, 'words': words})
        for document, words in (
            ([], 'must be a JSON object'),
            ({'pool': []}, 'unknown part of the description: pool'),
            ({'rules': ['r']}, "rule: expected an object, found 'r'"),
            ({'rules': [{'name': 'r'}]}, 'rule r: device_class is missing'),
            ({'rules': [{**RULE, 'class': 'x'}]}, 'rule r: unknown class'),
            ({'rules': [{**RULE, 'failure_domain': 'disk'}]}, 'failure_domain disk is none of'),
            ({'rules': [RULE, RULE]}, 'rule described twice: r'),
            ({'pools': [POOL]}, 'pool p: rule r is not described'),
            ({'rules': [RULE], 'pools': [{'name': 'p', 'rule': 'r'}]}, 'pool p: size is missing'),
            ({'rules': [RULE], 'pools': [{**POOL, 'size': '2'}]}, "pool p: size cannot be '2'"),
            ({'rules': [RULE], 'pools': [{**POOL, 'size': True}]}, 'pool p: size cannot be True'),
            ({'rules': [RULE], 'pools': [{**POOL, 'pg_num': 0}]}, 'pool p: pg_num is 0'),
            ({'rules': [RULE], 'pools': [{**POOL, 'min_size': 3}]}, 'must be from 1 to 2'),
            ({'rules': [RULE], 'pools': [{**CODED, 'size': 2}]}, 'size is 2, but k + m is 3'),
            ({'rules': [RULE], 'pools': [{**CODED, 'min_size': 1}]}, 'must be from 2 to 3'),
            (
                {'rules': [RULE], 'pools': [{**CODED, 'erasure': {'k': 1, 'm': 1}}]},
                'erasure needs k >= 2 and m >= 1',
            ),
            (
                {'rules': [RULE], 'pools': [{**CODED, 'erasure': {'k': 2}}]},
                'erasure of pool p : m is missing',
            ),
            ({'users': [{**USER, 'name': 'cinder'}]}, 'the name must be client.<id>'),
            ({'users': [{**USER, 'name': 'client.admin'}]}, 'belongs to the cluster'),
            ({'users': [{**USER, 'caps': {'disk': 'allow'}}]}, 'caps for unknown disk'),
            ({'users': [{**USER, 'caps': {'mon': 1}}]}, 'caps cannot be'),
        )
    ]

    def test_refused(self):
        error = self.assertRaises(UsageError, spec.parse, self.document)
        self.assertIn(self.words, str(error))
