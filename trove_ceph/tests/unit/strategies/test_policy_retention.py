# SPDX-License-Identifier: Apache-2.0
"""Which backups stay, in counted and in random cases."""

import dataclasses
import datetime
import random

from oslotest import base
from testtools import content

from trove_ceph.db.policy_record import Retention
from trove_ceph.strategies.policies import retention
from trove_ceph.strategies.policies.retention import Candidate

NOW = datetime.datetime(2026, 7, 1, 12)
HOUR, DAY = datetime.timedelta(hours=1), datetime.timedelta(days=1)


def candidates(*ages, step=HOUR, **facts):
    """Return backups with these ages in steps, the oldest first."""
    return [
        Candidate(f'b{age}', number, NOW - age * step, **facts)
        for number, age in enumerate(sorted(ages, reverse=True))
    ]


def live(keep, count, step, timezone='UTC', now=NOW):
    """Take a number of backups, delete the expired ones after each, and return the rest."""
    stay = []
    for number in range(count):
        taken_at = now - (count - 1 - number) * step
        stay.append(Candidate(f'{number}', number, taken_at))
        gone = retention.expired(stay, keep, taken_at, timezone)
        stay = [one for one in stay if one.backup_id not in gone]
    return stay


class RetentionTest(base.BaseTestCase):
    def expired(self, given, now=NOW, timezone='UTC', **keep):
        return retention.expired(given, Retention(**keep), now, timezone)

    def test_keeps_the_last_backups(self):
        self.assertEqual(['b3', 'b2'], self.expired(candidates(0, 1, 2, 3), last=2))
        self.assertEqual([], self.expired(candidates(0, 1), last=2))
        self.assertEqual([], self.expired([], last=2))

    def test_keeps_suspected_backups_in_addition_to_good_ones(self):
        """Whether the suspicion is right or not, no good backup is lost."""
        for position in range(4):
            given = candidates(0, 1, 2, 3)
            given[position] = dataclasses.replace(given[position], is_good=False, is_suspected=True)
            gone = self.expired(given, last=2)
            self.assertNotIn(given[position].backup_id, gone)
            good = [one.backup_id for one in given if one.is_good]
            self.assertEqual(good[:1], gone)
            self.assertEqual(gone, retention.expired(given, Retention(last=2), NOW, is_full=True))

    def test_keeps_damaged_backups_as_long_as_good_ones_and_in_addition(self):
        given = candidates(0, 1, 2, 3)
        for position in (3, 2, 1):
            given[position] = dataclasses.replace(given[position], is_good=False, is_damaged=True)
        # The last three are damaged: the last good one stays at any age.
        self.assertEqual(['b2'], self.expired(given, last=2))
        self.assertEqual([], self.expired(given, last=3))
        self.assertEqual(['b2'], retention.expired(given, Retention(last=2), NOW, is_full=True))
        given[3] = dataclasses.replace(given[3], is_good=True, is_damaged=False)
        self.assertEqual(['b2'], self.expired(given, last=2))

    def test_the_last_good_backup_never_expires(self):
        for bad in ({'is_damaged': True}, {'is_suspected': True}, {}):
            given = candidates(1, 2, 3, 4, 5, is_good=False, **bad)
            given = [*candidates(9), *given]
            for is_full in (False, True):
                gone = retention.expired(given, Retention(last=1), NOW, is_full=is_full)
                self.assertNotIn('b9', gone)

    def test_grandfather_father_son(self):
        keep = Retention(hourly=24, daily=7, weekly=4, monthly=6)
        stay = live(keep, 24 * 365, HOUR)
        ages = [(NOW - one.taken_at) // HOUR for one in reversed(stay)]
        self.assertEqual(list(range(24)), ages[:24])
        days = {one.taken_at.date() for one in stay}
        self.assertLessEqual({(NOW - n * DAY).date() for n in range(7)}, days)
        months = {(one.taken_at.year, one.taken_at.month) for one in stay}
        self.assertEqual({(2026, month) for month in range(2, 8)}, months)
        # 24 hours, two of which are also the last of their days, and 6 more days, weeks and months.
        self.assertLessEqual(len(stay), 24 + 7 + 4 + 6)
        # Each is the last one of its day, week or month.
        old = [one.taken_at for one in stay if one.taken_at < NOW - 30 * DAY]
        self.assertEqual({23}, {one.hour for one in old})
        self.assertTrue(all((one + DAY).day == 1 for one in old if one < NOW - 60 * DAY), old)

    def test_ignores_periods_without_a_backup(self):
        given = candidates(0, 100, 200, 300, step=DAY)
        self.assertEqual(['b300'], self.expired(given, daily=3))

    def test_days_begin_in_the_time_zone_of_the_policy(self):
        # 23:30 and 00:30 in Berlin.
        given = [
            Candidate('a', 0, datetime.datetime(2026, 6, 29, 21, 30)),
            Candidate('b', 1, datetime.datetime(2026, 6, 29, 22, 30)),
        ]
        self.assertEqual(['a'], self.expired(given, daily=2))
        self.assertEqual([], self.expired(given, daily=2, timezone='Europe/Berlin'))

    def test_an_hour_that_occurs_twice_counts_twice(self):
        given = [
            Candidate('first', 0, datetime.datetime(2026, 10, 25, 0, 30)),
            Candidate('second', 1, datetime.datetime(2026, 10, 25, 1, 30)),
        ]
        now = datetime.datetime(2026, 10, 26)
        self.assertEqual([], self.expired(given, now, 'Europe/Berlin', hourly=2))

    def test_a_clock_that_is_behind_expires_nothing_early(self):
        given = candidates(*range(14), step=DAY)
        for days in (1, 3, 13, 30):
            self.assertEqual([], self.expired(given, NOW - days * DAY, daily=14), days)

    def test_dates_in_the_future_displace_no_good_backup(self):
        given = candidates(*range(14), step=DAY)
        given += [Candidate(f'ahead{n}', 100 + n, NOW + (n + 1) * DAY) for n in range(3)]
        self.assertEqual([], self.expired(given, daily=14))

    def test_keeps_the_last_good_backup(self):
        (good,) = candidates(50)
        bad = [
            dataclasses.replace(one, number=one.number + 1, is_good=False)
            for one in candidates(*range(10))
        ]
        gone = self.expired([good, *bad], last=1)
        self.assertNotIn('b50', gone)
        # The last failed one stays too, for a look at its error.
        self.assertEqual([f'b{age}' for age in range(9, 0, -1)], gone)
        better = Candidate('better', 99, NOW)
        gone = self.expired([good, *bad, better], last=1)
        self.assertEqual(['b50', *(one.backup_id for one in bad)], gone)

    def test_keeps_the_last_verified_backup(self):
        given = candidates(*range(10))
        given[3] = dataclasses.replace(given[3], is_verified=True)
        gone = self.expired(given, last=2)
        self.assertNotIn(given[3].backup_id, gone)
        self.assertEqual(7, len(gone))
        given[8] = dataclasses.replace(given[8], is_verified=True)
        self.assertIn(given[3].backup_id, self.expired(given, last=2))

    def test_keeps_the_last_copied_backup(self):
        """A copy may take longer than backups are kept."""
        given = candidates(*range(10))
        given[3] = dataclasses.replace(given[3], is_copied=True)
        given[4] = dataclasses.replace(given[4], is_under_way=True)
        gone = self.expired(given, last=2)
        self.assertEqual(6, len(gone))
        self.assertFalse({given[3].backup_id, given[4].backup_id} & set(gone))

    def test_keeps_a_backup_that_is_being_taken(self):
        given = candidates(0, 1, 2)
        given[2] = dataclasses.replace(given[2], is_under_way=True)
        # It does not count in place of another one, and is not deleted.
        self.assertEqual(['b2'], self.expired(given, last=1))

    def test_tolerates_a_clock_that_was_ahead(self):
        """A date in the future opens no period of its own."""
        ahead = [Candidate(f'a{n}', n, NOW + n * 365 * DAY) for n in range(5)]
        given = ahead + [Candidate(f'n{n}', 10 + n, NOW - (3 - n) * DAY) for n in range(4)]
        gone = self.expired(given, daily=4)
        self.assertEqual([one.backup_id for one in ahead], gone)

    def test_tolerates_a_clock_that_was_behind(self):
        behind = [Candidate(f'b{n}', 20 + n, NOW - 9000 * DAY + n * DAY) for n in range(3)]
        given = candidates(0, 1, 2, step=DAY) + behind
        gone = self.expired(given, daily=2)
        # The order in which they were taken decides.
        self.assertEqual({'b1', 'b2'}, {one.backup_id for one in behind} - set(gone))


class RandomRetentionTest(base.BaseTestCase):
    """The promises that hold in every case."""

    def setUp(self):
        super().setUp()
        seed = random.randrange(2**32)
        self.addDetail('seed', content.text_content(f'{seed}'))
        self.dice = random.Random(seed)

    def throw(self):
        """Return some backups with random dates."""
        count = self.dice.randrange(1, 40)
        moments = [NOW + self.dice.uniform(-400, 40) * DAY for _ in range(count)]
        if self.dice.random() < 0.7:
            moments.sort()
        return [
            Candidate(
                f'{number}',
                number,
                moment,
                is_under_way=self.dice.random() < 0.1,
                is_good=self.dice.random() < 0.7,
                is_copied=self.dice.random() < 0.3,
                is_verified=self.dice.random() < 0.3,
            )
            for number, moment in enumerate(moments)
        ]

    def keep(self):
        return Retention(*(self.dice.choice((0, 0, 1, 2, 5, 20)) for _ in range(5)))

    def test_promises(self):
        for _ in range(300):
            given, keep = self.throw(), self.keep()
            zone = self.dice.choice(('UTC', 'Europe/Berlin', 'Pacific/Apia'))
            gone = retention.expired(given, keep, NOW, zone)
            self.assertEqual(len(gone), len(set(gone)))
            stay = [one for one in given if one.backup_id not in gone]
            good = [one for one in given if one.is_good and not one.is_under_way]
            self.assertEqual(good[-1:], [one for one in good if one in stay][-1:])
            verified = [one for one in good if one.is_verified]
            self.assertLessEqual(set(verified[-1:]), set(stay))
            copied = [one for one in good if one.is_copied]
            self.assertLessEqual(set(copied[-1:]), set(stay))
            self.assertLessEqual({one for one in given if one.is_under_way}, set(stay))
            self.assertLessEqual(set(good[-keep.last :] if keep.last else ()), set(stay))
            # Twice the periods: dates in the future count both as they are and as now.
            periods = keep.hourly + keep.daily + keep.weekly + keep.monthly
            most = keep.last + (2 if max(one.taken_at for one in given) > NOW else 1) * periods
            self.assertLessEqual(len([one for one in stay if one in good]), most + 3)
            # A second call finds nothing to do, and keeping more deletes no more.
            self.assertEqual([], retention.expired(stay, keep, NOW, zone))
            more = Retention(*(count + 1 for count in dataclasses.astuple(keep)))
            self.assertLessEqual(set(retention.expired(given, more, NOW, zone)), set(gone))

    def test_a_wrong_clock_deletes_nothing_that_a_right_one_keeps(self):
        for _ in range(100):
            given, keep = self.throw(), self.keep()
            right = max(one.taken_at for one in given)
            wrong = right - self.dice.uniform(-400, 400) * DAY
            kept = {one.backup_id for one in given} - set(retention.expired(given, keep, right))
            self.assertEqual(set(), kept & set(retention.expired(given, keep, wrong)))

    def test_order_of_the_list_does_not_matter(self):
        for _ in range(50):
            given, keep = self.throw(), self.keep()
            shuffled = self.dice.sample(given, len(given))
            self.assertEqual(
                retention.expired(given, keep, NOW), retention.expired(shuffled, keep, NOW)
            )
