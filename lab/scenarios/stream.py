# SPDX-License-Identifier: Apache-2.0
"""Follow Tempest's subunit stream: say what runs, and keep what came of it."""

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
# When a class cannot be set up, or is skipped, its tests are not mentioned.
_WHOLE_CLASS = re.compile(r'setUpClass \((.+)\)')


@dataclasses.dataclass
class Row:
    """What came of one test.

    :param result: passed, failed, skipped, expected failure or UNEXPECTED PASS
    :param seconds: of the test itself
    :param prepared_sec: before it, since the test before: making its class's database
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
    """The rows so far; prints a line when a test begins and when it ends.

    :param names: the tests that will run
    :param reason_to_fail: says for a name why it fails on stock Trove, or None
    """

    def __init__(self, names, reason_to_fail, now=time.time):
        super().__init__()
        self.rows = []
        self.interrupted = False
        self._names = names
        self._announced = []
        self._reason_to_fail = reason_to_fail
        self._now = now
        self._since = self._doing_since = now()
        self._began = {}
        self._files = collections.defaultdict(dict)
        self._doing = self._what_next()

    def good(self) -> bool:
        """Return whether all tests that have to pass did, or were skipped."""
        unexplained = [name for name in self.missing() if not self._reason_to_fail(name)]
        failed = any(row.result == 'failed' for row in self.rows)
        return not (self.interrupted or unexplained or failed)

    def missing(self) -> list[str]:
        """Return the tests of which nothing was heard, nor of their class as a whole."""
        heard = {row.name for row in self.rows}
        classes = {match[1] for match in map(_WHOLE_CLASS.match, heard) if match}
        return [
            name
            for name in self._names
            if name not in heard and name.rpartition('.')[0] not in classes
        ]

    def doing(self) -> str:
        """Return what is under way, and for how long."""
        return f'{_minutes(self._now() - self._doing_since)}  {self._doing}'

    def status(self, test_id=None, test_status=None, file_name=None, file_bytes=None, **event):
        if test_id is None:
            return
        if file_name is not None:
            chunks = self._files[test_id].setdefault(file_name, [])
            chunks.append(bytes(file_bytes))
        at = event['timestamp'].timestamp() if event.get('timestamp') else self._now()
        if test_status == 'inprogress':
            self._began[test_id] = at
            self._doing, self._doing_since = _short(test_id), at
            print(f'{_clock(at)}  {_short(test_id)} …', flush=True)
        elif test_status == 'exists':
            # Tempest lists tests in one order and runs them in another, which it tells first.
            self._announced.append(_plain(test_id))
            self._doing = self._what_next()
        elif test_status:
            self._end(test_id, test_status, at)

    def _end(self, test_id, status, at):
        began = self._began.pop(test_id, at)
        files = {
            name: b''.join(chunks).decode(errors='replace')
            for name, chunks in self._files.pop(test_id, {}).items()
        }
        row = Row(
            name=_plain(test_id),
            result=self._result(_plain(test_id), status),
            seconds=round(at - began, 1),
            prepared_sec=round(max(0.0, began - self._since), 1),
            reason=self._reason(_plain(test_id), status, files),
            figures=_figures(files),
            details='\n'.join(f'{name}:\n{text}' for name, text in files.items()),
        )
        self._since = at
        self.rows.append(row)
        self._doing, self._doing_since = self._what_next(), at
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

    def _what_next(self):
        missing = set(self.missing())
        for name in self._announced or self._names:
            if name in missing:
                return f'preparing {_short(name)}'
        return 'clearing up'


def listed(command, workspace, environ) -> list[str]:
    """Return the names of the tests that a run of Tempest would have."""
    done = subprocess.run(
        command,
        cwd=workspace,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        sys.exit(f'scenario: tempest cannot list its tests; its answer is above\n{done.stdout}')
    return [_plain(line) for line in done.stdout.splitlines() if re.match(r'[\w.]+[\[(]?', line)]


def follow(source, raw, outcome: Outcome) -> None:
    """Read a subunit stream to its end, keeping a copy; say now and then what is under way."""
    over = threading.Event()

    def note():
        while not over.wait(NOTE_EVERY_SEC):
            print(f'          {outcome.doing()}', flush=True)

    noting = threading.Thread(target=note, daemon=True)
    noting.start()
    try:
        case = subunit.ByteStreamToStreamResult(_Tee(source, raw), non_subunit_name='stdout')
        outcome.startTestRun()
        case.run(outcome)
        outcome.stopTestRun()
    finally:
        over.set()
        noting.join()


class _Tee:
    """A stream that writes down what is read from it."""

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
