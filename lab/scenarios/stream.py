# SPDX-License-Identifier: Apache-2.0
"""Follow Tempest's subunit stream: print progress, and collect the results."""

import collections
import dataclasses
import json
import re
import subprocess
import sys
import threading
import time

import subunit
import testtools

NOTE_EVERY_SEC = 60.0
_FAILED = ('fail', 'uxsuccess')
# If a class cannot be set up, or is skipped, the stream does not mention its tests.
_WHOLE_CLASS = re.compile(r'setUpClass \((.+)\)')


@dataclasses.dataclass
class Row:
    """The result of one test.

    :param result: passed, failed, skipped, expected failure or UNEXPECTED PASS
    :param seconds: the duration of the test itself
    :param prepared_sec: the time since the previous test, for the database of its class
    :param reason: why it was skipped or failed
    """

    name: str
    result: str
    seconds: float
    prepared_sec: float
    reason: str = ''
    figures: dict = dataclasses.field(default_factory=dict)
    details: str = ''


class Outcome(testtools.StreamResult):
    """The results so far; print a line when a test begins and when it ends.

    :param names: the tests that will run
    :param reason_to_fail: returns for a name why it fails on stock Trove, or None
    """

    def __init__(self, names, reason_to_fail, now=time.time):
        super().__init__()
        self.rows = []
        self.interrupted = False
        self._names = names
        self._announced = []
        self._reason_to_fail = reason_to_fail
        self._now = now
        self._since = self._activity_since = now()
        self._started = {}
        self._files = collections.defaultdict(dict)
        self._activity = self._next_activity()

    def successful(self) -> bool:
        """Return whether all tests that must pass passed or were skipped."""
        unexplained = [name for name in self.missing() if not self._reason_to_fail(name)]
        failed = any(row.result == 'failed' for row in self.rows)
        return not (self.interrupted or unexplained or failed)

    def missing(self) -> list[str]:
        """Return the tests without a result of their own or of their whole class."""
        reported = {row.name for row in self.rows}
        classes = {match[1] for match in map(_WHOLE_CLASS.match, reported) if match}
        return [
            name
            for name in self._names
            if name not in reported and name.rpartition('.')[0] not in classes
        ]

    def activity(self) -> str:
        """Return the present activity and its duration."""
        return f'{_minutes(self._now() - self._activity_since)}  {self._activity}'

    def status(self, test_id=None, test_status=None, file_name=None, file_bytes=None, **event):
        if test_id is None:
            return
        if file_name is not None:
            chunks = self._files[test_id].setdefault(file_name, [])
            chunks.append(bytes(file_bytes))
        at = event['timestamp'].timestamp() if event.get('timestamp') else self._now()
        if test_status == 'inprogress':
            self._started[test_id] = at
            self._activity, self._activity_since = _short(test_id), at
            print(f'{_clock(at)}  {_short(test_id)} …', flush=True)
        elif test_status == 'exists':
            # Tempest lists tests in one order and runs them in another, which it announces first.
            self._announced.append(_plain(test_id))
            self._activity = self._next_activity()
        elif test_status:
            self._end(test_id, test_status, at)

    def _end(self, test_id, status, at):
        started = self._started.pop(test_id, at)
        files = {
            name: b''.join(chunks).decode(errors='replace')
            for name, chunks in self._files.pop(test_id, {}).items()
        }
        row = Row(
            name=_plain(test_id),
            result=self._result(_plain(test_id), status),
            seconds=round(at - started, 1),
            prepared_sec=round(max(0.0, started - self._since), 1),
            reason=self._reason(_plain(test_id), status, files),
            figures=_figures(files),
            details='\n'.join(f'{name}:\n{text}' for name, text in files.items()),
        )
        self._since = at
        self.rows.append(row)
        self._activity, self._activity_since = self._next_activity(), at
        print(
            f'{_clock(at)}  {row.result:<16} {row.seconds:7.1f} s  {_short(row.name)}', flush=True
        )

    def _result(self, name, status):
        expected = self._reason_to_fail(name) is not None
        if status in _FAILED:
            return 'expected failure' if expected else 'failed'
        if status == 'skip':
            return 'skipped'
        return 'UNEXPECTED PASS' if expected else 'passed'

    def _reason(self, name, status, files):
        if status == 'skip':
            return files.get('reason', '').strip()
        if status in _FAILED:
            known = self._reason_to_fail(name)
            return known or _last_line(files.get('traceback', ''))
        return ''

    def _next_activity(self):
        missing = set(self.missing())
        for name in self._announced or self._names:
            if name in missing:
                return f'preparing {_short(name)}'
        return 'cleaning up'


def listed(command, workspace, environ) -> list[str]:
    """Return the names of the tests that Tempest would run."""
    done = subprocess.run(
        command,
        cwd=workspace,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        sys.exit(f'scenario: tempest cannot list its tests; its error is above\n{done.stdout}')
    return [_plain(line) for line in done.stdout.splitlines() if re.match(r'[\w.]+[\[(]?', line)]


def follow(source, raw, outcome: Outcome) -> None:
    """Read a subunit stream to its end, save a copy, and print the activity periodically."""
    ended = threading.Event()

    def print_activity():
        while not ended.wait(NOTE_EVERY_SEC):
            print(f'          {outcome.activity()}', flush=True)

    printer = threading.Thread(target=print_activity, daemon=True)
    printer.start()
    try:
        case = subunit.ByteStreamToStreamResult(_Tee(source, raw), non_subunit_name='stdout')
        outcome.startTestRun()
        case.run(outcome)
        outcome.stopTestRun()
    finally:
        ended.set()
        printer.join()


class _Tee:
    """A stream that copies all data that is read from it."""

    def __init__(self, source, copy):
        self._source, self._copy = source, copy

    def read(self, size=-1):
        data = self._source.read(size)
        self._copy.write(data)
        return data


def _figures(files):
    try:
        return json.loads(files.get('figures', '{}'))
    except ValueError:
        return {}


def _plain(test_id):
    """Return a test's name without the ids and tags that Tempest appends."""
    return re.sub(r'\[.*\]$', '', test_id.strip())


def _short(name):
    return re.sub(r'(trove_ceph_|trove_)tempest_plugin\.tests\.scenario\.', r'', _plain(name))


def _last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ''


def _clock(at):
    return time.strftime('%H:%M:%S', time.localtime(at))


def _minutes(seconds):
    return f'{int(seconds) // 60}:{int(seconds) % 60:02}'
