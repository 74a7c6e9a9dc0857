# SPDX-License-Identifier: Apache-2.0
"""Failovers through Trove's own router."""

import dataclasses
import datetime

import fixtures
import oslo_db.exception
from oslo_policy import policy as oslo_policy
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import policy as trove_policy
from trove.instance.service_status import ServiceStatuses
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions
from trove_ceph.api import rules
from trove_ceph.db.replacement_record import FailoverCause, ReplacementKind
from trove_ceph.taskmanager import manager
from trove_ceph.tests.unit.api import world
from trove_ceph.tests.unit.taskmanager import trove_database

CONF = trove_cfg.CONF
MINUTE = datetime.timedelta(minutes=1)


class FailoversTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World())
        self.instance = self.world.add_instance()
        self.ask = self.world.ask

    def request(self, role='member', project=None, **values):
        body = {'failover': {'instance': self.instance.id} | values}
        return self.ask('POST', '/failovers', body, project=project, role=role)

    def fail_over(self, **values):
        """Request a failover, and return what is shown of it."""
        status, body = self.request(**values)
        self.assertEqual(202, status, body)
        return body['failover']

    def list(self, query='', **options):
        status, body = self.ask('GET', f'/failovers{query}', **options)
        self.assertEqual(200, status, body)
        return body['failovers']

    def assert_refused(self, answer, status, message):
        self.assertEqual(status, answer[0], answer[1])
        (fault,) = answer[1].values()
        self.assertIn(message, fault['message'])

    def test_requests_a_failover(self):
        shown = self.fail_over(reason='no answer since 12:04')
        self.assertEqual(
            {
                'id': shown['id'],
                'instance_id': self.instance.id,
                'project_id': self.world.project,
                'state': 'requested',
                'requested_by': 'tenant',
                'reason': 'no answer since 12:04',
                'force': False,
                'cause': 'request',
                'step': None,
                'error': None,
                'attempts': 0,
                'promoted_id': None,
                'created_at': '2026-01-01T12:00:00Z',
                'updated_at': '2026-01-01T12:00:00Z',
                'fenced_at': None,
                'moved_at': None,
                'ended_at': None,
            },
            shown,
        )
        record = self.world.replacements.find(shown['id'])
        self.assertEqual(
            (ReplacementKind.FAILOVER, self.instance.volume_id), (record.kind, record.volume_id)
        )
        task = trove_database.instance(self.instance.id).task_status
        self.assertEqual(InstanceTasks.MIGRATING, task)
        # A taskmanager is notified.
        ((method, _context, arguments),) = self.world.casts
        self.assertEqual({}, arguments)
        self.assertTrue(callable(getattr(manager.Manager, method)))

    def test_shows_a_failover(self):
        shown = self.fail_over()
        path = f'/failovers/{shown["id"]}'
        self.assertEqual((200, {'failover': shown}), self.ask('GET', path))
        self.world.fail_over(shown['id'], step='attaching the ports', error='Nova is down')
        _status, body = self.ask('GET', path)
        self.assertEqual(
            ('moving', 'attaching the ports', 'Nova is down', '2026-01-01T12:00:00Z'),
            tuple(body['failover'][name] for name in ('state', 'step', 'error', 'fenced_at')),
        )

    def test_shows_servers_to_administrators(self):
        shown = self.fail_over()
        self.world.fail_over(shown['id'], old_host='compute-1')
        path = f'/failovers/{shown["id"]}'
        self.assertNotIn('compute-1', str(self.ask('GET', path)))
        _status, body = self.ask('GET', path, role='admin')
        self.assertEqual(
            (self.instance.compute_instance_id, 'compute-1', self.instance.volume_id, None),
            tuple(
                body['failover'][name]
                for name in ('old_server_id', 'old_host', 'volume_id', 'new_host')
            ),
        )

    def test_refuses_healthy_instances_unless_forced(self):
        self.world.report(self.instance)
        self.assert_refused(self.request(), 409, 'is healthy')
        self.assertEqual([], self.list())
        task = trove_database.instance(self.instance.id).task_status
        self.assertEqual(InstanceTasks.NONE, task)
        self.assertTrue(self.fail_over(force=True)['force'])

    def test_accepts_instances_that_report_a_failure(self):
        self.world.report(self.instance, ServiceStatuses.SHUTDOWN)
        self.assertEqual('requested', self.fail_over()['state'])

    def test_refuses_a_second_failover(self):
        self.fail_over()
        for force in (False, True):
            self.assert_refused(self.request(force=force), 409, self.instance.id)
        self.assertEqual(1, len(self.list()))

    def test_refuses_an_instance_whose_task_has_just_changed(self):
        """The store decides, in the transaction of the request."""
        request = self.world.replacements.request

        def late(record, **options):
            self.instance.update(task_status=InstanceTasks.REBOOTING)
            return request(record, **options)

        self.world.replacements.request = late
        self.assert_refused(self.request(), 409, 'cannot be replaced now')
        self.assertEqual([], self.world.casts)

    def test_refuses_an_instance_that_is_gone_meanwhile(self):
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.trove_adapter.replaced_instance.find_facts', lambda _id: None
            )
        )
        self.assert_refused(self.request(), 404, self.instance.id)

    def test_limits_how_often_an_instance_is_forced(self):
        for _ in range(3):
            shown = self.fail_over(force=True)
            self.world.end(shown['id'])
            self.world.now += 10 * MINUTE
        answer = self.request(force=True)
        self.assert_refused(
            answer,
            413,
            f'instance {self.instance.id}: 3 failovers were forced within an hour; force the next '
            'one after 2026-01-01T13:00:00Z',
        )
        # One that has failed is not held up.
        self.world.end(self.fail_over()['id'])
        self.world.now += 31 * MINUTE
        self.fail_over(force=True)

    def test_forced_ones_of_a_time_to_come_do_not_count(self):
        """The clock of the database was ahead."""
        now = self.world.now
        self.world.now += 60 * 24 * 30 * MINUTE
        for _ in range(3):
            self.world.end(self.fail_over(force=True)['id'])
        self.world.now = now
        self.fail_over(force=True)

    def test_resizes_and_moves_of_a_host_are_not_forced_failovers(self):
        for _ in range(3):
            shown = self.fail_over(force=True)
            self.world.end(shown['id'])
        records = self.world.replacements.list(instance_id=self.instance.id)
        others = [
            dataclasses.replace(records[0], kind=ReplacementKind.RESIZE, cause=None),
            dataclasses.replace(records[1], cause=FailoverCause.MAINTENANCE),
            records[2],
        ]
        self.world.replacements.list = lambda **_options: others
        self.assertTrue(self.fail_over(force=True)['force'])

    def test_hides_failovers_of_other_projects(self):
        shown = self.fail_over()
        other = {'project': self.world.other}
        path = f'/failovers/{shown["id"]}'
        self.assert_refused(self.ask('GET', path, **other), 404, 'cannot be found')
        self.assertEqual([], self.list(**other))
        self.assertEqual([], self.list(f'?instance_id={self.instance.id}', **other))
        self.assert_refused(self.request(**other), 404, f'instance {self.instance.id} cannot be')
        self.assert_refused(self.ask('GET', '/failovers?all_projects=1'), 403, 'all_projects')
        self.assert_refused(self.ask('GET', '/failovers/none'), 404, 'failover none cannot be')

    def test_operators_fail_over_instances_of_all_projects(self):
        admin = {'project': self.world.other, 'role': 'admin'}
        shown = self.fail_over(**admin)
        self.assertEqual(
            ('operator', self.world.project), (shown['requested_by'], shown['project_id'])
        )
        self.assertEqual([], self.list(**admin))
        for query in ('?all_projects=1', f'?instance_id={self.instance.id}'):
            (found,) = self.list(query, **admin)
            self.assertEqual(shown['id'], found['id'])
        # The tenant sees that it was the operator.
        self.assertEqual('operator', self.list()[0]['requested_by'])

    def test_lists_failovers(self):
        other = self.world.add_instance()
        first = self.fail_over()
        self.world.now += MINUTE
        second = self.fail_over(instance=other.id)
        self.assertEqual([second, first], self.list())
        self.assertEqual([first], self.list(f'?instance_id={self.instance.id}'))

    def test_lists_in_pages(self):
        expected = []
        for _ in range(5):
            expected.insert(0, self.fail_over(instance=self.world.add_instance().id)['id'])
            self.world.now += MINUTE
        listed, path = [], '/failovers?limit=2'
        for length in (2, 2, 1):
            _status, body = self.ask('GET', path)
            self.assertEqual(length, len(body['failovers']))
            self.assertEqual(length == 2, bool(body.get('links')))
            listed += [one['id'] for one in body['failovers']]
            path = f'/failovers?limit=2&marker={listed[-1]}'
        self.assertEqual(expected, listed)

    def test_leaves_out_replacements_for_a_resize(self):
        shown = self.fail_over()
        record = self.world.replacements.find(shown['id'])
        resize = dataclasses.replace(record, kind=ReplacementKind.RESIZE)
        self.world.replacements.find = lambda _id: resize
        self.world.replacements.list = lambda **_options: [resize]
        self.assertEqual([], self.list())
        self.assertEqual(404, self.ask('GET', f'/failovers/{shown["id"]}')[0])

    def test_shows_failovers_of_deleted_instances(self):
        shown = self.fail_over()
        self.instance.update(deleted=True)
        self.assertEqual([shown], self.list())
        self.assertEqual(200, self.ask('GET', f'/failovers/{shown["id"]}')[0])
        self.assert_refused(self.request(), 404, self.instance.id)

    def test_refuses_invalid_requests(self):
        for values, message in (
            ({'instance': 'shop'}, "failover.instance: must be an instance's id"),
            ({'force': 'yes'}, 'failover.force: must be true or false'),
            ({'reason': 'x' * 256}, 'failover.reason: must be one line of up to 255 characters'),
            ({'reason': 'a\nb'}, 'failover.reason: must be one line'),
            ({'reason': 'a\n'}, 'failover.reason: must be one line'),
            ({'reason': '\U0001f525'}, 'without emoji'),
            ({'forced': True}, 'did you mean force?'),
        ):
            self.assert_refused(self.request(**values), 400, message)
        self.assert_refused(self.ask('POST', '/failovers', {}), 400, 'lacks failover')
        self.assertEqual([], self.list())
        self.assertEqual('', self.fail_over(reason=None)['reason'])

    def test_reveals_nothing_of_a_failed_statement(self):
        def fail(*_arguments, **_options):
            raise exceptions.ServiceUnavailableError(
                'the database failed: INSERT INTO trove_ceph_replacements (volume_id) VALUES (?)'
            )

        self.world.replacements.request = fail
        status, body = self.request()
        self.assertEqual(503, status)
        self.assertNotIn('INSERT', body['serviceUnavailable']['message'])

    def test_reports_that_the_database_does_not_answer(self):
        def fail(**_filters):
            raise oslo_db.exception.DBConnectionError(Exception('db.example.org'))

        self.useFixture(fixtures.MonkeyPatch('trove.instance.models.DBInstance.find_all', fail))
        status, body = self.request()
        self.assertEqual(503, status)
        self.assertNotIn('example.org', body['serviceUnavailable']['message'])

    def test_reports_a_database_without_our_tables(self):
        def fail(*_arguments, **_options):
            raise exceptions.ServiceUnavailableError('table x does not exist; run "db sync"')

        self.world.replacements.list = fail
        self.assert_refused(self.ask('GET', '/failovers'), 503, 'the database, or another service')


class RulesTest(base.BaseTestCase):
    def test_operators_keep_force_to_themselves(self):
        # An enforcer of its own, so that other tests are not affected.
        self.useFixture(fixtures.MonkeyPatch('trove.common.policy._ENFORCER', None))
        api = self.useFixture(world.World())
        rules.register()
        changed = oslo_policy.Rules.from_dict({'failover:create:force': 'rule:admin'})
        trove_policy.get_enforcer().set_rules(changed, overwrite=False)
        request = {'failover': {'instance': api.add_instance().id}}
        forced = {'failover': request['failover'] | {'force': True}}
        self.assertEqual(403, api.ask('POST', '/failovers', forced)[0])
        self.assertEqual(202, api.ask('POST', '/failovers', request)[0])
