# SPDX-License-Identifier: Apache-2.0
"""Failover policies through Trove's own router."""

import uuid

from oslotest import base

from trove_ceph.db.policy_record import Scope
from trove_ceph.tests.unit.api import world
from trove_ceph.tests.unit.taskmanager import trove_database

PATH = '/failover_policies'


class FailoverPoliciesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World())
        self.instance = self.world.add_instance()
        self.ask = self.world.ask

    def create(self, scope='instance', target=None, role='member', project=None, **values):
        content = {'scope': scope, 'target': target or self.instance.id} | values
        return self.ask('POST', PATH, {'failover_policy': content}, project=project, role=role)

    def created(self, *arguments, **values):
        status, body = self.create(*arguments, **values)
        self.assertEqual(201, status, body)
        return body['failover_policy']

    def list(self, query='', **options):
        status, body = self.ask('GET', f'{PATH}{query}', **options)
        self.assertEqual(200, status, body)
        return body['failover_policies']

    def assert_refused(self, answer, status, message):
        self.assertEqual(status, answer[0], answer[1])
        (fault,) = answer[1].values()
        self.assertIn(message, fault['message'])

    def test_creates_changes_and_deletes(self):
        policy = self.created()
        self.assertEqual(
            ('instance', self.instance.id, True, self.world.project),
            tuple(policy[name] for name in ('scope', 'target', 'enabled', 'project_id')),
        )
        path = f'{PATH}/{policy["id"]}'
        self.assertEqual((200, {'failover_policy': policy}), self.ask('GET', path))
        change = {'failover_policy': {'enabled': False}}
        status, body = self.ask('PATCH', path, change)
        self.assertEqual((200, False), (status, body['failover_policy']['enabled']))
        self.assertFalse(self.world.failover_policies.find(policy['id']).enabled)
        self.assertEqual((202, None), self.ask('DELETE', path))
        self.assert_refused(self.ask('GET', path), 404, 'cannot be found')
        self.assertEqual([], self.list())

    def test_refuses_policies_without_effect(self):
        foreign = self.world.add_instance(version_id=trove_database.foreign_version())
        member = self.world.add_instance(cluster_id='cluster')
        for target, why in ((foreign.id, 'another guest agent'), (member.id, 'is in a cluster')):
            self.assert_refused(self.create(target=target), 400, why)
        for target in ('mysql/', '/'):
            answer = self.create('datastore', target, role='admin')
            self.assert_refused(answer, 400, 'has no version after the slash')
        self.assertEqual([], self.list('?all_projects=1', role='admin'))

    def test_a_disabled_policy(self):
        self.assertFalse(self.created(enabled=False)['enabled'])

    def test_what_a_policy_prefers(self):
        policy = self.created()
        self.assertEqual('volume', policy['prefer'])
        path = f'{PATH}/{policy["id"]}'
        _status, body = self.ask('PATCH', path, {'failover_policy': {'prefer': 'replica'}})
        changed = body['failover_policy']
        self.assertEqual((True, 'replica'), (changed['enabled'], changed['prefer']))
        empty = self.ask('PATCH', path, {'failover_policy': {}})
        self.assert_refused(empty, 400, 'must not be empty')
        self.ask('DELETE', path)
        self.assertEqual('replica', self.created(prefer='replica')['prefer'])

    def test_a_target_has_one_policy(self):
        self.created()
        self.assert_refused(self.create(), 409, 'has a failover policy')

    def test_refuses_bad_requests(self):
        for answer, status, message in (
            (self.create(target=str(uuid.uuid4())), 404, 'cannot be found'),
            (self.create('tier', 'gold'), 400, 'failover_policy.scope'),
            (self.create(enabled='yes'), 400, 'failover_policy.enabled: must be true or false'),
            (self.create(prefer='both'), 400, 'failover_policy.prefer'),
            (self.create('datastore', 'oracle', role='admin'), 400, 'is not a datastore'),
        ):
            self.assert_refused(answer, status, message)

    def test_only_operators_set_policies_for_datastores(self):
        trove_database.datastore_version()
        self.assertEqual(403, self.create('datastore', 'mysql')[0])
        policy = self.created('datastore', 'mysql', role='admin')
        self.assertIsNone(policy['project_id'])
        path = f'{PATH}/{policy["id"]}'
        for method, body in (
            ('GET', None),
            ('PATCH', {'failover_policy': {'enabled': False}}),
            ('DELETE', None),
        ):
            self.assert_refused(self.ask(method, path, body), 404, 'cannot be found')
            self.assertLess(self.ask(method, path, body, role='admin')[0], 300)

    def test_projects_do_not_see_each_other(self):
        policy = self.created()
        other = {'project': self.world.other}
        self.assert_refused(
            self.ask('GET', f'{PATH}/{policy["id"]}', **other), 404, 'cannot be found'
        )
        self.assert_refused(self.create(**other), 404, 'cannot be found')
        self.assertEqual([], self.list(**other))
        self.assertEqual(403, self.ask('GET', f'{PATH}?all_projects=1', **other)[0])
        self.assertEqual([policy], self.list('?all_projects=1', role='admin', **other))
        answer = self.ask('GET', f'{PATH}?instance_id={self.instance.id}', **other)
        self.assert_refused(answer, 404, 'cannot be found')

    def test_lists_what_matches_an_instance(self):
        """The first one applies, even if it is the operator's."""
        another = self.world.add_instance()
        self.world.failover_policies.add(Scope.INSTANCE, another.id, project_id=self.world.other)
        query = f'?instance_id={self.instance.id}'
        self.assertEqual([], self.list(query))
        of_datastore = self.created('datastore', 'mysql', role='admin')
        of_version = self.created('datastore', 'mysql/9.7', role='admin')
        own = self.created(enabled=False)
        self.assertEqual([own, of_version, of_datastore], self.list(query))
        self.assertEqual([own], self.list())
        self.assertEqual(3, len(self.list(role='admin')))
