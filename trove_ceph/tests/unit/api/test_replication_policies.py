# SPDX-License-Identifier: Apache-2.0
"""Replication policies through Trove's own router."""

import json

from oslotest import base

from trove_ceph.tests.unit.api import world
from trove_ceph.tests.unit.taskmanager import trove_database

DEFAULTS = {'reprovision_every_hours': 0, 'max_own_percent': 0, 'max_lag_sec': 3600}


def tier(volume_type, purpose='data', public=None, versions=()):
    """Return a tier of a tiers file."""
    public = {} if public is None else {'public': public}
    return {
        'purpose': purpose,
        'pool': f'pool-of-{volume_type}',
        'copies': 2,
        'placement_groups': {'count': 32},
        'volume_type': {'name': volume_type, 'backend': volume_type, **public},
        **({'datastore_versions': list(versions)} if versions else {}),
    }


class ReplicationPoliciesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World())
        self.source = self.world.add_instance()
        self.path = f'/replication_policies/{self.source.id}'

    def set(self, path=None, role='member', project=None, **values):
        body = {'replication_policy': values}
        return self.world.ask('PUT', path or self.path, body, project=project, role=role)

    def show(self, **options):
        status, body = self.world.ask('GET', self.path, **options)
        self.assertEqual(200, status, body)
        return body['replication_policy']

    def assert_refused(self, answer, status, message):
        self.assertEqual(status, answer[0], answer[1])
        (fault,) = answer[1].values()
        self.assertIn(message, fault['message'])

    def test_shows_the_defaults_of_a_source_without_a_policy(self):
        self.assertEqual(
            {
                'instance_id': self.source.id,
                'semi_sync': False,
                'reprovision_every_hours': None,
                'max_own_percent': None,
                'max_lag_sec': None,
                'replica_volume_type': None,
                'defaults': DEFAULTS,
                'created_at': None,
                'updated_at': None,
            },
            self.show(),
        )

    def test_sets_and_deletes_a_policy(self):
        status, body = self.set(semi_sync=True, reprovision_every_hours=24)
        self.assertEqual(200, status, body)
        shown = body['replication_policy']
        self.assertEqual((True, 24), (shown['semi_sync'], shown['reprovision_every_hours']))
        self.assertEqual('2026-01-01T12:00:00Z', shown['created_at'])
        self.assertEqual(shown, self.show())
        # Others stay; null is the operator's default.
        _status, body = self.set(reprovision_every_hours=None, max_lag_sec=0)
        shown = body['replication_policy']
        self.assertEqual(
            (True, None, 0),
            tuple(shown[one] for one in ('semi_sync', 'reprovision_every_hours', 'max_lag_sec')),
        )
        self.assertEqual(202, self.world.ask('DELETE', self.path)[0])
        self.assertIsNone(self.show()['created_at'])
        self.assertEqual(202, self.world.ask('DELETE', self.path)[0])

    def test_refuses_invalid_values(self):
        for values, message in (
            ({'semi_sync': 'yes'}, 'replication_policy.semi_sync: must be true or false'),
            ({'max_own_percent': 101}, 'max_own_percent: 101 is too large; the most is 100'),
            ({'max_lag_sec': -1}, 'max_lag_sec: -1 is too small'),
            ({'reprovision_every_hours': 1.5}, 'reprovision_every_hours: must be a number'),
            ({'max_lag': 1}, 'did you mean max_lag_sec?'),
            (
                {'replica_volume_type': ''},
                'replication_policy.replica_volume_type: must be the name of a volume type, or '
                'null',
            ),
            ({'replica_volume_type': 'x' * 256}, 'must be the name of a volume type, or null'),
            ({'replica_volume_type': 1}, 'must be the name of a volume type, or null'),
        ):
            self.assert_refused(self.set(**values), 400, message)
        answer = self.world.ask('PUT', self.path, {})
        self.assert_refused(answer, 400, 'lacks replication_policy')
        self.assertEqual([], self.world.replication_policies.all())

    def use_tiers(self, **tiers):
        """Set the tiers of the file, each by its name with the keys that matter."""
        self.useFixture(world.TiersFile(json.dumps({'tiers': tiers})))
        self.world.restart()

    def test_volume_type_of_replicas(self):
        self.use_tiers(gold=tier('nvme'), single=tier('one-copy', purpose='replica'))
        for name in ('nvme', 'one-copy'):
            status, body = self.set(replica_volume_type=name)
            self.assertEqual(200, status, body)
            self.assertEqual(name, self.show()['replica_volume_type'])
        self.set(max_lag_sec=1)
        self.assertEqual('one-copy', self.show()['replica_volume_type'])
        status, body = self.set(replica_volume_type=None)
        self.assertEqual(200, status, body)
        self.assertIsNone(self.show()['replica_volume_type'])

    def test_refuses_a_volume_type_that_is_of_no_fitting_tier(self):
        self.use_tiers(
            gold=tier('nvme'),
            single=tier('one-copy', purpose='replica'),
            archive=tier('tape', purpose='vault'),
            internal=tier('internal', public=False),
            other=tier('other', versions=['mysql/8.4']),
            same=tier('same', versions=['mysql/9.7', 'mysql/8.4']),
        )
        for name in ('gold', 'tape', 'internal', 'other', 'default'):
            self.assert_refused(
                self.set(replica_volume_type=name, semi_sync=True),
                400,
                f"replication_policy.replica_volume_type: '{name}' is no volume type for the "
                'replicas of this instance; those are nvme, one-copy, same',
            )
        self.assertEqual([], self.world.replication_policies.all())
        self.assertEqual(200, self.set(replica_volume_type='same')[0])
        # What the tiers file restricts to operators is not hidden from these.
        self.assertEqual(200, self.set(replica_volume_type='internal', role='admin')[0])

    def test_refuses_a_volume_type_that_cannot_be_checked(self):
        answer = self.set(replica_volume_type='nvme')
        self.assert_refused(answer, 503, 'volume types for replicas cannot be listed at present')
        self.assertEqual([], self.world.replication_policies.all())
        self.assertEqual(200, self.set(replica_volume_type=None)[0])

    def test_refuses_replicas(self):
        replica = self.world.add_replica(self.source)
        path = f'/replication_policies/{replica.id}'
        for answer in (
            self.set(path, semi_sync=True),
            self.world.ask('GET', path),
            self.world.ask('DELETE', path),
        ):
            self.assert_refused(answer, 400, f'use the policy of its source {self.source.id}')
        self.assertEqual([], self.world.replication_policies.all())

    def test_refuses_instances_of_other_guest_managers(self):
        foreign = self.world.add_instance(version_id=trove_database.foreign_version())
        answer = self.set(f'/replication_policies/{foreign.id}', semi_sync=True)
        self.assert_refused(answer, 400, f'instance {foreign.id}: its datastore version')

    def test_hides_policies_of_other_projects(self):
        other = {'project': self.world.other}
        for answer in (
            self.set(semi_sync=True, **other),
            self.world.ask('GET', self.path, **other),
            self.world.ask('DELETE', self.path, **other),
        ):
            self.assert_refused(answer, 404, f'instance {self.source.id} cannot be found')
        self.assertEqual([], self.world.replication_policies.all())
        admin = other | {'role': 'admin'}
        self.assertEqual(200, self.set(semi_sync=True, **admin)[0])
        self.assertTrue(self.show()['semi_sync'])

    def test_refuses_instances_that_do_not_exist(self):
        self.source.update(deleted=True)
        for method in ('GET', 'DELETE'):
            answer = self.world.ask(method, self.path)
            self.assert_refused(answer, 404, f'instance {self.source.id} cannot be found')
