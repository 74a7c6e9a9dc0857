# SPDX-License-Identifier: Apache-2.0
import dataclasses
import pathlib
import types

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.tests.unit.verification import test_isolation, world
from trove_ceph.verification import disk_proof, guest_server, virtual_machine

MIB = 1024**2
SIZE_BYTES = 64 * MIB
KEY = 'QVFBa2V5'


class FakeMachine:
    """A machine that was started, whose disk works."""

    def __init__(self):
        self.is_alive = True
        self.exit_code = None
        self.counters = dict.fromkeys(virtual_machine._FAILURES, 0) | {'wr_bytes': 0}
        self.monitor = types.SimpleNamespace(events=[])
        self.blocks = []
        self.error = None
        self.console = ''

    def disk_size(self, name):
        return SIZE_BYTES

    def read_disk(self, name, start, count, timeout_sec):
        self.blocks.append(start)

    def disk_statistics(self, name):
        if self.error:
            raise self.error
        return self.counters

    def read_console(self):
        return self.console

    def find_error(self):
        return ''

    def wait(self, timeout_sec):
        return self.exit_code


class FakeServer:
    def __init__(self):
        self.proofs = 0

    def prove(self):
        self.proofs += 1


class VmSandboxTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        settings = dataclasses.replace(world.SETTINGS, max_written_bytes=48 * MIB)
        self.conf = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'ceph.conf'
        self.conf.write_text('[global]\n')
        self.sandbox = virtual_machine.VmSandbox(
            str(self.conf), 'client.trove', settings, test_isolation.IMAGE, 'tcg', self.find_key
        )
        self.machine = self.sandbox._machine = FakeMachine()
        self.server = self.sandbox._server = FakeServer()

    def find_key(self, conf, user):
        self.assertEqual((str(self.conf), 'client.trove'), (conf, user))
        return KEY


class ProofTest(VmSandboxTestCase):
    def test_a_disk_that_works(self):
        self.sandbox.prove_healthy()
        self.assertEqual(1, self.server.proofs)
        # QEMU itself has read from all parts of it.
        expected = [
            block * disk_proof.BLOCK_BYTES for block in disk_proof.choose_blocks(SIZE_BYTES)
        ]
        self.assertEqual(expected, self.machine.blocks)

    def assert_fault(self, text):
        error = self.assertRaises(exceptions.InspectionFaultError, self.sandbox.prove_healthy)
        self.assertIn(text, str(error))

    def test_an_operation_that_failed_since_the_start(self):
        for name in virtual_machine._FAILURES:
            self.machine.counters[name] = 1
            self.assert_fault('1 operations failed')
            self.machine.counters[name] = 0

    def test_an_error_that_qemu_reported(self):
        self.machine.monitor.events.append('BLOCK_IO_ERROR')
        self.assert_fault('could not read or write the clone')

    def test_a_machine_that_ended(self):
        self.machine.is_alive = False
        self.assert_fault('has ended')

    def test_no_machine(self):
        self.sandbox._server = None
        self.assert_fault('not started')


class BootTest(VmSandboxTestCase):
    def setUp(self):
        super().setUp()
        self.answers, self.started = [], []
        self.useFixture(fixtures.MockPatchObject(self.sandbox, '_start', self.start))
        self.useFixture(
            fixtures.MockPatchObject(guest_server, 'GuestServer', lambda *_: self.server)
        )
        self.server.is_up = self.is_up
        self.machine.line = types.SimpleNamespace(fileno=lambda: 0)
        self.machine.console = 'no clock\n'

    def start(self, root):
        self.started.append(root)
        self.sandbox._machine_stack.callback(self.started.append, 'stopped')
        return self.machine

    def is_up(self, limit_sec):
        self.assertEqual(virtual_machine.BOOT_SEC, limit_sec)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def test_starts_once(self):
        self.answers = [True]
        self.assertIs(self.server, self.sandbox._boot('root'))
        self.assertEqual(['root'], self.started)
        self.sandbox.close()
        self.assertEqual(['root', 'stopped'], self.started)

    def test_a_machine_that_hangs_is_started_again(self):
        self.answers = [False, True]
        self.assertIs(self.server, self.sandbox._boot('root'))
        self.assertEqual(['root', 'stopped', 'root'], self.started)

    def test_a_machine_that_hangs_again(self):
        self.answers = [False, False]
        error = self.assertRaises(exceptions.InspectionFaultError, self.sandbox._boot, 'root')
        self.assertEqual(
            'the virtual machine did not start within 300 s, 2 times: no clock', str(error)
        )

    def test_a_machine_that_ends_is_not_started_again(self):
        self.answers = [exceptions.InspectionFaultError('it ended')]
        self.assertRaises(exceptions.InspectionFaultError, self.sandbox._boot, 'root')
        self.assertEqual(['root'], self.started)


