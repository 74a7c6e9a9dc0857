# SPDX-License-Identifier: Apache-2.0
import io
import os
import pathlib

import fixtures
from oslotest import base

from trove_ceph.host import initramfs

_HEADER_BYTES = 110


def entries(archive):
    """Return names, modes and contents, as the kernel reads them."""
    found = []
    at = 0
    while at < len(archive):
        assert archive[at : at + 6] == b'070701'
        field = [int(archive[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        name_at = at + _HEADER_BYTES
        name = archive[name_at : name_at + field[11] - 1].decode()
        content_at = -(-(name_at + field[11]) // 4) * 4
        content = archive[content_at : content_at + field[6]]
        found.append((name, field[1], content))
        at = -(-(content_at + field[6]) // 4) * 4
    return found


class InitramfsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.tree = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'tree'
        (self.tree / 'bin').mkdir(parents=True, mode=0o755)
        (self.tree / 'bin' / 'tool').write_bytes(b'#!tool')
        (self.tree / 'bin' / 'tool').chmod(0o755)
        (self.tree / 'bin' / 'sh').symlink_to('tool')

    def archive(self, target=None):
        target = target or io.BytesIO()
        initramfs.append(target, self.tree)
        return target.getvalue()

    def test_content(self):
        self.assertEqual(
            [
                ('bin', 0o40755, b''),
                ('bin/sh', 0o120777, b'tool'),
                ('bin/tool', 0o100755, b'#!tool'),
                ('TRAILER!!!', 0, b''),
            ],
            entries(self.archive()),
        )

    def test_the_same_bytes_at_any_time(self):
        first = self.archive()
        os.utime(self.tree / 'bin' / 'tool', (5, 5))
        self.assertEqual(first, self.archive())

    def test_archives_follow_each_other(self):
        target = io.BytesIO()
        self.archive(target)
        names = [name for name, *_ in entries(self.archive(target))]
        self.assertEqual(['bin', 'bin/sh', 'bin/tool', 'TRAILER!!!'] * 2, names)

    def test_what_has_no_place_in_it(self):
        os.mkfifo(self.tree / 'pipe')
        error = self.assertRaises(ValueError, self.archive)
        self.assertIn('pipe', str(error))
