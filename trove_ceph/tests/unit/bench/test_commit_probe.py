# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph_bench import commit_probe, model

#: Ten commits, one every 100 ms from 100.0 on, each acknowledged after 10 ms.
STEADY = [(100 + n / 10, 100.01 + n / 10) for n in range(10)]


def log(*acknowledged, errors=()):
    return commit_probe.Log([(ack - 0.01, ack) for ack in acknowledged], list(errors))


class EvaluateTest(base.BaseTestCase):
    def gap(self, found, since, until):
        result = commit_probe.evaluate([found], since, until)
        return result['gap_max_ms'], result['gap_max_at_sec']

    def test_commits_and_their_latency(self):
        result = commit_probe.evaluate([commit_probe.Log(STEADY, [100.5])], 100, 101)
        self.assertEqual((10, 1), (result['commits'], result['errors']))
        self.assertEqual(dict.fromkeys(result['commit_ms'], 10.0), result['commit_ms'])
        self.assertEqual(['avg', 'p50', 'p95', 'p99', 'p99.9', 'max'], list(result['commit_ms']))
        self.assertAlmostEqual(100.0, result['gap_max_ms'])

    def test_percentiles_of_commits(self):
        durations = [n / 1000 for n in range(1, 101)]
        commits = [(n, n + seconds) for n, seconds in enumerate(durations)]
        figures = commit_probe.evaluate([commit_probe.Log(commits, [])], -1, 200)['commit_ms']
        self.assertEqual(
            {'avg': 50.5, 'p50': 50.0, 'p95': 95.0, 'p99': 99.0, 'p99.9': 100.0, 'max': 100.0},
            figures,
        )

    def test_gap_in_the_middle(self):
        self.assertEqual((2500.0, 1.0), self.gap(log(10.5, 11, 13.5, 13.6), 10, 14))

    def test_stall_that_has_not_ended_counts_up_to_the_end(self):
        self.assertEqual((3000.0, 1.0), self.gap(log(10.5, 11), 10, 14))

    def test_stall_that_ended_after_the_phase_counts_up_to_its_end(self):
        self.assertEqual((3000.0, 1.0), self.gap(log(10.5, 11, 20), 10, 14))

    def test_stall_that_began_before_the_phase_counts_from_its_begin(self):
        self.assertEqual((3500.0, 0.0), self.gap(log(8, 11.5, 12, 13), 10, 14))

    def test_no_commit_at_all_is_one_gap(self):
        result = commit_probe.evaluate([log()], 10, 14)
        self.assertEqual((0, 4000.0), (result['commits'], result['gap_max_ms']))
        self.assertEqual({None}, set(result['commit_ms'].values()))

    def test_gap_of_a_second_grows_while_the_stall_lasts(self):
        result = commit_probe.evaluate([log(10.5, 11.5, 13.75, 13.8)], 10, 14)
        self.assertEqual(
            [(1, 500.0), (2, 1000.0), (3, 1500.0), (4, 2250.0)],
            [(each['second'], each['gap_max_ms']) for each in result['seconds']],
        )

    def test_incomplete_last_second_counts_as_a_second(self):
        result = commit_probe.evaluate([log(10.5)], 10, 12.4)
        self.assertEqual([1, 2, 3], [each['second'] for each in result['seconds']])
        self.assertEqual(1900.0, result['seconds'][-1]['gap_max_ms'])

    def test_largest_gap_of_several_committers_counts(self):
        steady = commit_probe.Log([(n / 10, n / 10 + 0.01) for n in range(100, 140)], [])
        result = commit_probe.evaluate([steady, log(10.5, 13)], 10, 14)
        self.assertEqual((42, 2500.0), (result['commits'], result['gap_max_ms']))

    def test_rate(self):
        steady = commit_probe.Log(STEADY, [])
        self.assertAlmostEqual(10, steady.rate(100, 101))
        self.assertAlmostEqual(6, steady.rate(100.405, 101.405))
        self.assertIsNone(steady.rate(100, 100))


class LogTest(base.BaseTestCase):
    def test_read(self):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'log'
        path.write_text(
            '1,10.000000,10.005000,\n'
            "2,10.005100,12.000000,(2013, 'Lost connection, really')\n"
            '3,12.100000,12.110000,\n'
            '4,12.110000,12.1'
        )

        found = commit_probe.Log.read(path)

        self.assertEqual([(10.0, 10.005), (12.1, 12.11)], found.commits)
        self.assertEqual([12.0], found.errors)


class CommitterTest(base.BaseTestCase):
    def test_unreachable_server(self):
        address = model.Address('u', 'secret', 'd', unix_socket='/nonexistent/socket')
        error = self.assertRaises(exceptions.LoadFailedError, commit_probe.Committer(address).start)

        self.assertIn('No such file or directory', str(error))
        self.assertNotIn('secret', str(error))
