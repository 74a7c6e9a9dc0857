# SPDX-License-Identifier: Apache-2.0
"""What all resources do with faults of the database, and with unusual requests."""

import fixtures
import oslo_db.exception
from oslotest import base
from trove.instance import models as instance_models

from trove_ceph.tests.unit.api import world


def fail(*_arguments, **_conditions):
    raise oslo_db.exception.DBConnectionError(Exception('db.example.org'))


class RequestsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World())
        self.instance = self.world.add_instance()
        self.ask = self.world.ask

    def assert_unavailable(self, method, path, body=None, role='member'):
        status, answer = self.ask(method, path, body, role=role)
        self.assertEqual(503, status, (path, answer))
        message = answer['serviceUnavailable']['message']
        self.assertIn('repeat the request later', message)
        self.assertNotIn('example.org', message)

    def test_report_that_troves_tables_do_not_answer(self):
        backup = self.world.add_backup(self.instance, 'taken')
        replica = self.world.add_replica(self.instance)
        for name in (
            'backup.models.DBBackup.find_all',
            'instance.models.DBInstance.find_all',
            'instance.models.DBInstance.find_by_filter',
            'datastore.models.Datastore.load',
        ):
            self.useFixture(fixtures.MonkeyPatch(f'trove.{name}', fail))
        for path in (
            '/backup_details',
            f'/backup_details/{backup.id}',
            '/instance_details',
            f'/instance_details/{self.instance.id}',
            '/replication',
            f'/replication/{replica.id}',
            f'/replication_policies/{self.instance.id}',
            f'/backup_policies?instance_id={self.instance.id}',
        ):
            self.assert_unavailable('GET', path)
        self.assert_unavailable('POST', f'/backup_details/{backup.id}/copy')
        policy = {'scope': 'datastore', 'target': 'mysql'}
        self.assert_unavailable(
            'POST', '/failover_policies', {'failover_policy': policy}, role='admin'
        )

    def test_report_that_one_of_several_reads_fails(self):
        self.world.add_replica(self.instance)
        target = {'scope': 'instance', 'target': self.instance.id}
        for name, method, path, body in (
            (
                'instance.models.InstanceServiceStatus.find_by_filter',
                'GET',
                '/instance_details',
                None,
            ),
            (
                'instance.models.DBInstance.find_by_filter',
                'GET',
                f'/replication/{self.instance.id}',
                None,
            ),
            (
                'datastore.models.DatastoreVersion.load_by_uuid',
                'POST',
                '/failover_policies',
                {'failover_policy': target},
            ),
            (
                'datastore.models.DatastoreVersion.load_by_uuid',
                'PUT',
                f'/replication_policies/{self.instance.id}',
                {'replication_policy': {}},
            ),
            (
                'backup.models.DBBackup.create',
                'POST',
                '/backup_details',
                {'backup_detail': {'instance': self.instance.id, 'name': 'x'}},
            ),
        ):
            with fixtures.MonkeyPatch(f'trove.{name}', fail):
                self.assert_unavailable(method, path, body)

    def test_a_get_changes_nothing(self):
        keep = {'keep': {'last': 3}}
        target = {'scope': 'instance', 'target': self.instance.id}
        for key, values, change in (
            ('backup_policy', {'name': 'p', 'interval_min': 60, **keep}, {'enabled': False}),
            ('failover_policy', {}, {'enabled': False}),
        ):
            path = f'/{key[:-1]}ies'
            status, body = self.ask('POST', path, {key: target | values})
            self.assertEqual(201, status, body)
            path = f'{path}/{body[key]["id"]}'
            self.assertEqual(404, self.ask('GET', f'{path}/edit', {key: change})[0])
            _status, body = self.ask('GET', path)
            self.assertTrue(body[key]['enabled'])
            self.assertEqual(200, self.ask('PATCH', path, {key: change})[0])

    def test_ignore_a_body_that_they_do_not_read(self):
        for path in ('/backup_details', f'/instance_details/{self.instance.id}'):
            self.assertEqual(200, self.ask('GET', path, {})[0], path)
        path = f'/replication_policies/{self.instance.id}'
        self.assertEqual(202, self.ask('DELETE', path, {})[0])

    def test_regard_an_instance_by_the_id_that_trove_has(self):
        """MySQL finds the id in any case, but what is recorded is compared exactly."""
        find_all = instance_models.DBInstance.find_all
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.instance.models.DBInstance.find_all',
                lambda **query: find_all(**query | {'id': query['id'].lower()}),
            )
        )
        other_case = self.instance.id.upper()
        policy = {'name': 'p', 'interval_min': 60, 'keep': {'last': 3}}
        policy |= {'scope': 'instance', 'target': other_case}
        self.assertEqual(201, self.ask('POST', '/backup_policies', {'backup_policy': policy})[0])
        _status, body = self.ask('GET', f'/backup_policies?instance_id={other_case}')
        self.assertEqual([self.instance.id], [one['target'] for one in body['backup_policies']])
        request = {'backup_detail': {'instance': other_case, 'name': 'x'}}
        status, body = self.ask('POST', '/backup_details', request)
        self.assertEqual(202, status, body)
        self.assertEqual(self.instance.id, body['backup_detail']['instance_id'])
