# SPDX-License-Identifier: Apache-2.0
import datetime

from oslotest import base

from trove_ceph.db import replacement_record
from trove_ceph.db.replacement_record import ReplacementState
from trove_ceph.strategies.failover import decision, facts, memory
from trove_ceph.strategies.failover.facts import HostState, ServerState, Signs, Verdict

TIME = datetime.datetime(2026, 1, 1)
SETTINGS = facts.FailoverSettings(silent_sec=90, rounds=3, interval_sec=10)
#: Of a database whose host died.
FAILED = Signs(server=ServerState('server', 'ACTIVE', host='dead'), clients=())
HOSTS = {'dead': HostState(is_up=False), 'alive': HostState(is_up=True)}
FLEET = [f'db-{number}' for number in range(10)]


def replacement(instance_id, state, ago_sec, ended_ago_sec=None, is_fenced=True):
    """Return an automatic failover that was requested some time ago."""
    created_at = TIME - datetime.timedelta(seconds=ago_sec)
    ended_at = None if ended_ago_sec is None else TIME - datetime.timedelta(seconds=ended_ago_sec)
    return replacement_record.ReplacementRecord(
        f'of-{instance_id}-{ago_sec}',
        instance_id,
        'project',
        replacement_record.ReplacementKind.FAILOVER,
        state,
        replacement_record.RequestedBy.AUTOMATIC,
        created_at,
        created_at,
        fenced_at=created_at if is_fenced else None,
        ended_at=ended_at,
    )


