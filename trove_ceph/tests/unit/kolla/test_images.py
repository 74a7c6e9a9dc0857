# SPDX-License-Identifier: Apache-2.0
"""The images, rendered by kolla-build from Kolla's templates and ours."""

import configparser
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph.tests.unit import kolla

_KOLLA = kolla.ETC / 'kolla'


class ImagesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)

    def build(self, *options):
        """Render the templates of Trove's images; return the finished process."""
        words = [
            str(Path(sys.prefix) / 'bin/kolla-build'),
            *('--config-file', str(_KOLLA / 'kolla-build.conf')),
            *('--template-override', str(_KOLLA / 'template-override.j2')),
            *('--docker-dir', str(_KOLLA / 'docker')),
            *('--template-only', '--work-dir', str(self.directory)),
            *options,
            '^trove-',
        ]
        return subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.directory
        )

    def test_images(self):
        done = self.build('--namespace', 'kolla', '--tag', 'x')
        self.assertEqual(0, done.returncode, done.stdout)
        docker = self.directory / 'docker'
        trove = (docker / 'trove/trove-base/Dockerfile').read_text()
        # The archive is there when pip runs, once for Trove and trove_ceph.
        self.assertLess(trove.index('ADD plugins-archive /'), trove.index('pip '))
        [line] = [line for line in trove.splitlines() if ' /trove ' in line]
        self.check_package(line)
        for name in ('trove-api', 'trove-conductor', 'trove-taskmanager'):
            text = (docker / 'trove' / name / 'Dockerfile').read_text()
            self.assertIn('FROM kolla/trove-base:x\n', text)
        self.check_storage(docker / 'trove-ceph-storage')

    def check_package(self, line):
        """The shell finds the package, with extras that exist, in each form that Kolla unpacks."""
        argument = re.search(r'"\$\(.*\)\[.*\]"', line).group()
        extras = re.search(r'\[([a-z,]+)\]"$', argument).group(1).split(',')
        project = tomllib.loads((kolla.CHECKOUT / 'pyproject.toml').read_text())['project']
        self.assertLessEqual(set(extras), set(project['optional-dependencies']))
        # For the manager, the commands and the storage service.
        self.assertEqual({'manage', 'metrics', 'server', 'storage'}, set(extras))
        plugins = self.directory / 'plugins'
        for name in ('trove-ceph', 'trove_ceph-0.1.0'):
            (plugins / name).mkdir(parents=True)
            command = f'printf %s {argument.replace("/plugins", str(plugins))}'
            found = subprocess.run(['sh', '-c', command], capture_output=True, text=True).stdout
            self.assertEqual(f'{plugins / name}[{",".join(extras)}]', found)
            (plugins / name).rmdir()

    def check_storage(self, directory):
        text = (directory / 'Dockerfile').read_text()
        self.assertIn('FROM kolla/trove-base:x\n', text)
        # As the page for packages has it, and for the virtual machine.
        page = (kolla.CHECKOUT / 'doc/source/install/packages.rst').read_text()
        for pattern in (r'apt install python3-venv (.*)', r'apt install (bubblewrap .*)'):
            for package in re.search(pattern, page).group(1).split():
                self.assertIn(f' {package} ', text)
        self.assertNotIn('\nUSER ', text)
        script = directory / 'extend_start.sh'
        self.assertIn(f'COPY {script.name} ', text)
        checked = subprocess.run(['bash', '-n', str(script)], capture_output=True, text=True)
        self.assertEqual((0, ''), (checked.returncode, checked.stderr))

    def test_source_is_a_plugin_of_the_base_image(self):
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(_KOLLA / 'kolla-build.conf')
        [section] = parser.sections()
        self.assertTrue(section.startswith('trove-base-plugin-'))
        self.assertEqual('local', parser[section]['type'])

    def test_other_distribution_is_refused(self):
        done = self.build('--base', 'rocky')
        self.assertNotEqual(0, done.returncode)
        self.assertIn('cannot be built on rocky: set base = debian', done.stdout)


class StartTest(base.BaseTestCase):
    """What the container does before the service starts."""

    def test_directories_belong_to_the_user_of_the_service(self):
        root = Path(self.useFixture(fixtures.TempDir()).path)
        config = root / 'etc/trove-ceph/trove-ceph-storage.conf'
        config.parent.mkdir(parents=True)
        config.touch()
        text = (_KOLLA / 'docker/trove-ceph-storage/extend_start.sh').read_text()
        # The script names no path outside of these.
        for path in ('/etc/trove-ceph', '/var/log/kolla', '/var/lib'):
            text = text.replace(f' {path}', f' {root}{path}')
        for _ in range(2):
            done = subprocess.run(['bash', '-eu', '-c', text], capture_output=True, text=True)
            self.assertEqual((0, ''), (done.returncode, done.stderr))
        for name in ('var/log/kolla/trove-ceph', 'var/lib/trove-ceph'):
            self.assertEqual(os.getuid(), (root / name).stat().st_uid)
