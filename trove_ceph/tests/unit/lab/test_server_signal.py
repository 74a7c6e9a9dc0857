# SPDX-License-Identifier: Apache-2.0
"""The hypervisor process of a server."""

from pathlib import Path

import fixtures
import server_signal
from oslotest import base


class FindTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.processes = Path(self.useFixture(fixtures.TempDir()).path)

    def add(self, pid, *words):
        (self.processes / pid).mkdir()
        (self.processes / pid / 'cmdline').write_text('\0'.join(words) + '\0')

    def test_finds_the_process_of_a_server_only(self):
        self.add('7', '/usr/bin/qemu-system-x86_64', '-uuid', 's-1', '-display', 'none')
        self.add('8', '/usr/bin/qemu-system-x86_64', '-uuid', 's-2')
        self.add('9', 'grep', '-uuid', 's-1')
        self.add('10', '')
        (self.processes / '11').mkdir()
        self.assertEqual([7], list(server_signal.find('s-1', self.processes)))
        self.assertEqual([], list(server_signal.find('s-3', self.processes)))
