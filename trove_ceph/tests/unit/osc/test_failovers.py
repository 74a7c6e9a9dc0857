# SPDX-License-Identifier: Apache-2.0
"""The commands for failovers, through python-troveclient and Trove's real API."""

import datetime

import webob
from osc_lib import exceptions
from troveclient import exceptions as trove_exceptions

from trove_ceph.db.replacement_record import ReplacementState
from trove_ceph.osc import failover_client, failovers
from trove_ceph.tests.unit.osc import harness


class CommandsTest(harness.CommandTestCase):
    def fail_over(self, options='', **identity):
        return self.shown(f'instance failover {self.instance.id} {options}', **identity)

    def test_fails_over(self):
        shown = self.fail_over('--reason slow')
        self.assertEqual(
            ('requested', 'slow', False), (shown['state'], shown['reason'], shown['force'])
        )
        self.assertEqual(shown, self.shown(f'failover show {shown["id"]}'))

    def test_prints_why_a_failover_is_refused(self):
        self.world.report(self.instance)
        status, output = self.run_command(f'instance failover {self.instance.id}')
        self.assertEqual(1, status)
        self.assertIn('is healthy', output)
        self.assertTrue(self.fail_over('--force')['force'])

    def test_lists(self):
        other = self.world.add_instance()
        shown = self.fail_over()
        (row,) = self.shown(f'failover list --instance {self.instance.id}')
        self.assertEqual((shown['id'], 'requested', 'tenant'), self.columns(row))
        self.assertEqual([], self.shown(f'failover list --instance {other.id}'))
        self.assertEqual([], self.shown('failover list --limit 0'))
        (row,) = self.shown('failover list --long')
        self.assertEqual(self.world.project, row['Project ID'])
        identity = {'project': self.world.other, 'role': 'admin'}
        self.assertEqual([], self.shown('failover list', **identity))
        (row,) = self.shown('failover list --all-projects', **identity)
        self.assertEqual(shown['id'], row['ID'])

    def test_shows_the_latest_failover_of_an_instance(self):
        first = self.fail_over()
        self.world.end(first['id'])
        self.world.now += datetime.timedelta(minutes=1)
        second = self.fail_over()
        self.name('shop', self.instance)
        for name_or_id in (self.instance.id, 'shop', second['id']):
            self.assertEqual(second, self.shown(f'failover show {name_or_id}'))
        self.assertEqual(first['id'], self.shown(f'failover show {first["id"]}')['id'])

    def test_help_explains_each_state(self):
        explained = failovers.ShowFailover.__doc__
        for state in set(ReplacementState) - {ReplacementState.RETURNING}:
            self.assertRegex(explained, rf'(?m)^ +{state}  ')

    def test_prints_that_there_is_no_failover(self):
        self.name('shop', self.instance)
        status, output = self.run_command('failover show shop')
        self.assertEqual(1, status)
        self.assertIn('instance shop has no failover', output)
        status, output = self.run_command(f'failover show {self.instance.id}')
        self.assertEqual(1, status)
        self.assertIn(f'failover {self.instance.id} cannot be found', output)

    @staticmethod
    def columns(row):
        return row['ID'], row['State'], row['Requested By']


class WaitingTest(harness.WaitingTestCase):
    def setUp(self):
        super().setUp()
        self.api = failover_client.FailoverApi(self.connection)

    def wait(self, *later):
        """Run the command that waits, and return its status and output."""
        self.later = [lambda one=one: one(self.failover_id()) for one in later]
        return self.run_command(f'instance failover {self.instance.id} --wait --timeout 60 -f json')

    def failover_id(self):
        (found,) = self.world.replacements.list(instance_id=self.instance.id)
        return found.replacement_id

    def test_waits_until_it_is_completed(self):
        status, output = self.wait(self.world.fail_over, self.world.end)
        self.assertEqual(0, status, output)
        self.assertIn('"state": "completed"', output)
        self.assertEqual(4, self.now)

    def test_waits_while_attempts_fail(self):
        status, output = self.wait(
            lambda found: self.world.fail_over(found, error='Nova is down'), self.world.end
        )
        self.assertEqual(0, status, output)

    def test_waits_while_the_api_does_not_answer(self):
        serve, answers = self.world.serve, [webob.Response(status=503), webob.Response(status=502)]

        def break_down(_failover):
            self.world.serve = lambda request: answers.pop() if answers else serve(request)

        status, output = self.wait(break_down, self.world.end)
        self.assertEqual(0, status, output)
        self.assertIn('"state": "completed"', output)
        self.assertEqual([], answers)

    def test_fails_if_the_api_does_not_answer_until_the_timeout(self):
        shown = self.api.request_failover(instance=self.instance.id)
        self.world.serve = lambda _request: webob.Response(status=503)
        self.assertRaises(
            trove_exceptions.ServiceUnavailable, self.api.wait_until_completed, shown['id'], 60
        )
        self.assertEqual(60, self.now)

    def test_fails_if_it_fails(self):
        status, output = self.wait(lambda found: self.world.end(found, 'the image is gone'))
        self.assertEqual(1, status)
        self.assertIn('is failed: the image is gone', output)

    def test_fails_if_the_instance_is_deleted(self):
        status, output = self.wait(self.world.cancel)
        self.assertEqual(1, status)
        self.assertIn('is canceled', output)

    def test_fails_after_the_timeout(self):
        shown = self.api.request_failover(instance=self.instance.id)
        self.world.fail_over(shown['id'], error='Nova is down')
        error = self.assertRaises(
            exceptions.CommandError, self.api.wait_until_completed, shown['id'], 60
        )
        self.assertEqual(
            f'failover {shown["id"]} is still moving after 60 s: Nova is down', str(error)
        )
        self.assertEqual(60, self.now)
