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
        found = self.assertRaises(report.NotSoundError, data_directory.read, self.data)
        self.assertEqual((verdict, reason), (found.verdict, found.reason))

    def test_reads_the_settings_of_a_server(self):
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

    def test_an_empty_last_log_is_skipped(self):
        self.put('binlog.000001', log(magic=b'\xfdbin'))
        self.put('binlog.000002', b'')
        self.put('binlog.index', b'./binlog.000001\n./binlog.000002\n')
        self.assertEqual('binlog', data_directory.read(self.data).binlog)

    def test_a_missing_log_is_incomplete(self):
        self.put('binlog.index', b'./binlog.000001\n')
        self.assert_found(report.INCOMPLETE, 'binlog.000001 is not there')

    def test_files_that_are_not_logs_are_incomplete(self):
        self.put('binlog.000001', b'secret')
        self.put('binlog.index', b'./binlog.000001\n')
        self.assert_found(report.INCOMPLETE, 'binlog.index names files that are not binary logs')

    def test_missing_files_are_incomplete(self):
        for name in ('ibdata1', 'mysql.ibd'):
            (self.data / name).rename(self.data / 'away')
            self.assert_found(report.INCOMPLETE, f'{name} is not there')
            (self.data / 'away').rename(self.data / name)
        self.data = self.data / 'data'
        self.assert_found(report.INCOMPLETE, 'data is not there')

    def test_damaged_files_are_corrupt(self):
        self.put('mysql.ibd', bytes(16384))
        self.assert_found(report.CORRUPT, 'mysql.ibd, the data dictionary, has no header')
        self.put('mysql.ibd', b'')
        self.assert_found(report.CORRUPT, 'mysql.ibd is empty or truncated')

    def test_links_are_not_followed(self):
        (self.data / 'mysql.ibd').unlink()
        (self.data / 'mysql.ibd').symlink_to('/etc/passwd')
        found = self.assertRaises(report.NotSoundError, data_directory.read, self.data)
        self.assertEqual(report.CORRUPT, found.verdict)
        link = self.data / 'link'
        link.symlink_to('/etc')
        self.data = link
        self.assert_found(report.CORRUPT, 'link is not a directory')

    def test_an_index_larger_than_memory(self):
        self.put('binlog.000001', log())
        self.put('binlog.index', b'')
        os.truncate(self.data / 'binlog.index', 600 * 1024**2)
        self.assert_found(report.CORRUPT, 'binlog.index is not a list of logs')
        with (self.data / 'binlog.index').open('ab') as index:
            index.write(b'\n./binlog.000001\n')
        self.assertEqual('binlog', data_directory.read(self.data).binlog)

    def test_the_last_logs_of_a_long_index(self):
        names = [f'./binlog.{number:06}' for number in range(20_000)]
        self.put('binlog.index', '\n'.join(names).encode())
        self.put('binlog.019999', log())
        self.assertEqual('binlog', data_directory.read(self.data).binlog)

    def test_an_index_without_names_is_corrupt(self):
        self.put('binlog.index', b'./\n')
        self.assert_found(report.CORRUPT, 'binlog.index is not a list of logs')
        self.put('binlog.index', b'a' * 70_000)
        found = self.assertRaises(report.NotSoundError, data_directory.read, self.data)
        self.assertEqual(report.CORRUPT, found.verdict)
        self.assertLess(len(found.reason), 200)

    def test_too_many_files_are_corrupt(self):
        for number in range(17):
            self.put(f'{number}.index', b'')
        self.assert_found(report.CORRUPT, 'there are more than 16 files named .index')
        for number in range(2, 66):
            self.put(f'ibdata{number}', b'')
        found = self.assertRaises(report.NotSoundError, data_directory.read, self.data)
        self.assertEqual(report.CORRUPT, found.verdict)

    def test_pipes_and_directories_are_refused(self):
        for name in ('mysql.ibd', 'ibdata1', 'binlog.index'):
            for make in (os.mkfifo, os.mkdir):
                (self.data / name).exists() and (self.data / name).rename(self.data / 'away')
                make(self.data / name)
                self.assert_found(report.CORRUPT, f'{name} cannot be read: is not a regular file')
                (os.rmdir if make is os.mkdir else os.unlink)(self.data / name)
                (self.data / 'away').exists() and (self.data / 'away').rename(self.data / name)

    def test_unprintable_names_are_replaced(self):
        strange = os.fsdecode(b'\x1b[2J\xff.index')
        self.put(strange, b'./none\n')
        self.assert_found(report.INCOMPLETE, 'none is not there')
        self.put('none', b'secret')
        self.assert_found(report.INCOMPLETE, '??2J?.index names files that are not binary logs')
