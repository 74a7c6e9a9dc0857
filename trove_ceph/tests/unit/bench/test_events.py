# SPDX-License-Identifier: Apache-2.0
import time
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph_bench import events, model

TIMEOUT_SEC = 60


class Target:
    def __init__(self, name, address, image=None):
        self.name = name
        self.address = address
        self.image = image


class EnvironmentTest(base.BaseTestCase):
    def test_describes_the_first_target_and_its_image(self):
        image = model.Image('pool', 'disk', '/etc/c.conf', 'bench')
        first = Target('one', model.Address('u', 'p', 'd', 'db.example', 3307), image)
        second = Target('two', model.Address('u', 'p', 'd'))

        self.assertEqual(
            {
                'BENCH_TARGET': 'one',
                'BENCH_TARGETS': 'one two',
                'BENCH_HOST': 'db.example',
                'BENCH_PORT': '3307',
                'BENCH_SOCKET': '',
                'BENCH_USER': 'u',
                'BENCH_PASSWORD': 'p',
                'BENCH_DATABASE': 'd',
                'BENCH_POOL': 'pool',
                'BENCH_IMAGE': 'disk',
                'BENCH_CEPH_CONF': '/etc/c.conf',
                'BENCH_CEPH_USER': 'bench',
            },
            events.environment([first, second]),
        )

    def test_variables_are_empty_without_an_image(self):
        variables = events.environment(
            [Target('o', model.Address('u', 'p', 'd', unix_socket='/s'))]
        )
        self.assertEqual(('', '/s'), (variables['BENCH_IMAGE'], variables['BENCH_SOCKET']))


class EventsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)

    def run_until(self, done, *planned):
        """Run events until a condition holds, and return their results."""
        running = events.Events(planned, {'BENCH_TARGET': 'db'}, self.directory / 'events')
        with running:
            running.start(time.monotonic())
            deadline = time.monotonic() + TIMEOUT_SEC
            while not done():
                self.assertLess(time.monotonic(), deadline, 'timed out')
                time.sleep(0.02)
        return running.results()

    def has(self, name):
        return lambda: (self.directory / name).exists()

    def mark(self, name):
        return f'touch {self.directory / name}'

    def test_command_gets_variables_and_its_output_is_stored(self):
        (result,) = self.run_until(
            lambda: 'db' in self.log('snap-shot'),
            model.Event(0.1, 'snap/shot', 'echo "on $BENCH_TARGET" >&2'),
        )

        self.assertEqual('on db\n', self.log('snap-shot'))
        self.assertEqual('on db', result['output'])
        self.assertGreaterEqual(result['at_sec'], 0.1)

    def log(self, name):
        path = self.directory / 'events' / f'{name}.log'
        return path.read_text() if path.exists() else ''

    def test_reports_a_failure(self):
        first = model.Event(0, 'bad', 'echo no; exit 3')
        after = model.Event(3, 'after', self.mark('done'))

        bad, good = self.run_until(self.has('done'), first, after)

        self.assertEqual(('bad', 3, 'no'), (bad['name'], bad['exit_code'], bad['output']))
        self.assertLess(bad['ended_sec'], good['at_sec'])

    def test_stops_a_running_command_and_its_children(self):
        pids = self.directory / 'pids'
        command = f'sleep 1000 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait'

        (result,) = self.run_until(self.has('pids'), model.Event(0, 'endless', command))

        self.assertIsNone(result['exit_code'])
        self.assertIn('still running at the end', result['output'])
        self.assert_gone(pids)

    def test_stops_background_processes_of_a_finished_command(self):
        pids = self.directory / 'pids'
        command = f'sleep 1000 & echo $! > {pids}.new; mv {pids}.new {pids}'
        after = model.Event(3, 'after', self.mark('done'))

        left, _ = self.run_until(self.has('done'), model.Event(0, 'left', command), after)

        self.assertEqual(0, left['exit_code'])
        self.assert_gone(pids)

    def assert_gone(self, pids):
        for pid in pids.read_text().split():
            deadline = time.monotonic() + TIMEOUT_SEC
            while _runs(int(pid)):
                self.assertLess(time.monotonic(), deadline, f'{pid} still runs')
                time.sleep(0.02)

    def test_event_after_the_end_of_the_run(self):
        (result,) = self.run_until(lambda: True, model.Event(500, 'late', self.mark('late')))

        self.assertEqual((None, None), (result['ended_sec'], result['exit_code']))
        self.assertEqual(500, result['at_sec'])
        self.assertIn('the run ended before the event', result['output'])
        self.assertFalse((self.directory / 'late').exists())

    def test_creates_no_directory_without_events(self):
        self.assertEqual([], self.run_until(lambda: True))
        self.assertFalse((self.directory / 'events').exists())


def _runs(pid):
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] not in 'ZX'
    except (FileNotFoundError, ProcessLookupError):
        return False
