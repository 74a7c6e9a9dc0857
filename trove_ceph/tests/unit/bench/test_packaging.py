# SPDX-License-Identifier: Apache-2.0
"""The benchmark declares its dependencies, and no other package needs them."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from oslotest import base

import trove_ceph_bench

PACKAGE = Path(trove_ceph_bench.__file__).parent
CHECKOUT = PACKAGE.parent.parent

AGENT = """
import sys
import trove_ceph.cmd.guest, trove_ceph.guestagent.manager
print(*(name for name in sys.modules if name.startswith('trove_ceph')))
"""

WITHOUT_EXTRA = """
import sys
sys.modules['jsonschema'] = None
from trove_ceph_bench import main
sys.argv = ['trove-ceph-bench', 'report', '/nothing']
sys.exit(main.main())
"""


def run(program):
    return subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', program], capture_output=True, text=True, check=False
    )


def normalized_name(requirement):
    """Return the normalized package name of a requirement."""
    return re.sub(r'[-_.]+', '-', re.match(r'[\w.-]+', requirement)[0]).lower()


class PackagingTestCase(base.BaseTestCase):
    def test_guest_agent_needs_nothing_of_the_benchmark(self):
        result = run(AGENT)
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertIn('trove_ceph.guestagent.manager', result.stdout.split())
        self.assertNotRegex(
            result.stdout, r'trove_ceph_bench|trove_ceph\.host\.(workspace|rbd_pool)'
        )

    def test_reports_a_missing_extra(self):
        result = run(WITHOUT_EXTRA)
        self.assertEqual(1, result.returncode, result.stderr)
        self.assertEqual(
            'trove-ceph-bench: the Python package jsonschema is missing; '
            "install 'trove-ceph[bench]'\n",
            result.stderr,
        )

    def test_every_imported_package_is_declared(self):
        project = tomllib.loads((CHECKOUT / 'pyproject.toml').read_text())['project']
        required = (CHECKOUT / 'requirements.txt').read_text().splitlines()
        lines = project['optional-dependencies']['bench'] + required
        declared = {normalized_name(line) for line in lines if not line.startswith('#')}
        providers = importlib.metadata.packages_distributions()
        core = CHECKOUT / 'trove_ceph'
        imported = (
            self.imports(PACKAGE) | self.imports(core / 'host') | self.imports(core / 'mysql')
        )
        undeclared = {
            name
            for name in imported - sys.stdlib_module_names - {'trove_ceph', 'trove_ceph_bench'}
            if not declared & set(map(normalized_name, providers.get(name, ())))
        }
        self.assertEqual(set(), undeclared)

    @staticmethod
    def imports(directory):
        found = set()
        for path in directory.rglob('*.py'):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found |= {name.name.partition('.')[0] for name in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module.partition('.')[0])
        return found
