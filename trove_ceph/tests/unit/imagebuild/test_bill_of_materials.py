# SPDX-License-Identifier: Apache-2.0
"""The bill of materials is valid CycloneDX; the list of files shows each difference."""

import json
import os

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from trove_ceph.imagebuild import bill_of_materials, components, file_list
from trove_ceph.tests.unit.imagebuild.case import ImagesTestCase

DEBIAN = {
    'type': 'deb',
    'name': 'libstdc++6',
    'version': '1:14.2.0-19+b1',
    'architecture': 'amd64',
    'source': 'gcc-14',
    'source_version': '14.2.0-19',
    'licences': ['GPL-3+', 'LGPL-2.1'],
}
PYTHON = {'type': 'pypi', 'name': 'trove', 'version': '26.0.0', 'licences': []}
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
License: GPL-2+ or MIT

License: MIT
 Permission is hereby granted
"""


class BillTest(ImagesTestCase):
    def render(self, **changed):
        arguments = {
            'profile': 'kvm',
            'image_hash': '0f3a',
            'components': [DEBIAN, PYTHON],
            'container': {
                'name': 'mysql:9.7.4',
                'version': '9.7.4',
                'sha256': '0' * 64,
                'components': [DEBIAN],
            },
            'sources': ['deb http://m/debian trixie main'],
            'created': 1793491200,
        }
        return bill_of_materials.render(**arguments | changed)

    def test_is_valid(self):
        validator = JsonStrictValidator(SchemaVersion.V1_6)
        self.assertIsNone(validator.validate_str(self.render()))
        empty = {'name': 'm', 'version': '1', 'sha256': '0' * 64, 'components': []}
        self.assertIsNone(validator.validate_str(self.render(container=empty)))
        # A check that can fail.
        self.assertIsNotNone(validator.validate_str(self.render().replace('"name"', '"title"')))

    def test_same_components_give_the_same_bytes(self):
        self.assertEqual(self.render(), self.render())
        self.assertNotEqual(self.render(), self.render(image_hash='0f3b'))

    def test_names_version_source_and_licences(self):
        bill = json.loads(self.render())
        shown = bill['components'][0]
        self.assertEqual('pkg:deb/debian/libstdc%2B%2B6@1:14.2.0-19%2Bb1?arch=amd64', shown['purl'])
        self.assertEqual('gcc-14 14.2.0-19', shown['properties'][0]['value'])
        self.assertEqual(
            ['GPL-3+', 'LGPL-2.1'], [one['license']['name'] for one in shown['licenses']]
        )
        self.assertEqual('pkg:pypi/trove@26.0.0', bill['components'][1]['purl'])
        self.assertEqual('container', bill['components'][-1]['type'])

    def test_machine_readable_licences(self):
        found = components.machine_readable_licences(COPYRIGHT)
        self.assertEqual(['GPL-2+ or MIT', 'MIT'], found)
        self.assertEqual([], components.machine_readable_licences('License: in prose\n'))

    def test_python_distributions(self):
        for name, lines in {
            'A_b': 'License-Expression: MIT',
            'c': 'License: BSD',
            'd': 'License: line\n  more\nClassifier: License :: OSI Approved :: Zope',
        }.items():
            text = f'Metadata-Version: 2.4\nName: {name}\nVersion: 1\n{lines}\n'
            self.make_file(f'packages/{name}-1.dist-info/METADATA', text)
        found = components.python([self.directory / 'packages'])
        self.assertEqual(
            [('a-b', ['MIT']), ('c', ['BSD']), ('d', ['Zope'])],
            [(one['name'], one['licences']) for one in found],
        )
        self.assertEqual({'a-b': '1', 'c': '1', 'd': '1'}, components.versions(found))


class FileListTest(ImagesTestCase):
    def make_tree(self, name):
        self.make_file(f'{name}/etc/a', '1')
        self.make_file(f'{name}/etc/b', '2')
        self.make_file(f'{name}/var/lib/docker/random', name)
        root = self.directory / name
        (root / 'link').symlink_to('etc/a')
        return root

    def test_same_trees(self):
        one, two = self.make_tree('one'), self.make_tree('two')
        os.utime(two / 'etc/a', (1, 1))
        self.assertEqual(file_list.render(one), file_list.render(two))
        names = [line.split(' ')[-1] for line in file_list.render(one).splitlines()]
        expected = ['etc', 'etc/a', 'etc/b', 'link', 'var', 'var/lib']
        self.assertEqual(expected, names)

    def test_each_difference(self):
        root = self.make_tree('one')
        seen = {file_list.render(root)}
        (root / 'etc/a').write_text('other')
        seen.add(file_list.render(root))
        (root / 'etc/a').chmod(0o600)
        seen.add(file_list.render(root))
        (root / 'link').unlink()
        (root / 'link').symlink_to('etc/b')
        seen.add(file_list.render(root))
        (root / 'etc/b').rename(root / 'etc/c')
        seen.add(file_list.render(root))
        self.assertEqual(5, len(seen))
