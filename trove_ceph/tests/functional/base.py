# SPDX-License-Identifier: Apache-2.0
"""The base of all functional tests."""

import contextlib
import os
import tempfile
from pathlib import Path

import fixtures
import testtools
from testtools.content import text_content

from trove_ceph.tests.functional import workspace

CHECKOUT = Path(__file__).resolve().parents[3]
LOG_TAIL_BYTES = 4000
# The first test that needs MySQL may wait for the build of its root file system.
TIMEOUT_SEC = 900

LONG = 'long'
SERIAL = 'serial'


def long(test):
    """Put a test, or all tests of a class, into the long suite; CI runs a share of it each day."""
    return _tagged(test, LONG)


def serial(test):
    """Run a test, or all tests of a class, while no other functional test runs.

    For tests that measure, or that fail if the machine does not schedule them for seconds.
    """
    return _tagged(test, SERIAL)


def _tagged(test, tag):
    test.tags = frozenset(getattr(test, 'tags', ())) | {tag}
    return test


class TaggedTestCase(testtools.TestCase):
    """A test whose id ends in its tags, as in ``test_module.SomeTest.test_something[long]``."""

    tags = frozenset()

    def id(self):
        method = getattr(self, self._testMethodName)
        tags = self.tags | getattr(method, 'tags', frozenset())
        return f'{super().id()}[{",".join(sorted(tags))}]' if tags else super().id()


class FunctionalTestCase(TaggedTestCase):
    """A test with a directory of its own; its failure has the end of the logs in it."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest('needs root: daemons, loop devices and mounts')
        self.directory = Path(tempfile.mkdtemp(prefix='t', dir=workspace.shared()))
        self.useFixture(fixtures.Timeout(TIMEOUT_SEC, gentle=True))
        self.addOnException(lambda _: self._attach_logs())

    def _attach_logs(self):
        # A directory on a disk that has died cannot be listed: os.walk skips it.
        for directory, _, files in sorted(os.walk(self.directory)):
            for name in sorted(name for name in files if name.endswith('.log')):
                self._attach_log(Path(directory, name))

    def _attach_log(self, log):
        with contextlib.suppress(OSError):
            tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors='replace')
            if tail:
                name = str(log.relative_to(self.directory))
                self.addDetail(name, text_content(tail))
