# SPDX-License-Identifier: Apache-2.0
"""What a look at a replica shows, and which replicas get a fresh clone for it."""

import dataclasses
import datetime

from oslo_utils import units
from oslotest import base

from trove_ceph.db.replica_record import (
    Cause,
    ReplicaRecord,
    ReplicaState,
    ReplicationPolicy,
    Requester,
)
from trove_ceph.mysql import gtid
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replication import drift, observation
from trove_ceph.strategies.replication.observation import ReplicaLook
from trove_ceph.strategies.replication.replication_types import ThreadState
from trove_ceph.strategies.replication.watch_dependencies import VolumeUsage, WatchSettings
from trove_ceph.tests.unit.strategies.replication_watch_world import (
    OTHER_SERVER,
    SERVER,
    STOPPED,
    executed,
    replica_status,
    source_status,
)

NOW = datetime.datetime(2026, 1, 10)
HOUR = datetime.timedelta(hours=1)
LIMITS = drift.Limits(True, every_hours=24, max_own_percent=50, max_lag_sec=600, most_clone_depth=3)
NO_LIMITS = drift.Limits(False, 0, 0, 0, 0)
USAGE = VolumeUsage(10 * units.Gi, 1, units.Gi)
ERRANT = f'{OTHER_SERVER}:1-2'
#: The last transactions of a source that was ejected.
DEAD = 'bbbbbbbb-71ca-11e1-9e33-c80aa9429562:5-7'
CONNECTING = {'io_state': ThreadState.CONNECTING}
PURGED = {'io_state': ThreadState.OFF, 'io_error_number': 1236, 'io_error': 'purged'}


def record(instance_id='r', source_id='s', **values):
    return ReplicaRecord(
        instance_id=instance_id,
        project_id='p',
        source_id=source_id,
        state=values.pop('state', ReplicaState.FOLLOWING),
        updated_at=NOW,
        **{'created_at': NOW, 'cloned_at': NOW - HOUR} | values,
    )


OLD = record(cloned_at=NOW - 30 * HOUR)
GROWN, DEEP = VolumeUsage(10 * units.Gi, 1, 9 * units.Gi), VolumeUsage(10 * units.Gi, 4, units.Gi)


def find(look, limits=LIMITS, source=None, **before):
    source = source or source_status()
    return drift.find_drift(look, source, limits, drift.Before(**before), NOW)


def deep(depth, fresh_depth):
    """Return a look at a replica with so many images above it, and above a fresh clone."""
    usage = VolumeUsage(10 * units.Gi, depth, units.Gi)
    return ReplicaLook(record(), replica_status(), usage, fresh_depth=fresh_depth)


def follows_another(replica, *usage, **values):
    """Return a look at a replica that follows another server, as during a promotion."""
    return ReplicaLook(replica, replica_status(source_uuid=OTHER_SERVER), *usage, **values)


def receiver(number, error='it failed'):
    """Return the status of a replica whose receiver has stopped at an error."""
    return {'io_state': ThreadState.OFF, 'io_error_number': number, 'io_error': error}


def broken(**values):
    """Return a look at a replica with other values of its status."""
    return ReplicaLook(record(), replica_status(**values), USAGE)