class WatchTest(VmSandboxTestCase):
    def test_nothing_special(self):
        self.machine.counters['wr_bytes'] = 48 * MIB
        self.sandbox._watch()

    def test_too_much_is_written(self):
        self.machine.counters['wr_bytes'] = 49 * MIB
        error = self.assertRaises(exceptions.NotInspectableError, self.sandbox._watch)
        self.assertIn('wrote 49 MiB to the clone; up to 48 MiB', str(error))

    def test_the_disk_fails(self):
        self.machine.counters['failed_rd_operations'] = 3
        self.assertRaises(exceptions.InspectionFaultError, self.sandbox._watch)

    def test_qemu_does_not_answer(self):
        self.machine.error = exceptions.InspectionFaultError('no answer in time')
        self.assertRaises(exceptions.InspectionFaultError, self.sandbox._watch)

    def test_qemu_has_just_ended(self):
        """The line tells that the program inside is gone, and why."""
        self.machine.error = exceptions.InspectionFaultError('QEMU is gone')
        self.machine.exit_code = 0
        self.sandbox._watch()


class WhyEndedTest(VmSandboxTestCase):
    def test_before_anything_of_the_tenant_was_read(self):
        self.machine.exit_code, self.machine.console = 0, 'Kernel panic\r\n\x1b[1m'
        self.assertEqual(
            'QEMU ended with exit code 0: Kernel panic | [1m', self.sandbox.why_ended()
        )

    def test_afterwards_the_guest_is_not_quoted(self):
        self.machine.exit_code, self.machine.console = 137, 'row of a table'
        self.sandbox._has_booted = True
        self.assertEqual('QEMU ended with exit code 137', self.sandbox.why_ended())


class AttachmentTest(VmSandboxTestCase):
    def test_the_key_is_not_shown(self):
        directory = self.conf.parent / 'directory'
        directory.mkdir()
        self.useFixture(fixtures.MockPatchObject(virtual_machine.os, 'chown', lambda *_: None))
        found = self.sandbox.attach(image_types.ImageRef('volumes', 'clone'), directory, 5)
        self.assertEqual(KEY, found.key)
        self.assertNotIn(KEY, str(found))
        self.assertEqual(0o400, (directory / 'ceph.conf').stat().st_mode & 0o777)
        self.assertEqual(('volumes', 'clone'), (found.driver['pool'], found.driver['image']))


class GuestServerTest(base.BaseTestCase):
    """What the machine says of its disk."""

    def server(self, answer):
        class Line:
            def send(self, document):
                self.document = document

            def receive(self, timeout_sec):
                if isinstance(answer, Exception):
                    raise answer
                return answer

        process = types.SimpleNamespace(kill=lambda: None, why_ended=lambda: 'killed')
        return guest_server.GuestServer(process, Line())

    def test_a_proof(self):
        self.server({'result': None}).prove()

    def test_a_start(self):
        self.assertTrue(self.server({'result': None}).is_up(1))
        self.assertFalse(self.server(TimeoutError()).is_up(1))
        for answer in (EOFError(), {'error': ['InspectionFaultError', 'Input/output error']}):
            self.assertRaises(exceptions.InspectionFaultError, self.server(answer).is_up, 1)

    def test_what_is_no_proof_is_a_fault(self):
        for answer in (
            {'error': ['InspectionFaultError', 'Input/output error']},
            {'error': ['ServerFailedError', 'OSError']},
            {'nonsense': 1},
            EOFError(),
            TimeoutError(),
        ):
            self.assertRaises(exceptions.InspectionFaultError, self.server(answer).prove)
