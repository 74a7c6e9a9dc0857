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

    def create(self, role='member', project=None, **wanted):
        given = {
            'name': 'hourly',
            'scope': 'instance',
            'target': self.instance.id,
            'interval_min': 60,
            'keep': {'last': 24},
        }
        body = {'backup_policy': given | wanted}
        return self.ask('POST', '/backup_policies', body, project=project, role=role)

    def made(self, **wanted):
        status, body = self.create(**wanted)
        self.assertEqual(201, status, body)
        return body['backup_policy']

    def refused(self, answer, status, message):
        self.assertEqual(status, answer[0], answer[1])
        (fault,) = answer[1].values()
        self.assertIn(message, fault['message'])

    def test_least_interval(self):
        """The operator's, 15 minutes by default; what is not changed is not judged again."""
        self.refused(
            self.create(interval_min=14),
            400,
            'backup_policy.interval_min: 14 minutes are too short; the least interval of this '
            'cloud is 15 minutes',
        )
        made = self.made(interval_min=15)
        path = f'/backup_policies/{made["id"]}'
        change = {'backup_policy': {'interval_min': 5}}
        self.refused(self.ask('PATCH', path, change), 400, '5 minutes are too short')
        self.world.policies.change(made['id'], interval_min=5)
        status, _body = self.ask('PATCH', path, {'backup_policy': {'enabled': False}})
        self.assertEqual(200, status)

    def test_life_of_a_policy(self):
        made = self.made(at='02:30', timezone='Europe/Berlin', interval_min=1440, quiesce='ddl')
        self.assertEqual(self.world.project, made['project_id'])
        path = f'/backup_policies/{made["id"]}'
        status, body = self.ask('GET', path)
        self.assertEqual((200, made | {'runs': []}), (status, body['backup_policy']))
        _status, body = self.ask('GET', '/backup_policies')
        self.assertEqual([made], body['backup_policies'])
        changes = {'at': None, 'keep': {'daily': 7}, 'quiesce': None, 'enabled': False}
        status, body = self.ask('PATCH', path, {'backup_policy': changes})
        self.assertEqual(200, status, body)
        changed = self.world.policies.find(made['id'])
        self.assertEqual(
            (None, Retention(last=24, daily=7), None, False),
            (changed.at, changed.keep, changed.quiesce, changed.enabled),
        )
        self.assertEqual('Europe/Berlin', body['backup_policy']['timezone'])
        self.assertEqual((202, None), self.ask('DELETE', path))
        self.refused(self.ask('GET', path), 404, 'cannot be found')

    def test_what_it_last_did(self):
        made = self.made()
        policy = self.world.policies.find(made['id'])
        due_at = datetime.datetime(2026, 3, 1, 2, 30)
        run = self.world.policies.begin(
            policy, self.instance.id, due_at, 'hourly-1', None, world.WORKER
        )
        self.world.policies.note_failed(run, 'no quota', due_at)
        _status, body = self.ask('GET', f'/backup_policies/{made["id"]}')
        (shown,) = body['backup_policy']['runs']
        self.assertEqual(
            (self.instance.id, 'failed', '2026-03-01T02:30:00Z', 'no quota', 1),
            tuple(shown[name] for name in ('instance_id', 'state', 'due_at', 'error', 'attempts')),
        )

    def test_tenants_see_what_an_operators_policy_did(self):
        target = self.world.project
        made = self.made(scope='tier', target=target, role='admin')
        path = f'/backup_policies?instance_id={self.instance.id}'
        self.assertEqual((200, {'backup_policies': []}), self.ask('GET', path))
        policy = self.world.policies.find(made['id'])
        due_at = datetime.datetime(2026, 3, 1, 2, 30)
        run = self.world.policies.begin(
            policy, self.instance.id, due_at, 'hourly-1', None, world.WORKER
        )
        self.world.policies.note_failed(run, 'no quota', due_at)
        own = self.made(enabled=False)
        _status, body = self.ask('GET', path)
        shown = {one['id']: one['runs'] for one in body['backup_policies']}
        self.assertEqual({made['id'], own['id']}, set(shown))
        self.assertEqual([], shown[own['id']])
        self.assertEqual('no quota', shown[made['id']][0]['error'])
        self.assertEqual(404, self.ask('GET', f'/backup_policies/{made["id"]}')[0])
        self.assertEqual(404, self.ask('GET', path, project=self.world.other)[0])

    def test_asked_for_now(self):
        made = self.made()
        status, body = self.ask('POST', f'/backup_policies/{made["id"]}/run', {})
        self.assertEqual(202, status, body)
        self.assertIsNotNone(body['backup_policy']['run_wanted_at'])
        # A taskmanager looks at once.
        ((method, _context, arguments),) = self.world.casts
        self.assertEqual(('run_backup_policies', {}), (method, arguments))
        self.assertTrue(callable(manager.Manager.run_backup_policies))
        self.world.policies.change(made['id'], enabled=False)
        self.refused(self.ask('POST', f'/backup_policies/{made["id"]}/run'), 409, 'disabled')

    def test_tiers_that_there_are_not(self):
        tier = {'role': 'admin', 'scope': 'tier'}
        # Without the file nobody knows.
        self.assertEqual(201, self.create(target='unknown', **tier)[0])
        self.useFixture(world.TiersFile())
        self.world.app = world._app()
        for target in ('glod', 'archive'):
            answer = self.create(target=target, **tier)
            problem = f"target: '{target}' is not a tier of volumes; those are gold"
            self.refused(answer, 400, problem)
        self.assertEqual(201, self.create(target='gold', **tier)[0])

    def test_one_for_each_target(self):
        self.made()
        self.refused(self.create(), 409, f'instance {self.instance.id}: has a backup policy')

    def test_nobody_touches_anothers(self):
        made = self.made()
        path = f'/backup_policies/{made["id"]}'
        for method, suffix, body in (
            ('GET', '', None),
            ('PATCH', '', {'backup_policy': {'enabled': False}}),
            ('POST', '/run', {}),
            ('DELETE', '', None),
        ):
            answer = self.ask(method, path + suffix, body, project=self.world.other)
            self.refused(answer, 404, f'backup policy {made["id"]} cannot be found')
        self.refused(self.create(project=self.world.other), 404, 'instance')
        _status, body = self.ask('GET', '/backup_policies', project=self.world.other)
        self.assertEqual([], body['backup_policies'])
        self.assertTrue(self.world.policies.find(made['id']).enabled)
        status, _body = self.ask('GET', '/backup_policies?all_projects=1')
        self.assertEqual(403, status)
        # An administrator does, in the name of whose it is.
        answer = self.ask('GET', path, project=self.world.other, role='admin')
        self.assertEqual((200, self.world.project), (answer[0], made['project_id']))

    def test_operators_have_those_of_tiers_and_datastores(self):
        for scope, target in (('tier', 'nvme'), ('datastore', 'mysql'), ('datastore', 'mysql/9.7')):
            self.refused(self.create(scope=scope, target=target), 403, 'backup_policy:operate')
            made = self.made(scope=scope, target=target, role='admin')
            self.assertIsNone(made['project_id'])
            path = f'/backup_policies/{made["id"]}'
            self.assertEqual(404, self.ask('GET', path)[0])
            self.assertEqual(404, self.ask('DELETE', path)[0])
            self.assertEqual(200, self.ask('GET', path, role='admin')[0])
        _status, body = self.ask('GET', '/backup_policies')
        self.assertEqual([], body['backup_policies'])
        own = self.made()
        _status, body = self.ask('GET', '/backup_policies', project=self.world.other, role='admin')
        self.assertEqual(3, len(body['backup_policies']))
        _status, body = self.ask('GET', '/backup_policies?all_projects=1', role='admin')
        self.assertIn(own, body['backup_policies'])

    def test_targets_that_there_are_not(self):
        self.refused(self.create(target='gone'), 404, 'instance gone')
        self.instance.update(deleted=True)
        self.refused(self.create(), 404, self.instance.id)
        for target in ('oracle', 'mysql/1.0'):
            answer = self.create(scope='datastore', target=target, role='admin')
            self.refused(answer, 400, f"target: '{target}' is not a datastore")
        target = f'mysql/{trove_database.datastore_version()}'
        answer = self.create(scope='datastore', target=target, role='admin')
        self.refused(answer, 400, 'target: must be the name 9.7 instead of an id')

    def test_values_that_are_wrong(self):
        for wanted, message in (
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
        ):
            self.refused(self.create(**wanted), 400, message)
        self.assertEqual([], self.world.policies.all())

    def test_changes_that_are_wrong(self):
        made = self.made(interval_min=2880, at='02:30')
        path = f'/backup_policies/{made["id"]}'
        for changes, message in (
            ({}, 'backup_policy: must not be empty'),
            ({'interval_min': 2000}, 'whole days'),
            ({'keep': {'last': 0}}, 'no backup would be kept'),
            ({'target': 'x'}, 'target: not a key'),
        ):
            self.refused(self.ask('PATCH', path, {'backup_policy': changes}), 400, message)
        self.refused(self.ask('PATCH', path), 400, 'lacks backup_policy')
        # Trove's router has this one, too.
        self.refused(self.ask('GET', f'{path}/edit'), 400, 'lacks backup_policy')
