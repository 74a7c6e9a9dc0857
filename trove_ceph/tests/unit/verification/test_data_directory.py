# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import struct

import fixtures
from oslotest import base

from trove_ceph.verification import data_directory, report


def first_page(version=90704, page_shift=0):
    head = struct.pack('>IIII', 0x1234, 0, version, 1)
    return head.ljust(54, b'\0') + struct.pack('>I', 1 | page_shift << 6) + bytes(100)


def log(flags=0, magic=b'\xfebin'):
    return magic + struct.pack('<IBIIIH', 0, 15, 1, 122, 126, flags) + bytes(100)


class DataDirectoryTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.data = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.put('mysql.ibd', first_page())
        self.put('ibdata1', bytes(12 * 1024**2))

    def put(self, name, content):
        (self.data / name).write_bytes(content)

    def assert_found(self, verdict, reason):
        found = self.assertRaises(report.Finding, data_directory.read, self.data)
        self.assertEqual((verdict, reason), (found.verdict, found.reason))

    def test_what_a_server_must_be_told(self):
        found = data_directory.read(self.data)

        self.assertEqual((os.geteuid(), os.getegid()), (found.uid, found.gid))
        self.assertEqual(((9, 7, 4), '9.7.4'), (found.version, found.version_text))
        self.assertEqual(
            (16384, 'ibdata1:5M:autoextend', None),
            (found.page_bytes, found.system_files, found.binlog),
        )

    def test_other_page_sizes(self):
        for shift, expected in ((3, 4096), (4, 8192), (5, 16384), (6, 32768), (7, 65536)):
            self.put('mysql.ibd', first_page(page_shift=shift))
            self.assertEqual(expected, data_directory.read(self.data).page_bytes)

    def test_system_tablespace_of_several_files(self):
        self.put('ibdata2', b'')
        self.put('ibdata10', b'')
        self.assertEqual(
            'ibdata1:12M;ibdata2:0M;ibdata10:5M:autoextend',
            data_directory.read(self.data).system_files,
        )

    def test_binary_log_by_its_content(self):
        self.put('a-relay-bin.000001', log(flags=0x40))
        self.put('a-relay-bin.index', b'./a-relay-bin.000001\n')
        self.assertIsNone(data_directory.read(self.data).binlog)

        self.put('mysql-bin.000007', log())
        self.put('mysql-bin.index', b'/var/lib/mysql/data/mysql-bin.000007\n')
        self.assertEqual('mysql-bin', data_directory.read(self.data).binlog)

    def test_the_last_log_was_just_begun(self):
        self.put('binlog.000001', log(magic=b'\xfdbin'))
        self.put('binlog.000002', b'')
        self.put('binlog.index', b'./binlog.000001\n./binlog.000002\n')
        self.assertEqual('binlog', data_directory.read(self.data).binlog)

    def test_a_log_that_is_missing(self):
        self.put('binlog.index', b'./binlog.000001\n')
        self.assert_found(report.INCOMPLETE, 'binlog.000001 is not there')

    def test_logs_that_are_none(self):
        self.put('binlog.000001', b'secret')
        self.put('binlog.index', b'./binlog.000001\n')
        self.assert_found(report.INCOMPLETE, 'binlog.index names logs that are not logs')

    def test_files_that_are_missing(self):
        for name in ('ibdata1', 'mysql.ibd'):
            (self.data / name).rename(self.data / 'away')
            self.assert_found(report.INCOMPLETE, f'{name} is not there')
            (self.data / 'away').rename(self.data / name)
        self.data = self.data / 'data'
        self.assert_found(report.INCOMPLETE, 'data is not there')

    def test_what_is_damaged(self):
        self.put('mysql.ibd', bytes(16384))
        self.assert_found(report.CORRUPT, 'mysql.ibd, the data dictionary, has no header')
        self.put('mysql.ibd', b'')
        self.assert_found(report.CORRUPT, 'mysql.ibd is empty or cut off')

    def test_links_are_not_followed(self):
        (self.data / 'mysql.ibd').unlink()
        (self.data / 'mysql.ibd').symlink_to('/etc/passwd')
        found = self.assertRaises(report.Finding, data_directory.read, self.data)
        self.assertEqual(report.CORRUPT, found.verdict)
        link = self.data / 'link'
        link.symlink_to('/etc')
        self.data = link
        self.assert_found(report.CORRUPT, 'link is no directory')
