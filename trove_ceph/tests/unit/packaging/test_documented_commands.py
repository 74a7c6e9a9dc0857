# SPDX-License-Identifier: Apache-2.0
"""The commands of the documents exist, and have the options that the documents give them."""

import re
import tomllib
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph.tests.unit.packaging import DOCUMENTS, TREE
from trove_ceph.tests.unit.packaging import documented_commands as documented

PAGES = sorted([*DOCUMENTS.rglob('*.rst'), *DOCUMENTS.rglob('*.inc')])
INSTALL = [page for page in PAGES if page.parent.name == 'install']


class DocumentedCommandsTest(base.BaseTestCase):
    def test_pages(self):
        found = [
            f'{command}\n    {problem}'
            for page in PAGES
            for command in documented.commands(page)
            if (problem := documented.find_problem(command))
        ]
        self.assertEqual([], found, '\n'.join(found))

    def test_programs_are_installed(self):
        project = tomllib.loads((TREE / 'pyproject.toml').read_text())['project']
        programs = {
            Path(word).name
            for page in INSTALL
            for command in documented.commands(page)
            for word in command.words[:1]
        }
        named = {program for program in programs if program.startswith('trove-ceph-')}
        self.assertIn('trove-ceph-manage', named)
        self.assertEqual(set(), named - set(project['scripts']))

    def test_each_way_ends_with_a_verified_backup(self):
        for name in ('kolla-ansible.rst', 'lab.rst', 'packages.rst'):
            page = DOCUMENTS / 'install' / name
            text = page.read_text()
            verified = 'openstack database backup verify' in text
            self.assertTrue(verified or '.. include:: verified-backup.inc' in text, page)

    def test_keyrings_are_exported_for_their_owner_alone(self):
        found = [
            line.strip()
            for page in PAGES
            for line in page.read_text().replace('\\\n', '').splitlines()
            if re.search(r'[$#].*ceph auth get \S+ +-o ', line)
        ]
        self.assertEqual(3, len(found), found)
        for line in found:
            self.assertTrue(line.startswith('# (umask 077; ceph auth get '), line)

    def test_packages_go_into_an_environment(self):
        installing = [
            command
            for page in INSTALL
            for command in documented.commands(page)
            if 'install' in command.words and 'pip' in Path(command.words[0]).name
        ]
        self.assertNotEqual([], installing)
        for command in installing:
            # PEP 668: pip leaves the environment of the distribution alone.
            self.assertIn('/bin/', command.words[0], str(command))
            self.assertFalse([word for word in command.words if 'index' in word], str(command))


class ProblemsTest(base.BaseTestCase):
    """What is wrong is found."""

    def find(self, *lines):
        page = Path(self.useFixture(fixtures.TempDir()).path) / 'page.rst'
        page.write_text('\n'.join(f'    {line}' for line in lines))
        return [documented.find_problem(command) for command in documented.commands(page)]

    def test_commands(self):
        for line in (
            '$ trove-ceph-manage tiers forget',
            '$ trove-ceph-manage tiers plan --yes-move-data-now',
            '# docker exec trove_api /venv/bin/trove-ceph-manage db sync --to 3',
            '$ openstack database backup confirm nightly',
            '$ openstack database backup verify nightly --soon',
            '$ openstack database backup list --nonsense',
            '# sudo trove-manage datastore_update mysql',
            '# trove-manage datastore_version_flavor_add mysql 9 1 2',
            '# kolla-ansible redeploy',
            '# kolla-ansible deploy --book trove-ceph.yml',
            '# /opt/kolla/bin/kolla-build --config-file kolla-build.conf --base suse',
            '# kolla-genpwd passwords.yml',
        ):
            [problem] = self.find(line)
            self.assertTrue(problem, line)

    def test_continuation_lines(self):
        found = self.find(
            '# trove-manage datastore_update \\', '      mysql 9', '# true && trove-manage db_sink'
        )
        self.assertIsNone(found[0])
        self.assertIn('db_sink', found[-1])
