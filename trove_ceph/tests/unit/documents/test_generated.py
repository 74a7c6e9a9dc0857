# SPDX-License-Identifier: Apache-2.0
"""Pages list every option and metric, and draw the states, from the code."""

import importlib
import re
import sys
import tomllib
from pathlib import Path

import fixtures
from oslotest import base

import trove_ceph
from trove_ceph import conf
from trove_ceph.conf import opts
from trove_ceph.db import backup_states
from trove_ceph.metrics import catalog

CHECKOUT = Path(trove_ceph.__file__).parent.parent
SOURCE = CHECKOUT / 'doc/source'
PAGES = '\n'.join(page.read_text() for page in sorted(SOURCE.rglob('*.rst')))


class GeneratedTest(base.BaseTestCase):
    def test_each_namespace_of_options_is_on_one_page(self):
        project = tomllib.loads((CHECKOUT / 'pyproject.toml').read_text())['project']
        namespaces = project['entry-points']['oslo.config.opts']
        shown = re.findall(r'(?m)^\.\. show-options::\n\n   (\S+)$', PAGES)
        self.assertEqual(sorted(namespaces), sorted(shown))

    def test_each_group_is_in_a_namespace(self):
        listed = {
            group.name
            for options in (opts.list_opts, opts.list_storage_opts, opts.list_taskmanager_opts)
            for group, _ in options()
        }
        modules = [path.stem for path in Path(conf.__file__).parent.glob('[a-z]*.py')]
        groups = {
            module.GROUP.name
            for module in (importlib.import_module(f'trove_ceph.conf.{name}') for name in modules)
            if hasattr(module, 'GROUP')
        }
        self.assertGreater(len(groups), 5)
        self.assertEqual(groups, listed)

    def test_each_kind_of_metrics_is_on_one_page(self):
        shown = re.findall(r'(?m)^\.\. metrics:: (\S+)$', PAGES)
        self.assertEqual(sorted(catalog.METRICS), sorted(shown))

    def test_states_without_events(self):
        self.useFixture(fixtures.MonkeyPatch('sys.path', [str(SOURCE / '_ext'), *sys.path]))
        import state_graph

        source = state_graph.brief(backup_states.TRANSITIONS)
        self.assertEqual(1, source.count('"copied" -> "verified"'))
        self.assertNotIn('absent', source)
        self.assertNotIn('"copied" -> "copied"', source)
        self.assertIn('"copied" -> "deleting"', source)
        shorter = state_graph.brief(backup_states.TRANSITIONS, ['deleting'])
        self.assertNotIn('deleting', shorter)
        self.assertIn('"copied" -> "verified"', shorter)


class LicenseTest(base.BaseTestCase):
    def test_pages_have_the_license_of_the_project(self):
        text = (SOURCE / '_templates/license_cc.html').read_text()
        self.assertIn('Apache License, Version 2.0', text)
        self.assertNotIn('Creative', text)
