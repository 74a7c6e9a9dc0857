# SPDX-License-Identifier: Apache-2.0
"""Backup policies through Trove's own router."""

import datetime

from oslotest import base

from trove_ceph.db.policy_record import Retention
from trove_ceph.taskmanager import manager
from trove_ceph.tests.unit.api import world
from trove_ceph.tests.unit.taskmanager import trove_database


class PoliciesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World())
        self.instance = self.world.add_instance()
        self.ask = self.world.ask

    def create(self, role='member', project=None, **values):
        defaults = {
            'name': 'hourly',
            'scope': 'instance',
            'target': self.instance.id,
            'interval_min': 60,
            'keep': {'last': 24},
        }
        body = {'backup_policy': defaults | values}
        return self.ask('POST', '/backup_policies', body, project=project, role=role)

    def create_policy(self, **values):
        status, body = self.create(**values)
        self.assertEqual(201, status, body)
        return body['backup_policy']

    def assert_refused(self, answer, status, message):
        self.assertEqual(status, answer[0], answer[1])
        (fault,) = answer[1].values()
        self.assertIn(message, fault['message'])

    def test_refuses_intervals_below_the_least_one(self):
        """The default is 15 minutes; an unchanged interval is not checked again."""
        self.assert_refused(
            self.create(interval_min=14),
            400,
            'backup_policy.interval_min: 14 minutes are too short; the least interval of this '
            'cloud is 15 minutes',
        )
        created = self.create_policy(interval_min=15)
        path = f'/backup_policies/{created["id"]}'
        change = {'backup_policy': {'interval_min': 5}}
        self.assert_refused(self.ask('PATCH', path, change), 400, '5 minutes are too short')
        self.world.policies.change(created['id'], interval_min=5)
        status, _body = self.ask('PATCH', path, {'backup_policy': {'enabled': False}})
        self.assertEqual(200, status)

    def test_creates_changes_and_deletes_a_policy(self):
        created = self.create_policy(
            at='02:30', timezone='Europe/Berlin', interval_min=1440, quiesce='ddl'
        )
        self.assertEqual(self.world.project, created['project_id'])
        path = f'/backup_policies/{created["id"]}'
        status, body = self.ask('GET', path)
        self.assertEqual((200, created | {'runs': []}), (status, body['backup_policy']))
        _status, body = self.ask('GET', '/backup_policies')
        self.assertEqual([created], body['backup_policies'])
        changes = {'at': None, 'keep': {'daily': 7}, 'quiesce': None, 'enabled': False}
        status, body = self.ask('PATCH', path, {'backup_policy': changes})
        self.assertEqual(200, status, body)
        changed = self.world.policies.find(created['id'])
        self.assertEqual(
            (None, Retention(last=24, daily=7), None, False),
            (changed.at, changed.keep, changed.quiesce, changed.enabled),
        )
        self.assertEqual('Europe/Berlin', body['backup_policy']['timezone'])
        self.assertEqual((202, None), self.ask('DELETE', path))
        self.assert_refused(self.ask('GET', path), 404, 'cannot be found')

    def test_shows_the_last_run(self):
        created = self.create_policy()
        policy = self.world.policies.find(created['id'])
        due_at = datetime.datetime(2026, 3, 1, 2, 30)
        run = self.world.policies.begin(
            policy, self.instance.id, due_at, 'hourly-1', None, world.WORKER
        )
        self.world.policies.record_failed(run, 'no quota', due_at)
        _status, body = self.ask('GET', f'/backup_policies/{created["id"]}')
        (shown,) = body['backup_policy']['runs']
        self.assertEqual(
            (self.instance.id, 'failed', '2026-03-01T02:30:00Z', 'no quota', 1),
            tuple(shown[name] for name in ('instance_id', 'state', 'due_at', 'error', 'attempts')),
        )

    def test_shows_tenants_the_runs_of_an_operators_policy(self):
        target = self.world.project
        created = self.create_policy(scope='tier', target=target, role='admin')
        path = f'/backup_policies?instance_id={self.instance.id}'
        self.assertEqual((200, {'backup_policies': []}), self.ask('GET', path))
        policy = self.world.policies.find(created['id'])
        due_at = datetime.datetime(2026, 3, 1, 2, 30)
        run = self.world.policies.begin(
            policy, self.instance.id, due_at, 'hourly-1', None, world.WORKER
        )
        self.world.policies.record_failed(run, 'no quota', due_at)
        own = self.create_policy(enabled=False)
        _status, body = self.ask('GET', path)
        shown = {one['id']: one['runs'] for one in body['backup_policies']}
        self.assertEqual({created['id'], own['id']}, set(shown))
        self.assertEqual([], shown[own['id']])
        self.assertEqual('no quota', shown[created['id']][0]['error'])
        self.assertEqual(404, self.ask('GET', f'/backup_policies/{created["id"]}')[0])
        self.assertEqual(404, self.ask('GET', path, project=self.world.other)[0])

    def test_requests_a_run(self):
        created = self.create_policy()
        status, body = self.ask('POST', f'/backup_policies/{created["id"]}/run', {})
        self.assertEqual(202, status, body)
        self.assertIsNotNone(body['backup_policy']['run_wanted_at'])
        # A taskmanager is notified.
        ((method, _context, arguments),) = self.world.casts
        self.assertEqual(('run_backup_policies', {}), (method, arguments))
        self.assertTrue(callable(manager.Manager.run_backup_policies))
        self.world.policies.change(created['id'], enabled=False)
        self.assert_refused(
            self.ask('POST', f'/backup_policies/{created["id"]}/run'), 409, 'disabled'
        )

    def test_refuses_unknown_tiers(self):
        tier = {'role': 'admin', 'scope': 'tier'}
        # Without the tiers file there is no check.
        self.assertEqual(201, self.create(target='unknown', **tier)[0])
        self.useFixture(world.TiersFile())
        self.world.app = world._app()
        for target in ('glod', 'archive'):
            answer = self.create(target=target, **tier)
            problem = f"target: '{target}' is not a tier of volumes; those are gold"
            self.assert_refused(answer, 400, problem)
        self.assertEqual(201, self.create(target='gold', **tier)[0])

    def test_refuses_a_second_policy_of_a_target(self):
        created = self.create_policy()
        answer = self.create(name='another', interval_min=30)
        self.assert_refused(answer, 409, f'instance {self.instance.id} has a backup policy')
        _status, body = self.ask('GET', '/backup_policies')
        self.assertEqual([created], body['backup_policies'])

    def test_hides_policies_of_other_projects(self):
        created = self.create_policy()
        path = f'/backup_policies/{created["id"]}'
        for method, suffix, body in (
            ('GET', '', None),
            ('PATCH', '', {'backup_policy': {'enabled': False}}),
            ('POST', '/run', {}),
            ('DELETE', '', None),
        ):
            answer = self.ask(method, path + suffix, body, project=self.world.other)
            self.assert_refused(answer, 404, f'backup policy {created["id"]} cannot be found')
        self.assert_refused(self.create(project=self.world.other), 404, 'instance')
        _status, body = self.ask('GET', '/backup_policies', project=self.world.other)
        self.assertEqual([], body['backup_policies'])
        self.assertTrue(self.world.policies.find(created['id']).enabled)
        status, _body = self.ask('GET', '/backup_policies?all_projects=1')
        self.assertEqual(403, status)
        # An administrator may, and the policy stays with its project.
        answer = self.ask('GET', path, project=self.world.other, role='admin')
        self.assertEqual((200, self.world.project), (answer[0], created['project_id']))

    def test_operators_set_policies_of_tiers_and_datastores(self):
        for scope, target in (('tier', 'nvme'), ('datastore', 'mysql'), ('datastore', 'mysql/9.7')):
            self.assert_refused(
                self.create(scope=scope, target=target), 403, 'backup_policy:operate'
            )
            created = self.create_policy(scope=scope, target=target, role='admin')
            self.assertIsNone(created['project_id'])
            path = f'/backup_policies/{created["id"]}'
            self.assertEqual(404, self.ask('GET', path)[0])
            self.assertEqual(404, self.ask('DELETE', path)[0])
            self.assertEqual(200, self.ask('GET', path, role='admin')[0])
        _status, body = self.ask('GET', '/backup_policies')
        self.assertEqual([], body['backup_policies'])
        own = self.create_policy()
        _status, body = self.ask('GET', '/backup_policies', project=self.world.other, role='admin')
        self.assertEqual(3, len(body['backup_policies']))
        _status, body = self.ask('GET', '/backup_policies?all_projects=1', role='admin')
        self.assertIn(own, body['backup_policies'])

    def test_refuses_unknown_targets(self):
        self.assert_refused(self.create(target='gone'), 404, 'instance gone')
        self.instance.update(deleted=True)
        self.assert_refused(self.create(), 404, self.instance.id)
        for target in ('oracle', 'mysql/1.0'):
            answer = self.create(scope='datastore', target=target, role='admin')
            self.assert_refused(answer, 400, f"target: '{target}' is not a datastore")
        target = f'mysql/{trove_database.datastore_version()}'
        answer = self.create(scope='datastore', target=target, role='admin')
        self.assert_refused(answer, 400, 'target: must be the name 9.7 instead of an id')

    def test_refuses_instances_of_other_guest_agents(self):
        """Their backups are Trove's own, and the policy would take none."""
        self.instance.update(datastore_version_id=trove_database.foreign_version())
        message = f'instance {self.instance.id}: its datastore version has another guest agent'
        self.assert_refused(self.create(), 400, message)

    def test_refuses_invalid_values(self):
        for values, message in (
            ({'interval_min': 0}, 'interval_min: 0 is too small; the least is 1'),
            ({'interval_min': '60'}, 'interval_min: must be a number from 1 to'),
            (
                {'interval_min': 2000, 'at': '02:30'},
                'interval_min: 2000 minutes are not a number of whole days',
            ),
            ({'at': '25:00'}, 'at: must be a time of day such as 02:30'),
            ({'timezone': 'Europe/Nowhere'}, "timezone: 'Europe/Nowhere' is not a time zone"),
            ({'timezone': '../../etc/passwd'}, 'timezone: must be the name of a time zone'),
            ({'keep': {}}, 'keep: no backup would be kept'),
            ({'keep': {'hourly': 0}}, 'keep: no backup would be kept'),
            ({'keep': {'yearly': 1}}, 'keep.yearly: not a key'),
            ({'keep': {'last': -1}}, 'keep.last: -1 is too small'),
            ({'quiesce': 'deep'}, 'quiesce: must be one of none, ddl, freeze'),
            ({'scope': 'cloud'}, "scope: 'cloud' is not known"),
            ({'name': 'a b'}, 'name: must be up to 64 letters, digits'),
            ({'copy_each': 1}, 'did you mean copy_every?'),
            ({'project_id': 'x'}, 'project_id: not a key'),
            ({'quiesce': 'none\n'}, 'quiesce: must be one of none, ddl, freeze'),
            ({'at': '02:30\n'}, 'at: must be a time of day such as 02:30'),
            ({'name': 'hourly\n'}, 'name: must be up to 64 letters, digits'),
        ):
            self.assert_refused(self.create(**values), 400, message)
        self.assertEqual([], self.world.policies.all())

    def test_refuses_invalid_changes(self):
        created = self.create_policy(interval_min=2880, at='02:30')
        path = f'/backup_policies/{created["id"]}'
        for changes, message in (
            ({}, 'backup_policy: must not be empty'),
            ({'interval_min': 2000}, 'whole days'),
            ({'keep': {'last': 0}}, 'no backup would be kept'),
            ({'target': 'x'}, 'target: not a key'),
        ):
            self.assert_refused(self.ask('PATCH', path, {'backup_policy': changes}), 400, message)
        self.assert_refused(self.ask('PATCH', path), 400, 'lacks backup_policy')
        # Trove's router maps this request to the same method.
        self.assertEqual(404, self.ask('GET', f'{path}/edit')[0])
