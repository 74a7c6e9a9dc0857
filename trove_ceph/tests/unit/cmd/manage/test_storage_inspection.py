# SPDX-License-Identifier: Apache-2.0
import json
import pathlib

import fixtures
from oslotest import base

from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.verification import vm_image


class InspectionImageTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.place = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.config = self.place / 'storage.conf'
        self.write_config('9.7.4:/srv/mysql-9.7.4,9.7:/srv/mysql-9.7.4,8.4:/srv/mysql-8.4')
        self.built = []
        self.useFixture(fixtures.MockPatchObject(vm_image, 'build', self.build))
        kernel = (pathlib.Path('/boot/vmlinuz-6.1'), pathlib.Path('/lib/modules/6.1'))
        self.useFixture(fixtures.MockPatchObject(vm_image, 'find_kernel', lambda: kernel))

    def write_config(self, roots):
        self.config.write_text(
            '[trove_ceph_verification]\n'
            f'mysqld_roots = {roots}\n'
            f'vm_image_directory = {self.place}/image\n'
        )

    def build(self, directory, sources, say):
        self.built.append((directory, sources))
        say('built an image of /srv/mysql-8.4')
        roots = {str(root): directory / root.name for root in sources.roots}
        return vm_image.VmImage(directory / 'vmlinuz', directory / 'initrd', '6.1', roots)

    def run_command(self, *words):
        return command.run('storage', 'inspection-image', '--config-file', str(self.config), *words)

    def test_an_image_of_all_servers(self):
        status, output, _ = self.run_command()
        self.assertEqual(0, status)
        ((directory, sources),) = self.built
        self.assertEqual(self.place / 'image', directory)
        # A directory that two versions share is in the image once.
        self.assertEqual(
            (pathlib.Path('/srv/mysql-8.4'), pathlib.Path('/srv/mysql-9.7.4')), sources.roots
        )
        self.assertEqual(pathlib.Path('/boot/vmlinuz-6.1'), sources.kernel)
        self.assertIn('built an image of /srv/mysql-8.4\n', output)
        self.assertIn(f'The image is in {self.place}/image.', output)

    def test_json(self):
        status, output, _ = self.run_command('-f', 'json')
        found = json.loads(output)
        self.assertEqual((0, '6.1'), (status, found['kernel_release']))
        self.assertEqual(['/srv/mysql-8.4', '/srv/mysql-9.7.4'], sorted(found['roots']))

    def test_a_kernel_by_its_file(self):
        self.run_command('--kernel', '/opt/vmlinuz-6.12.1')
        ((_, sources),) = self.built
        self.assertEqual(pathlib.Path('/lib/modules/6.12.1'), sources.modules)
        self.built.clear()
        self.run_command('--kernel', '/opt/bzImage', '--modules', '/opt/modules')
        ((_, sources),) = self.built
        self.assertEqual(pathlib.Path('/opt/modules'), sources.modules)

    def assert_refused(self, text, *words):
        status, _, errors = self.run_command(*words)
        self.assertEqual(3, status)
        self.assertIn(text, errors)
        self.assertEqual([], self.built)

    def test_modules_without_their_kernel(self):
        self.assert_refused('--modules needs --kernel', '--modules', '/opt/modules')

    def test_no_server_is_configured(self):
        self.write_config('')
        self.assert_refused('mysqld_roots is empty')

    def test_no_configuration(self):
        self.config.unlink()
        self.assert_refused('storage.conf')