#: What was seen, the expected cause, and a part of the reason.
CASES = (
    ('works', broken(), None, ''),
    ('silent', ReplicaLook(record(), None, USAGE), None, ''),
    ('its MySQL starts', ReplicaLook(record(), None, USAGE, agent_error='starts'), None, ''),
    ('connecting', broken(io_state=ThreadState.CONNECTING, io_error_number=2003), None, ''),
    ('stopped on purpose', broken(sql_state=ThreadState.OFF, io_state=ThreadState.OFF), None, ''),
    (
        'errant unknown',
        broken(source_uuid=OTHER_SERVER, gtid_executed=executed(9, ERRANT)),
        None,
        '',
    ),
    ('lost', ReplicaLook(record(), None, None, 'it is gone'), Cause.VOLUME, 'it is gone'),
    ('no replica', broken(is_replica=False, is_read_only=True), Cause.BROKEN, 'follows no source'),
    ('detached', broken(is_replica=False), None, ''),
    (
        'detached, and read-only on another server',
        broken(is_replica=False, is_read_only=True, gtid_executed=executed(9, ERRANT)),
        None,
        '',
    ),
    (
        'detached, and old',
        ReplicaLook(record(cloned_at=NOW - 24 * HOUR), replica_status(is_replica=False)),
        None,
        '',
    ),
    (
        'applier',
        broken(sql_state=ThreadState.OFF, sql_error_number=1062, sql_error='Duplicate entry'),
        Cause.BROKEN,
        'stopped: Duplicate entry',
    ),
    (
        'purged',
        broken(io_state=ThreadState.OFF, io_error_number=13114, io_error='purged'),
        Cause.PURGED,
        'does not have what it must receive: purged',
    ),
    (
        'refused user',
        broken(io_state=ThreadState.CONNECTING, io_error_number=1045, io_error='denied'),
        Cause.BROKEN,
        'refuses it: denied',
    ),
    ('receiver', broken(**receiver(1593, 'equal UUIDs')), Cause.BROKEN, 'stopped: equal UUIDs'),
    ('relay log', broken(**receiver(1595, 'write failed')), Cause.BROKEN, 'stopped: write failed'),
    ('connects again', broken(**receiver(1593) | CONNECTING), None, ''),
    ('lost its source', broken(**receiver(2013)), None, ''),
    ('gave up connecting', broken(**receiver(2003)), None, ''),
    ('source is full', broken(**receiver(1040)), None, ''),
    ('source was shut down', broken(**receiver(1053)), None, ''),
    ('network', broken(**receiver(1159)), None, ''),
    ('errant', broken(gtid_executed=executed(9, ERRANT)), Cause.ERRANT, ERRANT),
    (
        'old',
        ReplicaLook(record(cloned_at=NOW - 24 * HOUR), replica_status()),
        Cause.AGE,
        '24 h old',
    ),
    ('not old yet', ReplicaLook(record(cloned_at=NOW - 23 * HOUR), replica_status()), None, ''),
    ('no clone', ReplicaLook(record(cloned_at=None), replica_status()), None, ''),
    (
        'no clone for long',
        ReplicaLook(record(cloned_at=None, created_at=NOW - 24 * HOUR), replica_status()),
        Cause.AGE,
        'its volume is no clone, and is 24 h old',
    ),
    ('old and silent', ReplicaLook(OLD, None), None, ''),
    ('old, and its MySQL starts', ReplicaLook(OLD, None, agent_error='starts'), None, ''),
    ('old, and follows another', follows_another(OLD), None, ''),
    ('grown and silent', ReplicaLook(OLD, None, GROWN), None, ''),
    ('grown, and follows another', follows_another(OLD, GROWN), None, ''),
    ('deep and silent', ReplicaLook(record(), None, DEEP, fresh_depth=1), None, ''),
    ('deep, and follows another', follows_another(record(), DEEP, fresh_depth=1), None, ''),
    (
        'old, and connects',
        ReplicaLook(OLD, replica_status(io_state=ThreadState.CONNECTING)),
        Cause.AGE,
        '30 h',
    ),
    (
        'grown',
        ReplicaLook(
            record(cloned_at=None), replica_status(), VolumeUsage(10 * units.Gi, 1, 6 * units.Gi)
        ),
        Cause.GROWTH,
        'does not share 6.0 GiB with its source; 50 %',
    ),
    (
        'grown up to the limit',
        ReplicaLook(
            record(cloned_at=None), replica_status(), VolumeUsage(10 * units.Gi, 1, 5 * units.Gi)
        ),
        None,
        '',
    ),
    ('deep', deep(4, 3), Cause.DEPTH, 'through 4 images, and a fresh clone 3; 3 are allowed'),
    ('as deep as it may be', deep(3, 1), None, ''),
    ('a fresh clone would be too deep', deep(5, 4), None, ''),
    ('depth of a fresh clone is unknown', deep(5, None), None, ''),
    (
        'flattened',
        ReplicaLook(
            record(cloned_at=None), replica_status(), VolumeUsage(10 * units.Gi, 0, 9 * units.Gi)
        ),
        None,
        '',
    ),
    (
        'most urgent first',
        ReplicaLook(
            record(cloned_at=NOW - 99 * HOUR),
            replica_status(**STOPPED, gtid_executed=executed(1, ERRANT)),
            USAGE,
            'it is gone',
        ),
        Cause.VOLUME,
        'gone',
    ),
)


