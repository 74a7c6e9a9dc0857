# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import signal
import subprocess

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.verification import device_health

MIB = 1024**2


class DeviceHealthTest(base.BaseTestCase):
    """With a file as the device and a sleeping process as the storage daemon."""

    def setUp(self):
        super().setUp()
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.device, self.volume = directory / 'device', directory / 'volume'
        self.device.write_bytes(b'')
        os.truncate(self.device, 64 * MIB)
        self.volume.mkdir()
        self.daemon = subprocess.Popen(['sleep', '600'])
        self.addCleanup(self.daemon.wait)
        self.addCleanup(self.daemon.kill)
        self.commands = []
        self.problem = {}
        self.now = 0.0
        self.health = device_health.DeviceHealth(
            self.daemon.pid, str(self.device), run=self.run_command, clock=lambda: self.now
        )

    def run_command(self, command, timeout_sec):
        self.commands.append((list(command), timeout_sec))
        errors = (text for word, text in self.problem.items() if word in ' '.join(command))
        return next(errors, None)

    def assert_not_proved(self, reason):
        error = self.assertRaises(exceptions.InspectionFaultError, self.health.prove)
        self.assertIn(reason, str(error))

    def test_all_parts_of_the_device_are_read_past_the_cache(self):
        self.health.prove()
        blocks = [int(command[5].removeprefix('skip=')) for command, _ in self.commands]
        self.assertEqual([*range(0, 1024, 64), 1023], blocks)
        for command, _ in self.commands:
            self.assertIn('iflag=direct', command)

    def test_the_file_system_is_written_to_once_it_is_mounted(self):
        self.health.volume = self.volume
        self.health.prove()
        write, remove = [command for command, _ in self.commands[-2:]]
        self.assertIn('conv=fsync', write)
        self.assertIn('oflag=nofollow', write)
        self.assertEqual(f'of={remove[2]}', write[2])
        self.assertEqual(self.volume, pathlib.Path(remove[2]).parent)

    def test_a_failed_read_or_write_is_a_fault(self):
        self.health.volume = self.volume
        for word, text in (
            ('skip=64', 'dd: error reading: Input/output error'),
            ('fsync', 'dd: fsync failed: Input/output error'),
        ):
            self.problem = {word: text}
            self.assert_not_proved(text)

    def test_all_commands_share_one_time_limit(self):
        def run(command, timeout_sec):
            self.now += 3
            return self.run_command(command, timeout_sec)

        self.health._run = run
        self.health.prove()
        limits = [limit for _, limit in self.commands]
        self.assertEqual((30, 27, 0), (limits[0], limits[1], limits[-1]))

    def test_a_dead_daemon_is_a_fault(self):
        self.daemon.kill()
        self.daemon.wait()
        self.assert_not_proved(f'its storage daemon, process {self.daemon.pid}, has ended')
        self.assertEqual([], self.commands)

    def test_a_daemon_that_dies_during_the_proof_is_a_fault(self):
        def run(command, timeout_sec):
            self.daemon.kill()
            self.daemon.wait()

        self.health._run = run
        self.assert_not_proved('has ended')

    def test_a_missing_or_empty_device_is_a_fault(self):
        os.truncate(self.device, 0)
        self.assert_not_proved('the device is empty')
        self.device.unlink()
        self.assert_not_proved('No such file')

    def test_abort_kills_even_a_stopped_daemon(self):
        self.daemon.send_signal(signal.SIGSTOP)
        self.health.abort()
        self.assertEqual(-signal.SIGKILL, self.daemon.wait(30))
        # Another process with the same pid is not killed.
        self.health.abort()


class RunTest(base.BaseTestCase):
    def test_outcomes(self):
        self.assertIsNone(device_health.run(['true'], 30))
        failed = device_health.run(['sh', '-c', 'echo why >&2; exit 3'], 30)
        self.assertEqual('why', failed)
        self.assertIn('failed', device_health.run(['false'], 30))
        self.assertIn('cannot be run', device_health.run(['no-such-command-here'], 30))

    def test_does_not_wait_for_a_command_after_its_timeout(self):
        self.assertEqual(
            'sleep 600 did not end within its time limit', device_health.run(['sleep', '600'], 0.01)
        )
