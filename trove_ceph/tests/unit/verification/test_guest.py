# SPDX-License-Identifier: Apache-2.0
import ctypes
import errno
import pathlib
import types

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.verification import confined, guest, program, report

XFS_HEAD = b'XFSB' + bytes(65536)


class GuestInspectorTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        place = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.device = place / 'device'
        self.device.write_bytes(XFS_HEAD)
        self.volume = place / 'volume'
        (self.volume / 'data').mkdir(parents=True)
        self.inspector = guest.GuestInspector(self.volume, self.device)
        self.mounts = []
        self.error = 0
        libc = types.SimpleNamespace(mount=self.mount)
        self.useFixture(fixtures.MockPatchObject(guest.ctypes, 'CDLL', lambda *_, **__: libc))
        self.useFixture(fixtures.MockPatchObject(guest.volume_head, 'owner', lambda data: (5, 5)))

    def mount(self, source, target, kind, flags, options):
        self.mounts.append((kind, flags.value, options))
        ctypes.set_errno(self.error)
        return -1 if self.error else 0

    def call(self, name, inspector=None):
        return confined.answer(inspector or self.inspector, {'call': name, 'with': {}})

    def test_mounts_without_programs_and_devices(self):
        self.assertEqual({'result': None}, self.call('mount'))
        ((kind, flags, options),) = self.mounts
        self.assertEqual((b'xfs', b'nouuid'), (kind, options))
        # MS_NOSUID, MS_NODEV and MS_NOEXEC of mount(2).
        self.assertEqual(14, flags & 14)

    def test_damage_of_the_file_system_is_a_finding(self):
        for number in (errno.EUCLEAN, errno.EBADMSG):
            self.error = number
            verdict, reason = self.call('mount')['finding']
            self.assertEqual(report.CORRUPT, verdict)
            self.assertIn('XFS cannot be mounted', reason)

    def test_any_other_error_of_a_mount_is_a_fault(self):
        for number in (errno.EIO, errno.ENOMEM, errno.ENODEV):
            self.error = number
            self.assertEqual('InspectionFaultError', self.call('mount')['error'][0])

    def test_blank_volume(self):
        self.device.write_bytes(bytes(65536))
        self.assertEqual(report.INCOMPLETE, self.call('mount')['finding'][0])
        self.assertEqual([], self.mounts)

    def test_proof_of_a_disk_that_cannot_be_read(self):
        self.device.unlink()
        self.assertEqual('InspectionFaultError', self.call('prove')['error'][0])

    def test_program_in_namespaces_does_not_mount(self):
        kind, message = self.call('mount', confined.Inspector(self.volume))['error']
        self.assertEqual(exceptions.InvalidRequestError.__name__, kind)
        self.assertIn('mount', message)


class ProgramTest(base.BaseTestCase):
    def test_compiles_modules_and_removes_their_source(self):
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        package = directory / 'modules' / 'package'
        package.mkdir(parents=True)
        (package / '__init__.py').write_text('ANSWER = 42\n')
        (package / 'one.so').write_text('')
        program.compile_modules(directory)
        names = sorted(path.name for path in package.iterdir())
        self.assertEqual(['__init__.pyc', 'one.so'], names)
        # The source of a shipped module is named as inside the virtual machine.
        self.assertIn(
            b'/inspector/modules/package/__init__.py', (package / '__init__.pyc').read_bytes()
        )

    def test_runs_the_given_module(self):
        self.assertIn(
            'from trove_ceph.verification.guest import main',
            program.command('trove_ceph.verification.guest')[-1],
        )