class DriftTest(base.BaseTestCase):
    def test_each_case(self):
        for name, look, cause, reason in CASES:
            found = find(look)
            self.assertEqual(cause, found and found.cause, name)
            self.assertIn(reason, found.reason if found else '', name)

    def test_each_cause_but_those_of_other_tests_has_a_case(self):
        self.assertEqual(
            set(Cause) - {Cause.REQUEST, Cause.LAG}, {cause for _, _, cause, _ in CASES if cause}
        )

    def test_without_limits_nothing_drifts(self):
        for name, look, _cause, _reason in CASES:
            self.assertIsNone(find(look, NO_LIMITS, failing_since=NOW - HOUR), name)

    def test_what_the_source_has_lost_is_never_discarded(self):
        lost = {
            'executed': {'gtid_executed': executed(101)},
            'received': {'gtid_received': executed(101), 'gtid_executed': executed(90)},
            'with others': {'gtid_executed': executed(101, ERRANT)},
            'refused by its source': {
                'gtid_executed': executed(101),
                'io_state': ThreadState.OFF,
                'io_error_number': 13114,
                'io_error': 'Replica has more GTIDs than the source has',
            },
        }
        old = record(cloned_at=NOW - 99 * HOUR)
        grown = VolumeUsage(10 * units.Gi, 1, 9 * units.Gi)
        for name, values in lost.items():
            for volume_error in (None, 'does not answer'):
                look = ReplicaLook(old, replica_status(**values), grown, volume_error)
                self.assertIsNone(find(look), name)

    def test_what_the_source_lacks_of_another_server_is_never_discarded(self):
        """As after an ejection, whose new source lacks what the replica has of the dead one."""
        grown = VolumeUsage(10 * units.Gi, 1, 9 * units.Gi)
        for values in (
            {'gtid_executed': executed(100, DEAD)},
            {'gtid_received': executed(100, DEAD)},
            {'gtid_executed': executed(90, f'{DEAD},{ERRANT}'), **PURGED},
            {'gtid_executed': executed(100, DEAD), **STOPPED},
        ):
            look = ReplicaLook(OLD, replica_status(**values), grown, 'does not answer')
            self.assertIsNone(find(look), values)

    def test_what_a_former_source_has_written_is_never_discarded(self):
        """Its clients committed it before it was promoted away, and the new source lacks it."""
        source = source_status(gtid_executed=executed(100, f'{OTHER_SERVER}:1-7'))
        for values in (
            {'gtid_executed': executed(100, f'{OTHER_SERVER}:1-9')},
            {'gtid_received': executed(90, f'{OTHER_SERVER}:8-9'), **PURGED},
        ):
            look = ReplicaLook(OLD, replica_status(**values), GROWN, 'does not answer')
            self.assertEqual(2, observation.lost_by_source(look.status, source).count)
            self.assertIsNone(find(look, source=source), values)

    def test_a_schedule_does_not_discard_transactions_of_the_replica(self):
        limits = dataclasses.replace(LIMITS, reprovision_broken=False)
        look = ReplicaLook(OLD, replica_status(gtid_executed=executed(9, ERRANT)), GROWN)
        self.assertIsNone(find(look, limits))
        self.assertIs(Cause.ERRANT, find(look).cause)

    def test_growth_alone_requests_at_most_once_a_day(self):
        usage, limits = VolumeUsage(units.Gi, 1, units.Gi), drift.Limits(True, 0, 50, 600, 0)
        for cloned_at, ended_at, is_expected in (
            (NOW - 24 * HOUR, None, True),
            (NOW - 23 * HOUR, None, False),
            (None, NOW - 24 * HOUR, True),
            (NOW - 99 * HOUR, NOW - 23 * HOUR, False),
            (None, None, True),
        ):
            one = record(cloned_at=cloned_at, ended_at=ended_at)
            found = find(ReplicaLook(one, replica_status(), usage), limits)
            self.assertEqual(is_expected, found is not None, (cloned_at, ended_at))

    def test_growth_is_no_cause_by_default(self):
        self.assertEqual(0, drift.limits_of(None, WatchSettings()).max_own_percent)

    def test_lag(self):
        for before, lag_sec, is_expected in (
            ((650.0, 660.0, 670.0, 680.0, 690.0), 700.0, True),
            # It goes up and down, and grows nevertheless.
            ((650.0, 640.0, 680.0, 670.0, 710.0), 700.0, True),
            ((0.0, 0.0, 0.0, 0.0, 0.0), 700.0, True),
            ((700.0, 700.0, 700.0, 700.0, 700.0), 700.0, False),
            # It catches up, with a step back.
            ((900.0, 850.0, 800.0, 750.0, 690.0), 700.0, False),
            ((550.0, 560.0, 570.0, 580.0, 590.0), 600.0, False),
            ((660.0, 670.0, 680.0, 690.0), 700.0, False),
            ((650.0, 660.0, 670.0, 680.0, 690.0), None, False),
        ):
            found = find(broken(lag_sec=lag_sec), lags=before)
            self.assertEqual(is_expected, found is not None, (before, lag_sec))
            if found:
                self.assertIs(Cause.LAG, found.cause)
                self.assertIn('700 s behind its source', found.reason)

    def test_a_mysql_that_does_not_work(self):
        look = ReplicaLook(record(), None, agent_error='MySQL does not run')
        for seconds, is_expected in ((None, False), (0, False), (600, False), (601, True)):
            since = None if seconds is None else NOW - datetime.timedelta(seconds=seconds)
            found = find(look, failing_since=since)
            self.assertEqual(is_expected, found is not None, seconds)
            if found:
                self.assertIs(Cause.BROKEN, found.cause)
                self.assertIn('has not worked for 601 s: MySQL does not run', found.reason)

    def test_a_long_list_of_errant_transactions_is_shortened(self):
        other = ':'.join(str(number) for number in range(1, 1000, 2))
        found = find(broken(gtid_executed=executed(9, f'{OTHER_SERVER}:{other}')))
        self.assertLess(len(found.reason), 300)

    def test_a_policy_takes_precedence_over_the_options(self):
        settings = WatchSettings(
            reprovision_broken=False,
            reprovision_every_hours=1,
            max_own_percent=2,
            max_lag_sec=3,
            most_clone_depth=4,
        )
        self.assertEqual(drift.Limits(False, 1, 2, 3, 4), drift.limits_of(None, settings))
        policy = ReplicationPolicy('s', NOW, NOW)
        self.assertEqual(drift.Limits(False, 1, 2, 3, 4), drift.limits_of(policy, settings))
        policy = dataclasses.replace(
            policy, reprovision_every_hours=0, max_own_percent=8, max_lag_sec=9
        )
        self.assertEqual(drift.Limits(False, 0, 8, 9, 4), drift.limits_of(policy, settings))


