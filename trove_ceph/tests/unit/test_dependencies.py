# SPDX-License-Identifier: Apache-2.0
"""Each part of the package declares what it imports, and a thin client installs no server."""

import ast
import functools
import importlib.metadata
import sys
import tomllib
from pathlib import Path

from oslotest import base
from packaging import requirements, utils

import trove_ceph

CHECKOUT = Path(trove_ceph.__file__).parent.parent
#: Of the distribution; PyPI does not have them.
OF_CEPH = {'rados', 'rbd'}
#: For each entry point, or group of entry points: the extras that it is installed with.
EXTRAS = {
    'trove-ceph-bench': ('bench',),
    'trove-ceph-guestagent': ('server',),
    'trove-ceph-image': (),
    'trove-ceph-manage': ('manage', 'sizing'),
    'trove-ceph-storage': ('storage',),
    'openstack.database.v1': ('osc',),
    'trove.api.extensions': ('server',),
    'oslo.policy.policies': ('server',),
}


@functools.cache
def source(module):
    """Return the file of a module of the project; None: it is of another project."""
    for directory in (CHECKOUT, CHECKOUT / 'bench'):
        path = directory.joinpath(*module.split('.'))
        for found in (path.with_suffix('.py'), path / '__init__.py'):
            if found.is_file():
                return found
    return None


@functools.cache
def imports(module):
    """Return the modules that a module imports, also within its functions."""
    found = set()
    for node in ast.walk(ast.parse(source(module).read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f'{node.module}.{name.name}' for name in node.names)}
    return found


def reachable(module):
    """Return the top-level packages of others that a module needs."""
    seen, todo, foreign = set(), {module}, set()
    while todo:
        name = todo.pop()
        parts = name.split('.')
        if not parts[0].startswith('trove_ceph'):
            foreign.add(parts[0])
            continue
        if name in seen or source(name) is None:
            continue
        seen.add(name)
        todo |= imports(name) | {'.'.join(parts[:n]) for n in range(1, len(parts))}
    return foreign - sys.stdlib_module_names


class DependenciesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.project = tomllib.loads((CHECKOUT / 'pyproject.toml').read_text())['project']
        lines = (CHECKOUT / 'requirements.txt').read_text().splitlines()
        self.base = [line.partition('#')[0] for line in lines if not line.startswith('#')]

    def declared(self, extras):
        """Return the names of the distributions that some extras declare."""
        found = set()
        listed = list(self.base)
        for extra in extras:
            listed += self.project['optional-dependencies'][extra]
        for requirement in map(requirements.Requirement, listed):
            if requirement.name == 'trove-ceph':
                found |= self.declared(requirement.extras)
            else:
                found.add(utils.canonicalize_name(requirement.name))
        return found

    def modules(self):
        """Yield each module of an entry point with the extras for it."""
        for name, target in self.project['scripts'].items():
            yield target.partition(':')[0], EXTRAS[name]
        for path in (CHECKOUT / 'trove_ceph/cmd/manage').glob('*.py'):
            yield f'trove_ceph.cmd.manage.{path.stem}', EXTRAS['trove-ceph-manage']
        for group, entries in self.project['entry-points'].items():
            for target in entries.values() if group in EXTRAS else ():
                yield target.partition(':')[0], EXTRAS[group]
        yield 'trove_ceph.taskmanager.manager', ('server', 'metrics')
        yield 'trove_ceph.conductor.manager', ('server',)
        yield 'trove_ceph.guestagent.manager', ('server',)

    def test_every_import_is_declared(self):
        providers = importlib.metadata.packages_distributions()
        for module, extras in self.modules():
            declared = self.declared(extras)
            undeclared = {
                name
                for name in reachable(module) - OF_CEPH
                if not declared & set(map(utils.canonicalize_name, providers.get(name, ())))
            }
            self.assertEqual(set(), undeclared, f'{module}: {", ".join(extras)}')

    def test_thin_client(self):
        """A tenant's machine needs the client and nothing of a service."""
        expected = {
            'cliff',
            'keystoneauth1',
            'osc-lib',
            'oslo-utils',
            'python-openstackclient',
            'python-troveclient',
        }
        self.assertEqual(expected, self.declared(('osc',)))

    def test_finds_what_is_reachable(self):
        self.assertLessEqual({'trove', 'sqlalchemy'}, reachable('trove_ceph.taskmanager.manager'))
        self.assertNotIn('trove', reachable('trove_ceph.osc.backups'))
