# SPDX-License-Identifier: Apache-2.0
"""Tests of the built wheel: it is complete, and Tempest finds the plugin in it."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import fixtures
from oslotest import base

PROJECT = Path(__file__).resolve().parents[4]
_SOURCES = ('LICENSE', 'README.rst', 'pyproject.toml', 'requirements.txt', 'setup.cfg', 'setup.py')
_TREES = ('etc', 'tempest_plugin', 'trove_ceph')
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
        cls._run('-c', _BUILD, str(top), cwd=cls.checkout, PBR_VERSION='1.2.3')
        cls.wheel = next(top.glob('*.whl'))
        with zipfile.ZipFile(cls.wheel) as archive:
            cls.names = set(archive.namelist())
            archive.extractall(cls.unpacked)

    @staticmethod
    def _run(*arguments, cwd, **environ):
        result = subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd,
            env=dict(os.environ, **environ),
            text=True,
            capture_output=True,
        )
        if result.returncode:
            raise AssertionError(f'{arguments[:2]} failed:\n{result.stdout}{result.stderr}')
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
                'trove_ceph-1.2.3.data',
                'trove_ceph-1.2.3.dist-info',
            },
            top,
        )
        self.assertEqual(set(), {name for name in self.names if '__pycache__' in name})

    def test_contains_the_templates(self):
        folder = 'trove_ceph-1.2.3.data/data/share/trove-ceph'
        self.assertIn(f'{folder}/trove/templates/mysql/9/config.template', self.names)

    def test_contains_the_playbook_with_its_module(self):
        folder = 'trove_ceph-1.2.3.data/data/share/trove-ceph/ansible'
        for name in ('hci-facts.yml', 'library/hci_host_facts.py'):
            self.assertIn(f'{folder}/{name}', self.names)

    def test_declares_the_dependencies_of_the_benchmark(self):
        metadata = (self.unpacked / 'trove_ceph-1.2.3.dist-info' / 'METADATA').read_text()
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
