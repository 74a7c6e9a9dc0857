# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.bench import fakes
from trove_ceph_bench import measure, model, workloads

DATA = model.Dataset('d', 1, 100)


def load(**phases):
    phases = {'threads': 1, 'warmup_sec': 30, 'measure_sec': 60} | phases
    return model.Load(workloads.get('read'), DATA, **phases)


def outcome(**changes):
    """Return the result of a run without warnings."""
    return {
        'totals': {'errors': 0, 'reconnects': 0},
        'seconds': [{'tps': 5.0}, {'tps': 6.0}],
        'committer': {'gap_max_ms': 20.0, 'gap_max_at_sec': 1.0, 'errors': 0},
        'cpu': {'client_cores': 0.2, 'host_cores': 4, 'host_busy': 0.5},
        'client_saturated': False,
        'events': [{'name': 'e', 'exit_code': 0, 'output': ''}],
    } | changes


class WarningsTest(base.BaseTestCase):
    def warnings(self, planned=None, **changes):
        return measure.find_warnings(planned or load(), outcome(**changes))

    def test_none_for_a_good_run(self):
        self.assertEqual([], self.warnings())
        self.assertEqual([], self.warnings(committer=None))

    def assert_warned(self, part, *arguments, **changes):
        (warning,) = self.warnings(*arguments, **changes)
        self.assertIn(part, warning)

    def test_each_condition_gives_a_warning(self):
        self.assert_warned('no warm-up', load(warmup_sec=0))
        self.assert_warned('client used nearly all CPU time', client_saturated=True)
        self.assert_warned('3 transactions were retried', totals={'errors': 3, 'reconnects': 0})
        self.assert_warned('reopened 2 times', totals={'errors': 0, 'reconnects': 2})
        self.assert_warned('in 1 of 2 seconds', seconds=[{'tps': 0.0}, {'tps': 6.0}])
        self.assert_warned(
            'for 7.1 s, starting at second 3.5',
            committer={'gap_max_ms': 7100.0, 'gap_max_at_sec': 3.5, 'errors': 0},
        )
        self.assert_warned(
            'met 4 errors',
            committer={'gap_max_ms': 20.0, 'gap_max_at_sec': 1.0, 'errors': 4},
        )
        self.assert_warned(
            'host of the client was 97% busy',
            cpu={'client_cores': 0.2, 'host_cores': 4, 'host_busy': 0.97},
        )


class Phase:
    """Fake of a phase that measured all its seconds."""

    reason = None
    seconds = 60
    outcome = None

    def __init__(self, *arguments):
        pass

    def begin(self, stack):
        pass

    def watch(self):
        pass

    def results(self):
        return self.outcome


class WatchTest(base.BaseTestCase):
    """The seconds of a phase whose clock stands still."""

    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.host = mock.Mock()
        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.measure._sleep_until', self.sleep))
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph_bench.measure.time.monotonic', lambda: self.now)
        )

    def sleep(self, moment):
        self.now = moment

    def phase(self, **phases):
        target = fakes.Target('a', [])
        found = measure._Phase([target], load(**phases), Path('/x'), mock.Mock(), [])
        found._runs = [mock.Mock(failed=False, **{'samples.return_value': []})]
        found._host = self.host
        return found

    def test_asks_for_the_servers_at_the_start_and_at_the_end(self):
        phase = self.phase(warmup_sec=2, measure_sec=5)
        phase.watch()
        self.assertEqual(5, phase.seconds)
        self.assertEqual(6, self.host.read.call_count)
        self.assertEqual(2, self.host.read_servers.call_count)

    def test_warns_of_figures_of_the_image_that_end_early(self):
        phase = self.phase()
        phase._since = 100
        phase._rbd = mock.Mock(silent_since=112.0)
        phase._warn(outcome(rbd={}), {})
        (warning,) = phase._warnings
        self.assertIn('end before second 12: its cluster did not answer', warning)
        phase._warnings.clear()
        phase._rbd.silent_since = None
        phase._warn(outcome(rbd={}), {})
        self.assertEqual([], phase._warnings)

    def test_a_late_interruption_adds_no_seconds(self):
        def late():
            self.now += 60
            raise KeyboardInterrupt

        self.host.read_servers.side_effect = lambda: late() if self.now else None
        phase = self.phase(warmup_sec=0, measure_sec=5)
        phase.watch()
        self.assertEqual((5, 'interrupted'), (phase.seconds, phase.reason))


class MeasureTest(base.BaseTestCase):
    def measured(self, **changes):
        path = Path(self.useFixture(fixtures.TempDir()).path)
        for name, value in (
            ('reason', changes.pop('reason', None)),
            ('outcome', outcome(**changes)),
        ):
            self.useFixture(fixtures.MonkeyPatch(f'{__name__}.Phase.{name}', value))
        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.measure._Phase', Phase))
        run = measure.measure([object()], load(), path, print)
        return run['complete'], run['reason']

    def test_a_run_with_a_failed_event_is_not_complete(self):
        self.assertEqual((True, None), self.measured())
        for code in (1, None):
            events = [{'name': 'snap', 'exit_code': code, 'output': 'why'}]
            self.assertEqual((False, 'event snap failed: why'), self.measured(events=events))
            # It failed because the run was cut off.
            self.assertEqual((False, 'cut'), self.measured(events=events, reason='cut'))

    def test_refuses_an_empty_measurement(self):
        for targets, planned in (
            ([], load()),
            ([object()], load(measure_sec=0)),
            ([object()], load(warmup_sec=-1)),
        ):
            self.assertRaises(
                exceptions.InvalidPlanError, measure.measure, targets, planned, Path('/x'), print
            )
