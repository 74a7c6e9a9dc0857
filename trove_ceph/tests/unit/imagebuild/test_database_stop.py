# SPDX-License-Identifier: Apache-2.0
"""The program that stops the database's container with the machine, with a fake docker."""

import os
import re
import subprocess
from pathlib import Path

import fixtures
from oslotest import base

ROOT = Path(__file__).resolve().parents[4]
FILES = ROOT / 'trove_ceph/imagebuild/files/guest'
PROGRAM = FILES / 'usr/local/sbin/trove-database'
UNIT = FILES / 'etc/systemd/system/trove-database.service'

DOCKER = """#!/bin/sh
echo "$@" >>"$CALLS"
[ "$1" != inspect ] || cat "$RUNNING"
[ "$1" != start ] || exit "$START_STATUS"
"""


class DatabaseStopTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.state = self.directory / 'state'
        self.state.mkdir()
        docker = self.directory / 'docker'
        docker.write_text(DOCKER)
        docker.chmod(0o755)

    def run_program(self, *arguments, running=None, start_status=0):
        """Run the program; return the calls of docker but those that only ask.

        :param running: what docker tells of the container; None: there is none
        """
        calls, answer = self.directory / 'calls', self.directory / 'running'
        calls.write_text('')
        answer.unlink(missing_ok=True)
        if running is not None:
            answer.write_text(running)
        variables = {
            'PATH': f'{self.directory}:{os.environ["PATH"]}',
            'STATE_DIRECTORY': str(self.state),
            'CALLS': str(calls),
            'RUNNING': str(answer),
            'START_STATUS': str(start_status),
        }
        subprocess.run([str(PROGRAM), *arguments], env=variables, check=True, capture_output=True)
        return [line for line in calls.read_text().splitlines() if not line.startswith('inspect')]

    def test_what_it_stops_is_started_at_the_next_boot(self):
        for start_status in (0, 1):
            self.assertEqual([], self.run_program('start'))
            stopped = self.run_program('stop', '300', running='true')
            self.assertEqual(['stop -t 300 database'], stopped)
            started = self.run_program('start', start_status=start_status)
            self.assertEqual(['start database'], started)
            self.assertEqual([], self.run_program('start'))

    def test_what_does_not_run_stays_so(self):
        for running in ('false', None):
            self.assertEqual([], self.run_program('stop', '300', running=running))
            self.assertEqual([], self.run_program('start'))

    def test_systemd_waits_longer_than_docker(self):
        text = UNIT.read_text()
        given = int(re.search(r'^ExecStop=.* stop (\d+)$', text, re.MULTILINE)[1])
        waits = int(re.search(r'^TimeoutStopSec=(\d+)$', text, re.MULTILINE)[1])
        self.assertLess(given, waits)
        self.assertIn(f'/{PROGRAM.relative_to(FILES)} stop', text)