class Rounds:
    """A fleet in which agents report every 30 s, and the watcher's rounds."""

    def __init__(self, fleet=FLEET, settings=SETTINGS):
        self.fleet, self.settings = list(fleet), settings
        self.memory = memory.WatchMemory(3 * settings.interval_sec)
        self.now, self.reports = 0.0, dict.fromkeys(self.fleet, 0.0)
        self.dead = set()
        # Until each agent has reported.
        self.observe(60)

    def observe(self, seconds):
        """Let time pass; only the reports are observed."""
        for _round in range(int(seconds // self.settings.interval_sec)):
            self._next_round()

    def run(self, signs, count=1, **changes):
        """Run rounds, and return what the last one decides."""
        values = {
            'instance_ids': self.fleet,
            'covered': self.fleet,
            'time': TIME,
            'hosts': HOSTS,
            'control_clients': 1,
        }
        found = facts.RoundFacts(signs=signs, **values | changes)
        for _round in range(count):
            self._next_round()
            decided = decision.decide(found, self.memory, self.settings, self.now)
        return decided

    def _next_round(self):
        self.now += self.settings.interval_sec
        for instance_id in set(self.fleet) - self.dead:
            self.reports[instance_id] = self.now // 30
        self.memory.observe(self.reports, self.now)


class DecisionTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.rounds = self.failed('db-0')

    def failed(self, *dead, **arguments):
        """Return rounds in which the agents of some databases have been silent for long enough."""
        rounds = Rounds(**arguments)
        rounds.dead = set(dead)
        rounds.observe(120)
        return rounds

    def assert_held(self, reason, rounds=None, signs=None, **changes):
        """Check that nothing moves, that it is said why, and that the count begins again."""
        rounds = rounds or self.rounds
        signs = signs or {'db-0': FAILED}
        decided = rounds.run(signs, 5, **changes)
        self.assertIn(reason, decided.hold)
        self.assertEqual((), decided.to_replace)
        self.assertEqual(0, rounds.memory.rounds('db-0'))

    def test_replaces_after_several_rounds(self):
        for count in range(1, SETTINGS.rounds):
            decided = self.rounds.run({'db-0': FAILED})
            self.assertEqual(((), None), (decided.to_replace, decided.hold))
            self.assertEqual(count, decided.findings[0].rounds)
        decided = self.rounds.run({'db-0': FAILED})
        self.assertEqual(('db-0',), decided.to_replace)
        self.assertEqual((9, 1, 0), (decided.reporting, decided.silent, decided.used))
        (finding,) = decided.findings
        self.assertEqual(Verdict.SUSPECT, finding.verdict)
        self.assertIn('host dead does not report to Nova', finding.reason)

    def test_one_other_round_begins_the_count_again(self):
        self.rounds.run({'db-0': FAILED}, SETTINGS.rounds - 1)
        alive = Signs(
            server=ServerState('server', 'ACTIVE', host='dead'), clients=('10.0.0.1:0/1',)
        )
        (finding,) = self.rounds.run({'db-0': alive}).findings
        self.assertEqual((Verdict.UNCLEAR, 0), (finding.verdict, finding.rounds))
        self.assertEqual((), self.rounds.run({'db-0': FAILED}, SETTINGS.rounds - 1).to_replace)
        self.assertEqual(('db-0',), self.rounds.run({'db-0': FAILED}).to_replace)

    def test_a_broken_switch_moves_nothing(self):
        """Every sign of four databases agrees, but so many do not fail at once."""
        dead = FLEET[:4]
        rounds = self.failed(*dead)
        signs = dict.fromkeys(dead, FAILED)
        self.assert_held('the agents of 4 of 10 databases are silent', rounds, signs)
        # Three of ten may share a host.
        rounds = self.failed(*dead[:3])
        signs = dict.fromkeys(dead[:3], FAILED)
        self.assertEqual(tuple(dead[:3]), rounds.run(signs, 3).to_replace)

    def test_databases_without_a_policy_show_a_broken_switch_too(self):
        rounds = self.failed(*FLEET[:4])
        self.assert_held('4 of 10 databases are silent', rounds, covered=['db-0'])

    def test_a_silent_bus_moves_nothing(self):
        rounds = self.failed(*FLEET)
        self.assert_held('10 of 10 databases are silent', rounds)
        self.assert_held('no other agent reports', self.failed('db-0', fleet=['db-0']))

    def test_after_a_guard_the_count_begins_again(self):
        """As when the bus returns: the agents report one after the other."""
        rounds = self.failed(*FLEET[:4])
        rounds.run(dict.fromkeys(FLEET[:4], FAILED), 20)
        rounds.dead = {'db-0'}
        rounds.observe(30)
        self.assertEqual((), rounds.run({'db-0': FAILED}, SETTINGS.rounds - 1).to_replace)
        self.assertEqual(('db-0',), rounds.run({'db-0': FAILED}).to_replace)

    def test_held_databases_do_not_count_against_the_fleet(self):
        """Otherwise a few stopped databases would switch automatic failover off."""
        dead = FLEET[:5]
        rounds = self.failed(*dead)
        stopped = Signs(server=ServerState('server', 'SHUTOFF', stopped_by='operator'), clients=())
        signs = dict.fromkeys(dead[1:], stopped) | {'db-0': FAILED}
        decided = rounds.run(signs, 3)
        self.assertEqual((('db-0',), 1), (decided.to_replace, decided.silent))

    def test_long_silence_without_failover_does_not_count_against_the_fleet(self):
        dead = FLEET[:5]
        rounds = self.failed(*dead)
        unclear = Signs(server=ServerState('server', 'ACTIVE', host='alive'), clients=())
        signs = dict.fromkeys(dead[1:3], unclear) | {'db-0': FAILED}
        self.assert_held('5 of 10', rounds, signs)
        rounds.observe(86400)
        decided = rounds.run(signs, 3)
        self.assertEqual((('db-0',), 1), (decided.to_replace, decided.silent))

    def test_suspects_count_against_the_fleet_for_ever(self):
        dead = FLEET[:4]
        rounds = self.failed(*dead)
        rounds.observe(86400)
        self.assert_held('4 of 10', rounds, dict.fromkeys(dead, FAILED))

    def test_the_databases_of_a_dead_host_do_not_count_against_the_fleet(self):
        """Of two or three hosts, one has more of the databases than may be silent."""
        for hosts in (2, 3):
            dead = FLEET[: len(FLEET) // hosts + 1]
            settings = facts.FailoverSettings(most_silent_share=0.1)
            rounds = self.failed(*dead, settings=settings)
            # The last one has no policy.
            signs = dict.fromkeys(dead[:-1], FAILED)
            decided = rounds.run(signs, 3, covered=dead[:-1], on_down_hosts=dead)
            self.assertEqual(dead[:-1], list(decided.to_replace))
            self.assertEqual((None, len(dead)), (decided.hold, decided.silent))

    def test_a_dead_host_does_not_excuse_the_silence_of_others(self):
        dead = FLEET[:8]
        rounds = self.failed(*dead)
        signs = dict.fromkeys(dead[:4], FAILED)
        self.assert_held(
            'the agents of 4 of 6 databases are silent', rounds, signs, on_down_hosts=dead[:4]
        )

    def test_a_dead_host_needs_others_that_report(self):
        rounds = self.failed(*FLEET)
        signs = dict.fromkeys(FLEET, FAILED)
        self.assert_held('no other agent reports', rounds, signs, on_down_hosts=FLEET)
        hosts = HOSTS | {'dead-too': HostState(is_up=False)}
        rounds = self.failed('db-0')
        self.assert_held('2 hosts', rounds, hosts=hosts, on_down_hosts=['db-0'])

    def test_databases_that_were_not_asked_about_count_against_the_fleet(self):
        dead = FLEET[:4]
        rounds = self.failed(*dead)
        signs = dict.fromkeys(dead, Signs(is_asked=False)) | {'db-0': FAILED}
        self.assert_held('4 of 10', rounds, signs)
        decided = rounds.run(signs, 3, on_down_hosts=dead)
        self.assertEqual(('db-0',), decided.to_replace)
        self.assertEqual(Verdict.UNCLEAR, decided.findings[1].verdict)

    def test_several_hosts_down_move_nothing(self):
        hosts = HOSTS | {'dead-too': HostState(is_up=False)}
        self.assert_held('2 hosts do not report to Nova, more than 1: dead, dead-too', hosts=hosts)
        # They have more of the databases than may be silent, or all: the hosts are the cause.
        for dead in (FLEET[:4], FLEET):
            self.assert_held(
                '2 hosts do not report to Nova',
                *(self.failed(*dead), dict.fromkeys(dead, FAILED)),
                hosts=hosts,
            )
        # An operator knows of this one.
        hosts['dead-too'] = HostState(is_up=False, disabled_because='retired')
        self.assertEqual(('db-0',), self.rounds.run({'db-0': FAILED}, 3, hosts=hosts).to_replace)

    def test_many_hosts_down_are_not_all_named(self):
        hosts = {f'host-{number:02}': HostState(is_up=False) for number in range(30)}
        self.assert_held('30 hosts do not report to Nova', hosts=hosts)
        hold = self.rounds.run({'db-0': FAILED}, hosts=hosts).hold
        self.assertIn('host-08, host-09 and 20 more', hold)
        self.assertNotIn('host-10', hold)

    def test_what_does_not_answer_moves_nothing(self):
        self.assert_held(
            'not all signs are known: Nova failed', failures=['Nova failed', 'Ceph failed']
        )

    def test_maintenance_moves_nothing(self):
        self.assert_held('maintenance: new switch', maintenance='new switch')
        self.assert_held('maintenance: no reason', maintenance='')

    def test_ceph_is_believed_only_with_a_control(self):
        self.assert_held('cannot be checked', control_clients=None)
        self.assert_held('prove nothing', control_clients=0)
        # Without a suspect the control is not needed.
        decided = self.rounds.run({'db-0': Signs('being backed up')}, control_clients=None)
        self.assertIsNone(decided.hold)

    def test_the_limit_counts_what_was_moved_within_an_hour(self):
        earlier = [
            replacement('a', ReplacementState.COMPLETED, 3590, 3000),
            replacement('b', ReplacementState.MOVING, 60),
            replacement('c', ReplacementState.REQUESTED, 5, is_fenced=False),
            # These do not count: too long ago, or nothing was moved.
            replacement('d', ReplacementState.COMPLETED, 3600, 3000),
            replacement('e', ReplacementState.FAILED, 60, 50, is_fenced=False),
            replacement('f', ReplacementState.CANCELED, 60, 50, is_fenced=False),
        ]
        for limit, moved in ((3, ()), (4, ('db-0',))):
            settings = facts.FailoverSettings(most_per_hour=limit)
            rounds = self.failed('db-0', settings=settings)
            decided = rounds.run({'db-0': FAILED}, 4, replacements=earlier)
            self.assertEqual((3, moved), (decided.used, decided.to_replace))
        rounds = self.failed('db-0', settings=facts.FailoverSettings(most_per_hour=0))
        (finding,) = rounds.run({'db-0': FAILED}, 4).findings
        self.assertIn('waits, since 0 automatic failovers an hour are allowed', finding.reason)

    def test_those_that_failed_first_go_first_up_to_the_limit(self):
        settings = facts.FailoverSettings(most_per_hour=2)
        rounds = self.failed('db-7', settings=settings)
        rounds.dead |= {'db-1', 'db-2'}
        rounds.observe(120)
        signs = dict.fromkeys(('db-1', 'db-2', 'db-7'), FAILED)
        self.assertEqual(('db-7', 'db-1'), rounds.run(signs, 3).to_replace)

    def test_pauses_after_automatic_failovers_of_the_same_database(self):
        """One hour after the first, two hours after the second within a day."""
        once = [replacement('db-0', ReplacementState.COMPLETED, 4000, 3500)]
        (finding,) = self.rounds.run({'db-0': FAILED}, 4, replacements=once).findings
        self.assertEqual(Verdict.HELD, finding.verdict)
        self.assertIn('the next one is allowed from 2026-01-01T00:01:40Z', finding.reason)
        over = [replacement('db-0', ReplacementState.COMPLETED, 4000, 3601)]
        decided = self.failed('db-0').run({'db-0': FAILED}, 4, replacements=over)
        self.assertEqual(('db-0',), decided.to_replace)
        twice = [*over, replacement('db-0', ReplacementState.COMPLETED, 20000, 19000)]
        self.assertEqual(
            (), self.failed('db-0').run({'db-0': FAILED}, 4, replacements=twice).to_replace
        )

    def test_pauses_shortly_after_automatic_failovers_that_moved_nothing(self):
        """As when Nova did not answer while its server was to be noted: the database is down."""
        unmoved = [
            replacement('db-0', ReplacementState.FAILED, ago_sec + 420, ago_sec, is_fenced=False)
            for ago_sec in (299, 1000, 2000)
        ]
        (finding,) = self.rounds.run({'db-0': FAILED}, 4, replacements=unmoved).findings
        self.assertEqual(Verdict.HELD, finding.verdict)
        self.assertIn(
            'ended at 2025-12-31T23:55:01Z; the next one is allowed from 2026-01-01T00:00:01Z',
            finding.reason,
        )
        # They neither end nor double the pause after those that moved the database.
        recent, old = (
            replacement('db-0', ReplacementState.COMPLETED, 4000, ago_sec)
            for ago_sec in (3599, 3601)
        )
        for earlier, moved in (
            (unmoved[1:], ('db-0',)),
            ([*unmoved[1:], recent], ()),
            ([*unmoved[1:], old], ('db-0',)),
        ):
            decided = self.failed('db-0').run({'db-0': FAILED}, 4, replacements=earlier)
            self.assertEqual(moved, decided.to_replace)

    def test_those_of_a_time_to_come_hold_nothing(self):
        """The clock of the database was a month ahead."""
        ahead_sec = -30 * 24 * 3600
        later = [
            replacement('db-0', ReplacementState.COMPLETED, ahead_sec, ahead_sec - 60),
            replacement('db-1', ReplacementState.FAILED, ahead_sec, ahead_sec, is_fenced=False),
        ]
        settings = facts.FailoverSettings(most_per_hour=1)
        decided = self.failed('db-0', settings=settings).run(
            {'db-0': FAILED}, 4, replacements=later
        )
        self.assertEqual((0, ('db-0',)), (decided.used, decided.to_replace))
        # One that works now counts all the same.
        later.append(replacement('db-2', ReplacementState.MOVING, ahead_sec))
        decided = self.failed('db-0', settings=settings).run(
            {'db-0': FAILED}, 4, replacements=later
        )
        self.assertEqual((1, ()), (decided.used, decided.to_replace))

    def test_the_short_pause_is_no_longer_than_the_other(self):
        settings = facts.FailoverSettings(pause=datetime.timedelta(0))
        unmoved = [replacement('db-0', ReplacementState.FAILED, 420, 1, is_fenced=False)]
        decided = self.failed('db-0', settings=settings).run(
            {'db-0': FAILED}, 4, replacements=unmoved
        )
        self.assertEqual(('db-0',), decided.to_replace)


class MemoryTest(base.BaseTestCase):
    def test_a_new_watcher_observes_first(self):
        """The last report may be old by any clock; its change is what counts."""
        rounds = Rounds(fleet=['db-0', 'db-1'])
        self.assertFalse(rounds.memory.is_reporting('absent', rounds.now, 90))
        new = memory.WatchMemory(30)
        new.observe({'db-0': 5.0}, 1000)
        self.assertEqual(0, new.silent_sec('db-0', 1000))
        self.assertFalse(new.is_reporting('db-0', 1000, 90))
        new.observe({'db-0': 6.0}, 1010)
        self.assertTrue(new.is_reporting('db-0', 1010, 90))

    def test_a_clock_that_is_set_back_is_a_report(self):
        found = memory.WatchMemory(30)
        found.observe({'db-0': 5.0}, 0)
        found.observe({'db-0': 3.0}, 20)
        self.assertEqual(
            (5, True), (found.silent_sec('db-0', 25), found.is_reporting('db-0', 25, 90))
        )

    def test_a_suspended_watcher_forgets(self):
        rounds = Rounds(fleet=['db-0', 'db-1'])
        rounds.dead = {'db-0'}
        rounds.observe(120)
        rounds.run({'db-0': FAILED}, 2)
        rounds.now += 60
        decided = rounds.run({'db-0': FAILED})
        self.assertEqual((0, 1), (decided.findings[0].silent_sec, decided.findings[0].rounds))

    def test_forgets_deleted_instances(self):
        rounds = Rounds(fleet=['db-0', 'db-1'])
        rounds.memory.observe({'db-1': 1.0}, rounds.now)
        self.assertFalse(rounds.memory.is_reporting('db-0', rounds.now, 90))
