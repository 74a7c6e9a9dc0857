# SPDX-License-Identifier: Apache-2.0
"""The rows that are gathered, from Trove's tables and ours in one database."""

import types
import uuid

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import migration, policies, policy_record
from trove_ceph.doctor import records
from trove_ceph.tests.unit.taskmanager import trove_database


def conf(**values):
    backup = {'quiesce': 'ddl', 'unsafe_action': 'raise', 'tiers_file': '/no/file'} | values
    return types.SimpleNamespace(
        agent_heartbeat_expiry=99,
        enable_secure_rpc_messaging=False,
        trove_ceph_replication=types.SimpleNamespace(most_clone_depth=5),
        trove_ceph_backup=types.SimpleNamespace(**backup),
    )


class RecordsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        trove_database.path()
        self.instance = trove_database.add_instance(f'project-{uuid.uuid4()}', 'volume')
        self.policies = policies.PolicyStore()

    def _policy(self, scope, target):
        one = self.policies.add(
            'daily', scope, target, interval_min=60, keep=policy_record.Retention(last=1)
        )
        self.addCleanup(self.policies.remove, one.policy_id)
        return one

    def test_read(self):
        policy = self._policy(policy_record.Scope.INSTANCE, self.instance.id)
        found = records.read(conf())
        self.assertIn(self.instance.id, [one.instance_id for one in found.instances])
        self.assertIn(policy, found.policies)
        limits = found.limits
        self.assertEqual((99, 5), (limits.heartbeat_sec, limits.clone_depth))
        self.assertEqual(('ddl', 'raise'), (limits.quiesce, limits.unsafe_action))
        self.assertFalse(limits.needs_keys)
        self.assertEqual({}, found.tiers)

    def test_tiers_are_found_for_policies_of_tiers(self):
        self._policy(policy_record.Scope.TIER, f'tier-{uuid.uuid4()}')

        def refuse(conf):
            raise exceptions.ServiceUnavailableError('Cinder was asked')

        self.patch_tiers(refuse)
        self.assertRaisesRegex(
            exceptions.ServiceUnavailableError, 'Cinder was asked', records.read, conf()
        )

    def patch_tiers(self, replacement):
        original = records._tiers
        records._tiers = replacement
        self.addCleanup(setattr, records, '_tiers', original)

    def test_schema(self):
        required = migration.required_version()
        self.assertEqual(required, records.read_schema().required)
