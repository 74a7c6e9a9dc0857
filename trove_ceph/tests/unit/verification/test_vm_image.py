# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import shutil
import subprocess

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.verification import guest_init, program, vm_image

RELEASE = '6.1.0-9-cloud-amd64'


class VmImageTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.place = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.image = self.place / 'image'
        self.ran = []
        self.useFixture(fixtures.MockPatchObject(vm_image.commands, 'run', self.run_command))
        self.is_static = True
        self.sources = vm_image.Sources(
            self.make_kernel(RELEASE),
            self.make_modules(RELEASE),
            (self.make_root('9.7'),),
            self.place / 'busybox',
        )
        self.sources.busybox.write_text('busybox')

    def run_command(self, *words, **_):
        """Run what builds an image: only whether busybox is static is asked of a command."""
        self.ran.append(words[0])
        if words[0] == 'ldd' and self.is_static:
            raise exceptions.StorageCommandError('not a dynamic executable')
        if words[0] == 'mksquashfs':
            pathlib.Path(words[2]).write_text(str(words[1]))

    def make_kernel(self, release):
        (self.place / 'boot').mkdir(exist_ok=True)
        kernel = self.place / 'boot' / f'vmlinuz-{release}'
        kernel.write_text(f'kernel {release}')
        return kernel

    def make_modules(self, release):
        modules = self.place / 'modules' / release
        modules.mkdir(parents=True)
        files = [f'{name}.ko' for name in guest_init.MODULES]
        for file in files:
            (modules / file).write_text(file)
        (modules / 'modules.dep').write_text(''.join(f'{file}:\n' for file in files))
        (modules / 'modules.builtin').write_text('')
        return modules

    def make_root(self, name):
        root = self.place / name
        (root / 'usr' / 'sbin').mkdir(parents=True)
        (root / 'usr' / 'sbin' / 'mysqld').write_text('mysqld')
        return root

    def build(self):
        said = []
        return vm_image.build(self.image, self.sources, said.append), said


class BuildTest(VmImageTestCase):
    def test_a_new_image(self):
        image, said = self.build()
        (root,) = self.sources.roots
        self.assertEqual(f'kernel {RELEASE}', image.kernel.read_text())
        self.assertEqual(str(root), image.root_for(root).read_text())
        self.assertEqual(RELEASE, image.release)
        self.assertIn(b'xfs.ko', image.initrd.read_bytes())
        self.assertIn(guest_init.INIT.encode(), image.initrd.read_bytes())
        self.assertEqual(2, len(said))
        # QEMU's user reads them.
        for file in self.image.iterdir():
            self.assertEqual(0o644, file.stat().st_mode & 0o777, file)
        self.assertEqual(0o755, self.image.stat().st_mode & 0o777)

    def test_the_same_sources_again(self):
        first, _ = self.build()
        self.ran.clear()
        again, said = self.build()
        self.assertEqual(first, again)
        self.assertNotIn('mksquashfs', self.ran)
        self.assertEqual(['kept', 'kept'], [text.partition(' ')[0] for text in said])

    def test_another_kernel(self):
        first, _ = self.build()
        self.sources.kernel.write_text('newer')
        again, _ = self.build()
        self.assertEqual('newer', again.kernel.read_text())
        self.assertFalse(first.kernel.exists())
        self.assertEqual(first.roots, again.roots)
        self.assertEqual(4, len(list(self.image.iterdir())))

    def test_another_mysql_in_the_same_place(self):
        first, _ = self.build()
        (root,) = self.sources.roots
        (root / 'usr' / 'sbin' / 'mysqld').write_text('newer mysqld')
        again, _ = self.build()
        self.assertNotEqual(first.roots, again.roots)
        self.assertFalse(first.root_for(root).exists())

    def test_files_that_the_machine_makes_anew(self):
        first, _ = self.build()
        (root,) = self.sources.roots
        (root / 'run').mkdir()
        # The time of the root itself changes, and none of what is in the image.
        (root / 'run' / 'mysqld.pid').write_text('5')
        self.assertEqual(first, self.build()[0])

    def test_a_build_that_fails_leaves_the_image_as_it_was(self):
        first, _ = self.build()
        self.sources.kernel.write_text('newer')

        def fail(*_):
            raise OSError('no space left')

        with fixtures.MockPatchObject(vm_image.initramfs, 'append', fail):
            self.assertRaises(OSError, self.build)
        self.assertEqual(first, vm_image.load(self.image))

    def assert_refused(self, text):
        error = self.assertRaises(exceptions.InvalidRequestError, self.build)
        self.assertIn(text, str(error))

    def test_busybox_that_needs_libraries(self):
        self.is_static = False
        self.assert_refused('install busybox-static')

    def test_no_busybox(self):
        self.sources.busybox.unlink()
        self.assert_refused('install busybox-static')

    def test_no_root(self):
        shutil.rmtree(self.sources.roots[0])
        self.assert_refused('there is no such directory')

    def test_no_kernel(self):
        self.sources.kernel.unlink()
        self.assert_refused('there is no such kernel')


