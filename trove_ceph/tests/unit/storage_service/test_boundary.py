# SPDX-License-Identifier: Apache-2.0
"""Only one package imports Ceph's libraries."""

import ast
import pathlib

from oslotest import base

import trove_ceph

PACKAGE = pathlib.Path(trove_ceph.__file__).parent


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


class BoundaryTest(base.BaseTestCase):
    def test_only_the_adapter_imports_rados_and_rbd(self):
        importers = {
            path.relative_to(PACKAGE).parent.as_posix()
            for path in PACKAGE.rglob('*.py')
            if {'rados', 'rbd'} & set(imported(path))
        }
        outside_tests = {path for path in importers if not path.startswith('tests/')}
        self.assertEqual({'storage/ceph'}, outside_tests)