class ChooseTest(base.BaseTestCase):
    def choose(self, candidates, others=(), **settings):
        found = [drift.Candidate(one, drift.Drift(cause, 'why')) for one, cause in candidates]
        records = [*(one for one, _cause in candidates), *others]
        chosen = drift.choose(found, records, WatchSettings(**settings), NOW)
        return [one.record.instance_id for one in chosen]

    def test_the_most_urgent_come_first(self):
        candidates = [
            (record('a', 's-a'), Cause.GROWTH),
            (record('b', 's-b'), Cause.AGE),
            (record('c', 's-c'), Cause.VOLUME),
        ]
        self.assertEqual(['c', 'b'], self.choose(candidates))
        self.assertEqual(['c', 'b', 'a'], self.choose(candidates, reprovisionings_at_once=9))
        self.assertEqual([], self.choose(candidates, reprovisionings_at_once=0))

    def test_one_at_a_time_for_each_source(self):
        candidates = [(record('a'), Cause.AGE), (record('b'), Cause.AGE)]
        self.assertEqual(['a'], self.choose(candidates))
        busy = record('c', state=ReplicaState.CLONING, requested_by=Requester.TENANT)
        self.assertEqual([], self.choose(candidates, [busy]))

    def test_requests_of_others_do_not_count_towards_the_limit_of_the_cloud(self):
        candidates = [(record('a'), Cause.AGE)]
        for requester, expected in ((Requester.TENANT, ['a']), (Requester.POLICY, [])):
            others = [
                record(name, name, state=ReplicaState.CATCHING_UP, requested_by=requester)
                for name in ('x', 'y')
            ]
            self.assertEqual(expected, self.choose(candidates, others))

    def test_those_that_wait_for_an_operator_do_not_count_towards_it_either(self):
        others = [
            record(name, name, state=ReplicaState.BLOCKED, requested_by=Requester.POLICY)
            for name in ('x', 'y')
        ]
        self.assertEqual(['a'], self.choose([(record('a'), Cause.AGE)], others))

    def test_one_that_waits_for_an_operator_delays_no_other_of_its_source(self):
        blocked = record('b', state=ReplicaState.BLOCKED, requested_by=Requester.TENANT)
        self.assertEqual(['a'], self.choose([(record('a'), Cause.AGE)], [blocked]))

    def test_a_pause_follows_each_reprovisioning_and_doubles_with_each_failure(self):
        settings = WatchSettings(pause=HOUR)
        for failures, ended, expected in (
            (0, None, False),
            (0, NOW - HOUR, False),
            (0, NOW - HOUR / 2, True),
            (1, NOW - HOUR, True),
            (1, NOW - 2 * HOUR, False),
            (3, NOW - 7 * HOUR, True),
            (50, NOW - 23 * HOUR, True),
            (50, NOW - 24 * HOUR, False),
        ):
            one = record(failures=failures, ended_at=ended)
            self.assertEqual(expected, drift.is_paused(one, settings, NOW), (failures, ended))
            self.assertEqual([] if expected else ['r'], self.choose([(one, Cause.AGE)]))


