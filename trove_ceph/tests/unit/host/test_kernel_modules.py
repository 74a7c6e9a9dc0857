# SPDX-License-Identifier: Apache-2.0
import gzip
import lzma
import pathlib

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import kernel_modules

DEPENDENCIES = """\
kernel/fs/xfs/xfs.ko: kernel/lib/libcrc32c.ko kernel/crypto/crc32c_generic.ko
kernel/lib/libcrc32c.ko: kernel/crypto/crc32c_generic.ko
kernel/crypto/crc32c_generic.ko:
kernel/drivers/virtio/virtio-blk.ko.xz: kernel/drivers/virtio/virtio.ko.xz
kernel/drivers/virtio/virtio.ko.xz:
"""


class KernelModulesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.directory / 'modules.dep').write_text(DEPENDENCIES)
        (self.directory / 'modules.builtin').write_text('kernel/drivers/virtio/virtio_pci.ko\n')

    def order(self, *names):
        found = kernel_modules.KernelModules(self.directory).load_order(names)
        return [path.name for path in found]

    def test_each_after_what_it_needs(self):
        self.assertEqual(
            ['virtio.ko.xz', 'virtio-blk.ko.xz', 'crc32c_generic.ko', 'libcrc32c.ko', 'xfs.ko'],
            self.order('virtio_blk', 'crc32c_generic', 'xfs'),
        )

    def test_a_module_that_is_built_in(self):
        self.assertEqual([], self.order('virtio_pci'))

    def test_a_module_that_the_kernel_lacks(self):
        error = self.assertRaises(exceptions.InvalidRequestError, self.order, 'erofs')
        self.assertIn('has no module erofs', str(error))

    def test_modules_without_a_list(self):
        (self.directory / 'modules.dep').unlink()
        error = self.assertRaises(exceptions.InvalidRequestError, self.order)
        self.assertIn('run "depmod', str(error))


class CopyTest(base.BaseTestCase):
    def test_any_compression(self):
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, pack in (
            ('a.ko', bytes),
            ('a.ko.xz', lzma.compress),
            ('a.ko.gz', gzip.compress),
        ):
            (directory / name).write_bytes(pack(b'module'))
            target = directory / 'copy'
            kernel_modules.copy_uncompressed(directory / name, target)
            self.assertEqual(b'module', target.read_bytes(), name)
            self.assertEqual('a.ko', kernel_modules.uncompressed_name(directory / name))