class LoadTest(VmImageTestCase):
    def assert_refused(self, text):
        error = self.assertRaises(exceptions.NotInspectableError, vm_image.load, self.image)
        self.assertIn(text, str(error))
        return error

    def test_no_image(self):
        self.assertIn('inspection-image', str(self.assert_refused('there is no virtual machine')))

    def test_an_image_of_another_release(self):
        self.build()
        manifest = json.loads((self.image / 'manifest.json').read_text())
        (self.image / 'manifest.json').write_text(json.dumps(manifest | {'format': 0}))
        self.assert_refused('has format 0, expected 1')

    def test_a_file_that_is_gone(self):
        image, _ = self.build()
        image.initrd.unlink()
        self.assert_refused('is missing')

    def test_a_root_that_it_does_not_have(self):
        image, _ = self.build()
        error = self.assertRaises(
            exceptions.NotInspectableError, image.root_for, pathlib.Path('/srv/mysql-8.4')
        )
        self.assertIn('does not have /srv/mysql-8.4', str(error))


class FindKernelTest(VmImageTestCase):
    def find(self):
        return vm_image.find_kernel(self.place / 'boot', self.place / 'modules')

    def test_the_newest_for_clouds(self):
        for release in ('6.1.0-10-cloud-amd64', '6.12.0-1-amd64'):
            self.make_kernel(release)
            self.make_modules(release)
        self.make_kernel('6.20.0-1-cloud-amd64')
        kernel, modules = self.find()
        self.assertEqual('vmlinuz-6.1.0-10-cloud-amd64', kernel.name)
        self.assertEqual('6.1.0-10-cloud-amd64', modules.name)

    def test_none(self):
        shutil.rmtree(self.place / 'boot')
        error = self.assertRaises(exceptions.InvalidRequestError, self.find)
        self.assertIn('--kernel', str(error))


class InitTest(base.BaseTestCase):
    def test_its_syntax(self):
        subprocess.run(['sh', '-n'], input=guest_init.INIT, text=True, check=True)

    def test_the_program_is_started_in_the_view(self):
        script = guest_init.start(program.command(), {'PATH': '/bin', 'LANG': 'C'})
        subprocess.run(['sh', '-n'], input=script, text=True, check=True)
        self.assertIn('chroot /view /usr/bin/env -i PATH=/bin LANG=C /inspector/loader ', script)


class FingerprintTest(VmImageTestCase):
    def test_owner_and_time_count(self):
        (root,) = self.sources.roots
        first = vm_image._fingerprint(root)
        os.utime(root / 'usr' / 'sbin' / 'mysqld', (1, 1))
        self.assertNotEqual(first, vm_image._fingerprint(root))