class ObservationTest(base.BaseTestCase):
    def test_a_replica_that_works(self):
        look = ReplicaLook(record(), replica_status(gtid_executed=executed(90)), USAGE)
        found = observation.observe(look, source_status())
        self.assertEqual((True, 0.0, 10, ''), dataclasses.astuple(found)[:4])
        self.assertEqual(str(executed(100)), found.source_executed)
        self.assertEqual(
            (None, units.Gi, 1), (found.replication_error, found.own_bytes, found.clone_depth)
        )

    def test_what_is_unknown_stays_or_is_none(self):
        known = record(source_executed='x', own_bytes=7, clone_depth=2, lag_transactions=1)
        found = observation.observe(ReplicaLook(known, None), None)
        self.assertEqual((None, None, None, None), dataclasses.astuple(found)[:4])
        self.assertEqual(('x', 7, 2), (found.source_executed, found.own_bytes, found.clone_depth))
        # The depth is known without a measurement.
        look = ReplicaLook(known, None, VolumeUsage(1, 4))
        found = observation.observe(look, None)
        self.assertEqual((7, 4), (found.own_bytes, found.clone_depth))

    def test_whether_commits_of_the_source_wait(self):
        look = ReplicaLook(record(semi_sync_active=True), replica_status())
        on = {'semi_sync_source': True, 'semi_sync_clients': 1}
        for facts, expected in (
            ({}, False),
            (on | {'semi_sync_waits': True}, True),
            # After a commit that no replica has acknowledged in time.
            (on | {'semi_sync_waits': False}, False),
            (on | {'semi_sync_waits': True, 'semi_sync_clients': 0}, False),
            (on, None),
        ):
            found = observation.observe(look, source_status(**facts))
            self.assertIs(expected, found.semi_sync_active, facts)
        self.assertIsNone(observation.observe(look, None).semi_sync_active)

    def test_a_replica_whose_data_are_lost_does_not_replicate(self):
        for status in (None, broken().status):
            look = ReplicaLook(record(), status, None, 'it is gone')
            found = observation.observe(look, source_status())
            self.assertIs(False, found.is_replicating)

    def test_the_lag_of_a_replica_that_does_not_follow_its_source_is_unknown(self):
        for look in (
            # An agent of an older guest image says 0 although nothing is received.
            broken(io_state=ThreadState.CONNECTING),
            broken(source_uuid=OTHER_SERVER),
            ReplicaLook(record(), replica_status(), None, 'it is gone'),
        ):
            found = observation.observe(look, source_status())
            self.assertEqual((None, 0.0), (found.lag_sec, look.status.lag_sec))

    def test_a_dishonest_source(self):
        text = f'{SERVER}:1-{gtid.GREATEST_NUMBER},{OTHER_SERVER}:1-{gtid.GREATEST_NUMBER}'
        source = source_status(gtid_executed=GtidSet.parse(text))
        found = observation.observe(ReplicaLook(record(), replica_status()), source)
        # What a BIGINT column holds.
        self.assertEqual(2**63 - 1, found.lag_transactions)

    def test_says_what_the_source_has_lost(self):
        for values in (
            {'gtid_executed': executed(102)},
            {'gtid_executed': executed(100, f'{DEAD[:-4]}:5-6')},
            {'gtid_executed': executed(102), 'io_error': 'more GTIDs', 'io_error_number': 13114},
        ):
            found = observation.observe(broken(**values), source_status())
            self.assertIn('its source lacks 2 transactions', found.replication_error)
        # What was written on the replica itself is not lost by its source.
        found = observation.observe(broken(gtid_executed=executed(9, ERRANT)), source_status())
        self.assertIsNone(found.replication_error)

    def test_why_a_replica_does_not_replicate(self):
        for look, expected in (
            (broken(), None),
            (ReplicaLook(record(), None), 'its guest agent does not answer'),
            (ReplicaLook(record(), None, None, 'it is gone', 'no MySQL'), 'it is gone'),
            (ReplicaLook(record(), None, agent_error='no MySQL'), 'no MySQL'),
            (broken(is_replica=False, is_read_only=True), 'it follows no source'),
            (
                broken(is_replica=False),
                'it follows no source, as after a detachment that was interrupted: detach it to '
                'keep what it has, or re-provision it, which discards that',
            ),
            (broken(source_uuid=OTHER_SERVER), 'it follows another server than its source'),
            (broken(sql_error='a', io_error='b', sql_error_number=1062), 'error 1062: a'),
            (broken(sql_error='a', sql_error_number=0), 'a'),
            (
                broken(io_error='b', io_error_number=2003, io_state=ThreadState.CONNECTING),
                'error 2003: b',
            ),
            (broken(io_state=ThreadState.CONNECTING), 'it is connecting to its source'),
            (broken(io_state=ThreadState.OFF), 'its replication was stopped'),
        ):
            found = observation.observe(look, source_status())
            self.assertEqual(expected, found.replication_error)
