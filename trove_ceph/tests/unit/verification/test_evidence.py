# SPDX-License-Identifier: Apache-2.0
"""What is evidence of damage, and what is not; the messages are those of MySQL 8.0 to 9.7."""

import errno
import os

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.verification import evidence, report

#: Messages of servers about damaged data.
DAMAGED = (
    'MY-011906 Database page corruption on disk or a failed file read of page [page id: space=2, '
    'page number=4]. You may have to recover from a backup.',
    'Log block 5 at lsn 2560 has valid header, but checksum field contains 1, should be 2.',
    'No valid checkpoint found (corrupted redo log). You can try --innodb-force-recovery=6 as a '
    'last resort.',
    'The redo log file may have been corrupt and it is possible that the log scan did not proceed '
    'far enough in recovery!',
)
MISSING = (
    "MY-012592 Operating system error number 2 in a file operation.; MY-012595 The error means "
    'the system cannot find the path specified.',
    "MY-010958 Could not open log file './binlog.000003' (errno 2 - No such file or directory)",
    "MY-012209 Multiple files found; the undo tablespace 'undo_001' is missing",
)
#: Messages of servers about faults of their host.
FAULTS = (
    'MY-012592 Operating system error number 5 in a file operation.',
    'MY-012592 Operating system error number 28 in a file operation.',
    'MY-012646 File ./ibdata1: aio read returned OS error 105. Cannot continue operation',
    "Error reading file './x.frm' (errno: 107 - Transport endpoint is not connected)",
    'Disk is full writing ./binlog.000002 (OS errno 28 - No space left on device)',
    'InnoDB: Cannot allocate 268435456 bytes',
    'Out of memory (Needed 1048576 bytes)',
    'Tried to read 16384 bytes at offset 98304, but was only able to read 4096',
    'MY-012872 Semaphore wait has lasted > 600 seconds. We intentionally crash the server',
    'MY-013622 [FATAL] fsync() returned EIO, aborting.',
    'Received SHUTDOWN from user <via user signal>. Shutting down mysqld',
)


class EvidenceTest(base.BaseTestCase):
    def assert_finding(self, verdict, found):
        self.assertIsInstance(found, report.NotSoundError)
        self.assertEqual(verdict, found.verdict)

    def of_server(self, message, log='', code=2):
        return evidence.of_server('recovery failed', message, f'{message}\n{log}', code)

    def test_a_server_that_reports_damage_is_evidence(self):
        for message in DAMAGED:
            self.assert_finding(report.CORRUPT, self.of_server(message))
        for message in MISSING:
            self.assert_finding(report.INCOMPLETE, self.of_server(message))

    def test_a_fault_anywhere_in_the_log_outweighs_every_other_message(self):
        for message in (*DAMAGED, *MISSING):
            for fault in FAULTS:
                found = self.of_server(message, fault)
                self.assertIsInstance(found, exceptions.InspectionFaultError, (message, fault))

    def test_a_server_killed_from_outside_is_a_fault(self):
        for code in (-9, -15, -2, -1, -7, -24, -25, 137, 143, 152, None):
            for message in (*DAMAGED, *MISSING):
                found = self.of_server(message, code=code)
                self.assertIsInstance(found, exceptions.InspectionFaultError, code)

    def test_data_of_another_server_version_is_not_inspectable(self):
        for message in (
            'Upgrade after a crash is not supported. This redo log was created with MySQL 8.0.11, '
            'and it appears corrupted.',
            'Redo log was encrypted, but keyring plugin is not loaded.',
            'Unknown redo log format (v7) in file ./#innodb_redo/#ib_redo5.',
        ):
            self.assertIsInstance(self.of_server(message), exceptions.NotInspectableError)

    def test_unknown_messages_are_no_evidence(self):
        for message in ('its log has no error', 'Assertion failure: dict0dict.cc:99', 'Aborting'):
            self.assertIsInstance(self.of_server(message), exceptions.ServerFailedError)

    def test_errors_of_files(self):
        for number, verdict in (
            (errno.ENOENT, report.INCOMPLETE),
            (errno.EUCLEAN, report.CORRUPT),
            (errno.EBADMSG, report.CORRUPT),
            (errno.ELOOP, report.CORRUPT),
        ):
            found = evidence.of_file('ibdata1', OSError(number, os.strerror(number)))
            self.assert_finding(verdict, found)
        for number in (
            *(errno.EIO, errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENOTCONN),
            *(errno.ESHUTDOWN, errno.ESTALE, errno.EACCES, errno.ETIMEDOUT, errno.EROFS),
        ):
            found = evidence.of_file('ibdata1', OSError(number, os.strerror(number)))
            self.assertIsInstance(found, exceptions.InspectionFaultError)

    def test_errors_of_mount(self):
        output = 'mount failed with exit code 32: mount: /x: mount(2) system call failed: {}.'
        self.assert_finding(
            report.CORRUPT, evidence.of_mount(output.format('Structure needs cleaning'))
        )
        self.assert_finding(report.CORRUPT, evidence.of_mount(output.format('Bad message')))
        for message in (
            'Input/output error',
            'Cannot allocate memory',
            'No space left on device',
            'wrong fs type, bad option, bad superblock on /dev/loop0',
            "mount: /x: can't read superblock on /dev/loop0",
            'unknown filesystem type',
        ):
            found = evidence.of_mount(output.format(message))
            self.assertIsInstance(found, exceptions.InspectionFaultError, message)
        timed_out = 'mount did not end within 60 s'
        self.assertIsInstance(evidence.of_mount(timed_out), exceptions.InspectionFaultError)
