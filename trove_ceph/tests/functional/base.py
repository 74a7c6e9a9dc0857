# SPDX-License-Identifier: Apache-2.0
"""What the functional tests share."""

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


class FunctionalTestCase(testtools.TestCase):
    """A test with a directory of its own, whose logs are kept with its failure."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest('needs root: daemons, loop devices and mounts')
        self.directory = Path(tempfile.mkdtemp(prefix='t', dir=workspace.shared()))
        self.useFixture(fixtures.Timeout(TIMEOUT_SEC, gentle=True))
        self.addOnException(lambda _: self._keep_logs())

    def _keep_logs(self):
        for log in sorted(self.directory.rglob('*.log')):
            tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors='replace')
            if tail:
                name = str(log.relative_to(self.directory))
                self.addDetail(name, text_content(tail))
