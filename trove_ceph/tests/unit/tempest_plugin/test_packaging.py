# SPDX-License-Identifier: Apache-2.0
"""The built wheel: its version, that it is complete, and that Tempest finds the plugin in it."""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph.imagebuild import wheel

PROJECT = Path(__file__).resolve().parents[4]
_SOURCES = ('LICENSE', 'README.rst', 'pyproject.toml', 'requirements.txt', 'setup.cfg', 'setup.py')
_TREES = ('etc', 'tempest_plugin', 'trove_ceph')
_CONSTRAINTS = ('constraints.txt', 'constraints-2026.1.txt')
_BUILD = 'import sys; from pbr import build; build.build_wheel(sys.argv[1])'
_LOAD_TESTS = """
import json
from tempest.test_discover import plugins
print(json.dumps(plugins.TempestTestPluginManager().get_plugin_load_tests_tuple()))
"""


class WheelTest(base.BaseTestCase):
    """One wheel, built from a copy of the tree, because a build leaves folders in its source."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = fixtures.TempDir()
        cls.directory.setUp()
        cls.addClassCleanup(cls.directory.cleanUp)
        top = Path(cls.directory.path)
        cls.checkout, cls.unpacked = top / 'checkout', top / 'unpacked'
        cls.checkout.mkdir()
        for name in _SOURCES:
            shutil.copy(PROJECT / name, cls.checkout)
        for name in _TREES:
            shutil.copytree(PROJECT / name, cls.checkout / name)
        (cls.checkout / 'lab').mkdir()
        for name in _CONSTRAINTS:
            shutil.copy(PROJECT / 'lab' / name, cls.checkout / 'lab')
        cls._git('init', '--quiet')
        cls._git('add', '--all')
        cls._git('commit', '--quiet', '--message=All files')
        # pbr counts the commits after the first one.
        cls._git('commit', '--quiet', '--message=Another', '--allow-empty')
        cls._run('-c', _BUILD, str(top), cwd=cls.checkout)
        cls.wheel = next(top.glob('*.whl'))
        cls.version = cls.wheel.name.split('-')[1]
        with zipfile.ZipFile(cls.wheel) as archive:
            cls.names = set(archive.namelist())
            archive.extractall(cls.unpacked)

    @classmethod
    def _git(cls, *arguments):
        who = ('-c', 'user.name=Test', '-c', 'user.email=test@example.org')
        cls._execute('git', *who, *arguments, cwd=cls.checkout)

    @classmethod
    def _run(cls, *arguments, cwd, **environ):
        return cls._execute(sys.executable, *arguments, cwd=cwd, **environ)

    @staticmethod
    def _execute(*arguments, cwd, **environ):
        # This variable would hide how the version is found.
        inherited = {key: value for key, value in os.environ.items() if key != 'PBR_VERSION'}
        result = subprocess.run(
            arguments, cwd=cwd, env=inherited | environ, text=True, capture_output=True
        )
        if result.returncode:
            raise AssertionError(f'{arguments[:3]} failed:\n{result.stdout}{result.stderr}')
        return result.stdout

    def _tempest(self, *arguments):
        """Run Python with the wheel's content before the installed packages."""
        # stevedore caches entry points by the search path.
        cache = str(self.unpacked.parent / 'cache')
        return self._run(
            *arguments,
            cwd=self.unpacked.parent,
            PYTHONPATH=str(self.unpacked),
            XDG_CACHE_HOME=cache,
        )

    def test_version_leads_to_the_next_release(self):
        config = configparser.ConfigParser()
        config.read(PROJECT / 'setup.cfg')
        target = config['metadata']['version']
        self.assertEqual('0.1.0', target)
        self.assertRegex(self.version, rf'^{re.escape(target)}\.dev\d+$')
        metadata = (self.unpacked / f'trove_ceph-{self.version}.dist-info/METADATA').read_text()
        self.assertIn(f'\nVersion: {self.version}\n', metadata)
        # The release itself.
        self._git('tag', target)
        self.addCleanup(self._git, 'tag', '--delete', target)
        self.assertEqual(target, self._run('setup.py', '--version', cwd=self.checkout).split()[-1])

    def test_contains_every_file_of_the_package(self):
        sources = self._files(self.checkout, 'trove_ceph')
        self.assertIn('trove_ceph/guestagent/manager.py', sources)
        self.assertEqual(set(), sources - self.names)

    def test_contains_every_file_of_the_plugin(self):
        sources = self._files(self.checkout / 'tempest_plugin', 'trove_ceph_tempest_plugin')
        self.assertIn('trove_ceph_tempest_plugin/plugin.py', sources)
        self.assertEqual(set(), sources - self.names)

    def test_contains_nothing_else(self):
        top = {name.partition('/')[0] for name in self.names}
        self.assertEqual(
            {
                'trove_ceph',
                'trove_ceph_tempest_plugin',
                f'trove_ceph-{self.version}.data',
                f'trove_ceph-{self.version}.dist-info',
            },
            top,
        )
        self.assertEqual(set(), {name for name in self.names if '__pycache__' in name})

    def test_contains_the_templates(self):
        folder = f'trove_ceph-{self.version}.data/data/share/trove-ceph'
        self.assertIn(f'{folder}/trove/templates/mysql/9/config.template', self.names)

    def test_contains_the_playbook_with_its_module(self):
        folder = f'trove_ceph-{self.version}.data/data/share/trove-ceph/ansible'
        for name in ('hci-facts.yml', 'library/hci_host_facts.py'):
            self.assertIn(f'{folder}/{name}', self.names)

    def test_contains_what_the_image_builder_reads(self):
        folder = f'trove_ceph-{self.version}.data/data/share/trove-ceph/constraints'
        for name in _CONSTRAINTS:
            self.assertIn(f'{folder}/{name}', self.names)
        for name in ('guest/etc/systemd/system/guest-agent.service', 'guest-boot/init'):
            self.assertIn(f'trove_ceph/imagebuild/files/{name}', self.names)

    def test_installation_builds_images_without_the_checkout(self):
        environment = self.wheel.parent / 'environment'
        self._run('-m', 'venv', str(environment), cwd=self.wheel.parent)
        install = ['install', '--quiet', '--no-deps', '--no-index', '--no-compile', str(self.wheel)]
        subprocess.run([environment / 'bin/pip', *install], check=True)
        plan = json.loads(self._plan_image(environment).stdout)
        self.assertEqual(self.wheel.name, plan['wheel']['name'])
        # The guest gets what was installed.
        self.assertEqual(wheel.contents_hash(self.wheel), plan['wheel']['hash'])
        constraints = environment.resolve() / 'share/trove-ceph/constraints/constraints.txt'
        self.assertEqual(str(constraints), plan['constraints'])
        self.assertLess(100, plan['pins'])

        [module] = environment.glob('lib/python3*/site-packages/trove_ceph/steps.py')
        module.write_text('changed')
        result = self._plan_image(environment)
        self.assertEqual(1, result.returncode)
        self.assertIn(f'{module} was changed after its installation', result.stderr)

    @staticmethod
    def _plan_image(environment):
        command = [environment / 'bin/trove-ceph-image', 'guest', '--profile=kvm', '--dry-run']
        command += ['--mirror=http://mirror/debian', '--security-mirror=http://mirror/security']
        # Not the checkout, which the tests' own search path has.
        environ = {name: value for name, value in os.environ.items() if name != 'PYTHONPATH'}
        return subprocess.run(command, env=environ, text=True, capture_output=True)

    def test_declares_the_dependencies_of_the_benchmark(self):
        metadata = (self.unpacked / f'trove_ceph-{self.version}.dist-info/METADATA').read_text()
        self.assertIn('\nProvides-Extra: bench\n', metadata)
        self.assertRegex(metadata, r'\nRequires-Dist: matplotlib>=\S+; extra == .bench.\n')

    def test_tempest_lists_the_plugin(self):
        shown = self._tempest('-m', 'tempest.cmd.main', 'list-plugins')
        rows = [[cell.strip() for cell in line.split('|')] for line in shown.splitlines()]
        self.assertIn(
            ['', 'trove_ceph', 'trove_ceph_tempest_plugin.plugin:TroveCephTempestPlugin', ''], rows
        )

    def test_tempest_loads_tests_from_the_installed_plugin(self):
        folders = json.loads(self._tempest('-c', _LOAD_TESTS))
        tests, top = folders['trove_ceph']
        self.assertEqual(str(self.unpacked), top)
        self.assertTrue((Path(tests) / 'scenario' / '__init__.py').is_file(), tests)

    @staticmethod
    def _files(root, package):
        found = [path.relative_to(root) for path in (root / package).rglob('*') if path.is_file()]
        caches = ('__pycache__', '.')  # of Python, and hidden caches of tools
        return {str(path) for path in found if not any(p.startswith(caches) for p in path.parts)}
