# SPDX-License-Identifier: Apache-2.0
import os
import socket
import subprocess
import sys

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.guestagent import volume_freeze

ANSWERS = """
import sys
for line in sys.stdin:
    answer = {answers}.get(line.strip())
    if answer is None:
        break
    print(answer, flush=True)
{ending}
"""


class VolumeFreezeTestCase(base.BaseTestCase):
    """A client of a real process with given answers."""

    def holder(self, greeting='ready', ending='', limit_sec=30, **answers):
        program = f'print({greeting!r}, flush=True)\n' if greeting else ''
        program += ANSWERS.format(answers=answers, ending=ending)
        ours, its = socket.socketpair()
        # Trove may have patched sockets in the process of the tests to be non-blocking.
        os.set_blocking(its.fileno(), True)
        with its:
            process = subprocess.Popen(
                [sys.executable, '-I', '-S', '-c', program], stdin=its, stdout=its
            )
        freeze = volume_freeze.VolumeFreeze(process, ours, limit_sec)
        self.addCleanup(process.wait, 30)
        self.addCleanup(process.kill)
        self.addCleanup(freeze.close)
        return freeze

    def test_held_all_the_time(self):
        holder = self.holder(freeze='frozen 0.25', thaw='thawed held')

        holder.wait_until_ready()
        self.assertEqual(0.25, holder.freeze())
        self.assertTrue(holder.is_frozen())
        self.assertEqual('', holder.thaw())
        holder.close()
        holder.close()

    def test_lost_before_the_thaw(self):
        holder = self.holder(freeze='frozen 0.1\nthawed lost the limit passed')
        holder.wait_until_ready()
        holder.freeze()

        # The message is there even if the process has ended.
        self.assertFalse(holder.is_frozen())
        self.assertIn('the limit passed', holder.thaw())

    def test_killed_process_loses_the_freeze(self):
        holder = self.holder(freeze='frozen 0.1')
        holder.wait_until_ready()
        holder.freeze()
        holder._process.kill()
        holder._process.wait(30)

        self.assertFalse(holder.is_frozen())
        self.assertIn('has ended', holder.thaw())

    def assert_not_quiesced(self, text, call, *arguments):
        error = self.assertRaises(exceptions.NotQuiescedError, call, *arguments)
        self.assertIn(text, str(error))

    def test_refusal_is_passed_on(self):
        holder = self.holder('failed /data cannot be frozen: it is no volume of its own')

        self.assert_not_quiesced('no volume of its own', holder.wait_until_ready)

    def test_process_ends(self):
        holder = self.holder()
        holder.wait_until_ready()
        self.assert_not_quiesced('has ended', holder.freeze)

    def test_process_does_not_start(self):
        self.useFixture(fixtures.MonkeyPatch(f'{volume_freeze.__name__}.START_TIMEOUT_SEC', 0.2))

        holder = self.holder(greeting='')

        self.assert_not_quiesced('did not answer within 0.2 s', holder.wait_until_ready)

    def test_freezing_takes_no_longer_than_the_limit(self):
        holder = self.holder(limit_sec=0.2)
        holder.wait_until_ready()
        # A freeze cannot be canceled; a process that does not read imitates it.
        holder._send = lambda command: None

        self.assert_not_quiesced('did not answer within 0.2 s', holder.freeze)

    def test_hanging_process_is_left(self):
        self.useFixture(fixtures.MonkeyPatch(f'{volume_freeze.__name__}.END_TIMEOUT_SEC', 0.1))
        logger = self.useFixture(fixtures.FakeLogger())
        holder = self.holder(ending='import time; time.sleep(10)')
        holder.wait_until_ready()

        holder.close()

        self.assertIn('has not ended', logger.output)
