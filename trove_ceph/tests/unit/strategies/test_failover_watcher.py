# SPDX-License-Identifier: Apache-2.0
"""Rounds of the watcher, from the signs to the request in the tables."""

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.failover_record import Preference
from trove_ceph.db.policy_record import Scope
from trove_ceph.db.replacement_record import FailoverCause, ReplacementState, RequestedBy
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.strategies.failover.facts import HostState
from trove_ceph.tests.unit.db import replacement_helpers
from trove_ceph.tests.unit.strategies import failover_world

#: The agent must be silent for longer than 90 s, and all signs must then agree in 3 rounds.
DETECTION_SEC = 180
LONG_SEC = 300


class WatcherTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.make_world()

    def make_world(self, **settings):
        self.world = failover_world.World(**settings)
        self.world.cover()
        self.watcher = self.world.watcher()
        self.world.run(self.watcher, 60)

    def run_rounds(self, seconds=LONG_SEC):
        self.world.run(self.watcher, seconds)

    def assert_nothing_moves(self, seconds=LONG_SEC):
        self.run_rounds(seconds)
        self.assertEqual([], self.world.requested())

    def test_requests_a_failover_once(self):
        self.world.kill('db-3')
        self.assert_nothing_moves(DETECTION_SEC - 30)
        self.run_rounds(LONG_SEC)
        (record,) = self.world.replacements.list()
        self.assertEqual(
            ('db-3', RequestedBy.AUTOMATIC, ReplacementState.REQUESTED, False, 'server-db-3'),
            (
                *(record.instance_id, record.requested_by, record.state, record.is_forced),
                record.old_server_id,
            ),
        )
        self.assertIs(FailoverCause.HOST_DOWN, record.cause)
        self.assertEqual(replacement_helpers.MIGRATING, self.world.trove.task('db-3'))
        self.assertEqual('held', self.world.finding('db-3')['verdict'])

    def test_a_server_that_fails_before_the_first_report_of_its_agent(self):
        """When an instance gets another server, Trove's row of the last report is deleted."""
        self.world.kill('db-3')
        del self.world.reports['db-3']
        # Its silence begins when the watcher finds no report.
        self.assert_nothing_moves(DETECTION_SEC)
        self.assertEqual('suspect', self.world.finding('db-3')['verdict'])
        self.assertEqual((9, 1), self.reporting_and_silent())
        self.run_rounds(30)
        self.assertEqual(['db-3'], self.world.requested())

    def reporting_and_silent(self):
        report = self.world.report()
        return report['reporting'], report['silent']

    def test_a_row_that_is_deleted_is_no_report(self):
        del self.world.reports['db-3']
        self.world.dead = {'db-3'}
        self.run_rounds(30)
        self.assertEqual((9, 0), self.reporting_and_silent())

    def test_an_instance_that_has_not_reported_yet(self):
        """It starts, or one sign at least contradicts; a failed creation concerns no other one."""
        for facts, verdict, silent in (
            ({'service_status': 'BUILDING'}, 'held', 0),
            ({'task': 'MIGRATING'}, 'held', 0),
            ({'task': 'BUILDING_ERROR_TIMEOUT_GA'}, 'held', 0),
            ({}, 'unclear', 1),
        ):
            self.make_world()
            # Its server works.
            self.world.dead = {'db-3'}
            self.world.facts = {'db-3': facts}
            del self.world.reports['db-3']
            self.assert_nothing_moves()
            self.assertEqual(verdict, self.world.finding('db-3')['verdict'])
            self.assertEqual((9, silent), self.reporting_and_silent())

    def test_instances_without_a_policy_that_have_not_reported_yet(self):
        """Their creations may have failed, which says nothing of the fleet."""
        self.make_world()
        self.world.policies.add(Scope.INSTANCE, 'db-3', enabled=False)
        self.world.kill('db-3')
        del self.world.reports['db-3']
        self.assert_nothing_moves()
        self.assertEqual((9, 0), self.reporting_and_silent())
        self.assertEqual(9, self.world.report()['databases'])

    def test_an_instance_without_a_server(self):
        self.world.without_server = {'db-3'}
        self.world.kill('db-3')
        del self.world.reports['db-3']
        self.assert_nothing_moves()
        self.assertEqual([], self.world.report()['findings'])

    def test_a_policy_that_prefers_a_replica(self):
        self.world.policies.add(Scope.INSTANCE, 'db-3', prefer=Preference.REPLICA)
        self.world.kill('db-3', 'db-4')
        self.run_rounds()
        found = {one.instance_id: one.prefers_replica for one in self.world.replacements.list()}
        self.assertEqual({'db-3': True, 'db-4': False}, found)

    def test_the_reason_tells_tenants_nothing_of_the_cloud(self):
        self.world.kill('db-3')
        self.run_rounds()
        (record,) = self.world.replacements.list()
        self.assertIn('its guest agent was silent for', record.reason)
        self.assertNotIn('host', record.reason)

    def test_the_report_names_what_operators_need(self):
        self.world.kill('db-3')
        self.run_rounds(DETECTION_SEC - 30)
        found = self.world.finding('db-3')
        self.assertEqual('suspect', found['verdict'])
        self.assertIn('host one does not report to Nova', found['reason'])
        report = self.world.report()
        self.assertEqual(
            (None, 10, 10, 9, 1, 0),
            (report['hold'], report['databases'], report['covered'])
            + (report['reporting'], report['silent'], report['left_out']),
        )
        self.run_rounds(30)
        self.assertIn('its failover was requested', self.world.finding('db-3')['reason'])
        self.assertEqual(self.world.now, self.world.watch.read().reported_at)

    def test_databases_without_a_policy_are_not_moved(self):
        self.world.policies.add(Scope.DATASTORE, 'mysql/8.4', enabled=False)
        self.world.policies.add(Scope.INSTANCE, 'db-1')
        self.world.kill('db-1', 'db-2')
        self.run_rounds()
        self.assertEqual(['db-1'], self.world.requested())
        self.assertNotIn('server-db-2', self.world.asked)

    def test_without_silent_agents_nothing_is_asked(self):
        self.run_rounds()
        self.assertEqual([], self.world.asked)

    def test_a_broken_switch_moves_nothing(self):
        """Half of the databases vanish from every view, with or without their two hosts."""
        self.world.kill(*self.world.ids[:5], host='two')
        self.world.hosts['two'] = HostState(is_up=True)
        self.assert_nothing_moves()
        self.assertIn('5 of 10 databases are silent', self.world.report()['hold'])
        self.make_world()
        self.world.kill('db-1')
        self.world.kill('db-2', host='two')
        self.assert_nothing_moves()
        self.assertIn('2 hosts do not report to Nova', self.world.report()['hold'])

    def test_several_dead_hosts_with_most_of_the_databases_are_named(self):
        self.world.kill(*self.world.ids[:3])
        self.world.kill(*self.world.ids[3:6], host='two')
        self.assert_nothing_moves()
        hold = self.world.report()['hold']
        self.assertIn('2 hosts do not report to Nova, more than 1: one, two', hold)
        # An operator knows of one of them.
        self.world.hosts['two'] = HostState(is_up=False, disabled_because='no power')
        self.run_rounds()
        self.assertEqual(self.world.ids[:3], self.world.requested())

    def test_a_dead_host_with_half_of_the_databases(self):
        """Also those without a policy are known to have been there."""
        self.world.policies.add(Scope.INSTANCE, 'db-4', enabled=False)
        self.world.kill(*self.world.ids[:5])
        self.run_rounds()
        self.assertEqual(self.world.ids[:4], self.world.requested())

    def test_a_failed_host_that_is_disabled_holds_nothing(self):
        """Its databases without a policy stay there; nothing else is asked about them."""
        stay = self.world.ids[:4]
        for instance_id in stay:
            self.world.policies.add(Scope.INSTANCE, instance_id, enabled=False)
        self.world.kill(*stay)
        self.world.hosts['one'] = HostState(is_up=False, disabled_because='no power')
        self.stop('db-9')
        self.run_rounds()
        self.assertEqual(['db-9'], self.world.requested())
        self.assertNotIn('server-db-0', self.world.asked)

    def test_a_disabled_host_that_reports_does_not_excuse_silence(self):
        silent = self.world.ids[:4]
        for instance_id in silent:
            self.world.policies.add(Scope.INSTANCE, instance_id, enabled=False)
        self.world.kill(*silent)
        self.world.hosts['one'] = HostState(is_up=True, disabled_because='new memory')
        self.stop('db-9')
        self.assert_nothing_moves()
        self.assertIn('5 of 10 databases are silent', self.world.report()['hold'])

    def stop(self, instance_id):
        """Have a server stop by itself, on a host that reports."""
        self.world.dead.add(instance_id)
        self.world.servers[instance_id] = {'status': 'SHUTOFF', 'stopped_by': ''}

    def test_an_ejected_source_is_not_silent(self):
        """Its server is off; a watcher that has just begun sees its silence begin."""
        self.make_world(count=6)
        self.world.marks.set('db-5', SourceMark.EJECTED)
        self.world.policies.add(Scope.INSTANCE, 'db-5', enabled=False)
        self.stop('db-5')
        self.watcher = self.world.watcher()
        self.assert_nothing_moves()
        self.assertEqual((5, 0), self.reporting_and_silent())
        self.stop('db-1')
        self.run_rounds()
        self.assertEqual(['db-1'], self.world.requested())

    def test_a_new_source_that_may_not_accept_writes_is_silent(self):
        """It has the same task as the one that was ejected, and is the database."""
        self.world.marks.set('db-5', SourceMark.UNFINISHED_EJECTION)
        self.world.facts = {'db-5': {'task': 'EJECTION_ERROR', 'is_unfinished_source': True}}
        self.world.kill('db-5')
        self.run_rounds(DETECTION_SEC - 30)
        self.assertEqual('suspect', self.world.finding('db-5')['verdict'])
        self.assertEqual((9, 1), self.reporting_and_silent())

    def test_an_unreachable_bus_moves_nothing(self):
        """No report arrives, even if a database does fail at the same time."""
        self.world.down = {'conductor'}
        self.world.kill('db-3')
        self.assert_nothing_moves()
        # Nova says why the other one is silent.
        self.assertIn('9 of 9 databases are silent', self.world.report()['hold'])
        self.world.down = set()
        self.run_rounds()
        self.assertEqual(['db-3'], self.world.requested())

    def test_unreachable_services_move_nothing(self):
        self.world.kill('db-3')
        for service in ('nova', 'ceph', 'trove'):
            self.world.down = {service}
            self.assert_nothing_moves()
            self.assertIn(f'{service} does not answer', self.world.report()['hold'])
        self.world.down = set()
        # The database did not answer last, so that silence must be observed anew.
        self.assert_nothing_moves(DETECTION_SEC)
        self.run_rounds(30)
        self.assertEqual(['db-3'], self.world.requested())

    def test_a_service_that_does_not_answer_is_asked_about_each_database_once_a_round(self):
        self.world.kill('db-1', 'db-2')
        self.world.down = {'ceph'}
        self.run_rounds(DETECTION_SEC)
        self.world.asked.clear()
        self.run_rounds(30)
        self.assertEqual(['server-db-1', 'server-db-2'], self.world.asked)
        self.assertIn('its signs are not known', self.world.finding('db-2')['reason'])

    def test_more_silent_databases_than_can_be_asked_about(self):
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.strategies.failover.collection._MOST_ASKED', 1)
        )
        self.world.kill('db-1', 'db-2')
        # Nova believes that its server runs. It is asked about after those of a dead host.
        self.world.dead.add('db-0')
        self.run_rounds(DETECTION_SEC)
        self.assertEqual(['db-1'], self.world.requested())
        for instance_id in ('db-0', 'db-2'):
            found = self.world.finding(instance_id)
            self.assertEqual('unclear', found['verdict'])
            self.assertIn('asked later', found['reason'])
        self.run_rounds(90)
        self.assertEqual(['db-1', 'db-2'], self.world.requested())

    def test_slow_answers_leave_databases_to_later_rounds(self):
        killed = [f'db-{number}' for number in range(1, 8)]
        self.world.kill(*killed)
        # If each round asked about all of them, it would begin anew each time.
        self.world.answer_sec = 10
        self.run_rounds(DETECTION_SEC)
        self.assertEqual(killed[:4], self.world.requested())
        self.assertIn('asked later', self.world.finding('db-7')['reason'])
        self.run_rounds(300)
        self.assertEqual(killed, self.world.requested())

    def test_databases_that_were_stopped_long_ago_are_asked_about_last(self):
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.strategies.failover.collection._MOST_ASKED', 1)
        )
        self.world.dead.add('db-0')
        self.world.servers['db-0'] = {'status': 'SHUTOFF', 'stopped_by': 'operator'}
        self.run_rounds()
        self.world.dead.add('db-1')
        self.world.servers['db-1'] = {'status': 'SHUTOFF', 'stopped_by': ''}
        self.run_rounds()
        self.assertEqual(['db-1'], self.world.requested())

    def test_signs_that_took_too_long_move_nothing(self):
        self.world.kill('db-3')
        self.world.answer_sec = 50
        # The first round in which it is silent.
        self.run_rounds(DETECTION_SEC - 60)
        self.assertIn('asking the other services took 100 s', self.world.report()['hold'])
        self.assert_nothing_moves()

    def test_an_image_that_cannot_be_read_holds_its_database_only(self):
        self.world.kill('db-3')
        self.world.errors['volume-db-3'] = exceptions.NotFoundError('there is no image')
        self.assert_nothing_moves()
        self.assertEqual('held', self.world.finding('db-3')['verdict'])
        self.assertIn('there is no image', self.world.finding('db-3')['reason'])

    def test_an_instance_that_must_not_be_touched(self):
        self.world.kill('db-3')
        for changes, words in (
            ({'task': 'RESIZING'}, 'has the task RESIZING'),
            ({'is_being_backed_up': True}, 'being backed up'),
            ({'source_change': 'is being promoted'}, 'being promoted'),
            ({'service_status': 'BUILDING'}, 'being created'),
            ({'server_id': 'another'}, 'just been replaced'),
        ):
            self.world.facts = {'db-3': changes}
            self.assert_nothing_moves(DETECTION_SEC)
            self.assertEqual('held', self.world.finding('db-3')['verdict'])
            self.assertIn(words, self.world.finding('db-3')['reason'])
        self.assertNotIn('server-db-3', self.world.asked)

    def test_ceph_is_believed_only_with_a_control(self):
        """As when Ceph has restarted, and the hypervisors have not watched their images again."""
        self.world.kill('db-3')
        self.world.without_clients = set(self.world.ids)
        self.assert_nothing_moves()
        self.assertIn('prove nothing', self.world.report()['hold'])
        # Several databases are tried, of which one may have failed a moment ago.
        self.world.without_clients = set(self.world.ids[:3])
        self.assert_nothing_moves(60)
        self.run_rounds(30)
        self.assertEqual(['db-3'], self.world.requested())

    def test_controls_that_cannot_be_examined(self):
        self.world.kill('db-3')
        for instance_id in set(self.world.ids) - {'db-3'}:
            self.world.errors[f'volume-{instance_id}'] = exceptions.NotFoundError('no image')
        self.assert_nothing_moves()
        self.assertIn('cannot be checked', self.world.report()['hold'])
        # As if the storage service were down.
        for instance_id in self.world.ids:
            unreachable = exceptions.CephUnreachableError('no answer')
            self.world.errors[f'volume-{instance_id}'] = unreachable
        self.assert_nothing_moves(30)
        self.assertIn('not all signs are known: no answer', self.world.report()['hold'])

    def test_controls_on_no_tier(self):
        """Such as databases of another volume type, however many there are."""
        self.world.kill('db-3')
        self.world.without_tier = set(self.world.ids) - {'db-3', self.world.ids[-1]}
        self.run_rounds()
        self.assertEqual(['db-3'], self.world.requested())

    def test_a_lost_pool_holds_up_no_database_on_another_one(self):
        """As when a host dies with sources, and with replicas on a pool with one copy."""
        self.world.kill('db-1', 'db-3')
        self.world.errors['volume-db-1'] = exceptions.CephUnreachableError('no answer')
        # A database that reports, which would be the control.
        self.world.errors['volume-db-0'] = exceptions.CephUnreachableError('no answer')
        self.run_rounds()
        self.assertEqual(['db-3'], self.world.requested())
        self.assertIn('its signs are not known', self.world.finding('db-1')['reason'])

    def test_those_of_which_nothing_is_known_are_asked_last(self):
        """Each takes as long as a round may last."""
        self.world.kill('db-1', 'db-3')
        self.world.errors['volume-db-1'] = exceptions.CephUnreachableError('no answer')
        self.world.error_sec = 40
        self.run_rounds(600)
        self.assertEqual(['db-3'], self.world.requested())

    def test_a_task_that_begins_meanwhile(self):
        """The facts say that there is no task, and the row says that there is one."""
        self.world.kill('db-3')
        self.world.trove.set('db-3', task_id=replacement_helpers.RESIZING)
        self.world.facts = {'db-3': {'task': 'NONE'}}
        self.assert_nothing_moves()
        self.assertIn('refused', self.world.finding('db-3')['reason'])

    def test_maintenance_moves_nothing(self):
        self.world.kill('db-3')
        self.world.watch.set_maintenance('new switch')
        self.assert_nothing_moves()
        self.assertEqual('maintenance: new switch', self.world.report()['hold'])
        self.world.watch.set_maintenance(None)
        self.assert_nothing_moves(60)
        self.run_rounds(30)
        self.assertEqual(['db-3'], self.world.requested())

    def test_what_nova_was_asked_to_do_is_respected(self):
        self.world.kill('db-3')
        self.world.hosts['one'] = HostState(is_up=False, disabled_because='new memory')
        self.assert_nothing_moves()
        self.assertIn('new memory', self.world.finding('db-3')['reason'])
        # Ceph is asked about it, and its control, only if Nova lets it be moved.
        self.assertNotIn('volume-db-3', self.world.asked)

    def test_the_hourly_limit(self):
        self.make_world(most_per_hour=1)
        self.world.kill('db-1', 'db-2')
        self.run_rounds(LONG_SEC)
        self.assertEqual(['db-1'], self.world.requested())
        self.assertIn('automatic failovers an hour', self.world.finding('db-2')['reason'])
        self.world.pass_time(3600)
        self.run_rounds(LONG_SEC)
        self.assertEqual(['db-1', 'db-2'], self.world.requested())

    def test_one_taskmanager_watches(self):
        keeper = self.world.watch.read().claimed_by
        other = self.world.watcher(is_dead=lambda _name: False)
        other.watch()
        self.assertEqual(keeper, self.world.watch.read().claimed_by)
        self.world.pass_time(50)
        other.watch()
        self.assertNotEqual(keeper, self.world.watch.read().claimed_by)

    def test_another_taskmanager_resumes_and_observes_first(self):
        self.world.kill('db-3')
        self.run_rounds(DETECTION_SEC - 30)
        self.watcher = self.world.watcher()
        self.watcher.watch()
        # Silence that it has not seen itself is none.
        self.assertEqual([], self.world.report()['findings'])
        self.assert_nothing_moves(DETECTION_SEC - 30)
        self.run_rounds(30)
        self.assertEqual(['db-3'], self.world.requested())

    def test_a_lost_claim_ends_the_round(self):
        self.world.kill('db-3')
        self.run_rounds(DETECTION_SEC - 30)
        # It is suspended, without heartbeats, when the failover is due.
        self.world.pass_time(40)
        for _round in range(2):
            self.watcher.watch()
            self.assertEqual([], self.world.requested())
        self.assertEqual([], self.world.report()['findings'])
        self.run_rounds(DETECTION_SEC)
        self.assertEqual(['db-3'], self.world.requested())

    def test_a_round_never_fails(self):
        self.world.kill('db-3')
        self.run_rounds(DETECTION_SEC - 30)
        self.world.errors['db-3'] = RuntimeError('a defect')
        self.run_rounds(30)
        self.assertIn('a defect', self.world.report()['hold'])
        self.world.errors.clear()
        self.assert_nothing_moves(DETECTION_SEC)
        self.run_rounds(30)
        self.assertEqual(['db-3'], self.world.requested())
