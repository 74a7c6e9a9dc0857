# SPDX-License-Identifier: Apache-2.0
"""What is asked of Ceph's command lines, and how their answers are read."""

import json
import os
import sys
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph_tempest_plugin import ceph

_PROGRAM = """#!{python}
import json, sys
answers = json.load(open({answers!r}))
words = sys.argv[1:]
assert words[:4] == ['--conf', '/etc/ceph/x.conf', '--id', 'reader'], words
text = sys.stdin.read()
with open({asked!r}, 'a') as asked:
    asked.write(json.dumps([words[4:], text]) + '\\n')
code, output = answers[' '.join(w for w in words[4:] if w not in ('--format', 'json'))]
print(output)
print('the reason', file=sys.stderr)
sys.exit(code)
"""
_INFO = {'block_name_prefix': 'rbd_data.5', 'size': 2**30, 'object_size': 2**22}


class CephTestCase(base.BaseTestCase):
    """Programs on the path that answer what they are told to."""

    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.answers = {}
        for name in ('ceph', 'rbd'):
            program = self.directory / name
            program.write_text(
                _PROGRAM.format(
                    python=sys.executable,
                    answers=str(self.directory / 'answers'),
                    asked=str(self.directory / 'asked'),
                )
            )
            program.chmod(0o755)
        path = f'{self.directory}:{os.environ["PATH"]}'
        self.useFixture(fixtures.EnvironmentVariable('PATH', path))
        self.ceph = ceph.Ceph('/etc/ceph/x.conf', 'reader')

    def answer(self, words, output, code=0):
        text = output if isinstance(output, str) else json.dumps(output)
        self.answers[words] = [code, text]
        (self.directory / 'answers').write_text(json.dumps(self.answers))


class CephTest(CephTestCase):
    def test_image(self):
        self.answer('info fast/volume-1', _INFO)
        self.assertEqual(
            ceph.Image('volume-1', 'fast', 'fast', 'rbd_data.5', 2**30, 2**22),
            self.ceph.find_image('fast', 'volume-1'),
        )

    def test_image_with_a_data_pool(self):
        self.answer('info fast/volume-1', _INFO | {'data_pool': 'coded'})
        self.assertEqual('coded', self.ceph.find_image('fast', 'volume-1').data_pool)

    def test_no_such_image(self):
        self.answer('info fast/volume-1', '', code=2)
        self.assertIsNone(self.ceph.find_image('fast', 'volume-1'))

    def test_refusal_is_not_taken_for_absence(self):
        self.answer('info fast/volume-1', '', code=1)
        error = self.assertRaises(
            exceptions.StorageCommandError, self.ceph.find_image, 'fast', 'volume-1'
        )
        self.assertIn('ended with 1: the reason', str(error))

    def test_no_program(self):
        (self.directory / 'rbd').unlink()
        self.useFixture(fixtures.EnvironmentVariable('PATH', str(self.directory)))
        error = self.assertRaises(
            exceptions.StorageCommandError, self.ceph.find_image, 'fast', 'volume-1'
        )
        self.assertIn('rbd --conf', str(error))

    def test_trash(self):
        self.answer('trash ls --all fast', [{'id': '5', 'name': 'volume-1'}])
        self.assertTrue(self.ceph.in_trash('fast', 'volume-1'))
        self.assertFalse(self.ceph.in_trash('fast', 'volume-10'))

    def test_objects_that_exist(self):
        image = ceph.Image('volume-1', 'fast', 'fast', 'rbd_data.5', 2**30, 2**22)
        extents = [
            {'offset': 0, 'length': 2**22},
            {'offset': 3 * 2**22, 'length': 2**23},  # two objects in one extent
        ]
        self.answer('diff --whole-object fast/volume-1', extents)
        self.assertEqual(
            ['rbd_data.5.0000000000000000', 'rbd_data.5.0000000000000003']
            + ['rbd_data.5.0000000000000004'],
            self.ceph.objects(image),
        )

    def test_all_objects_are_mapped_by_one_process(self):
        lines = [json.dumps({'objname': n, 'acting': [i, 7]}) for i, n in enumerate('ab')]
        self.answer('', '\n'.join(lines) + '\n\n')
        self.assertEqual({'a': [0, 7], 'b': [1, 7]}, self.ceph.osds_of('fast', ['a', 'b']))
        asked = (self.directory / 'asked').read_text().splitlines()
        self.assertEqual(1, len(asked))
        self.assertEqual('osd map fast a\nosd map fast b\n', json.loads(asked[0])[1])

    def test_missing_answer_is_an_error(self):
        self.answer('', json.dumps({'objname': 'a', 'acting': [0]}))
        error = self.assertRaises(
            exceptions.StorageCommandError, self.ceph.osds_of, 'fast', ['a', 'b']
        )
        self.assertIn('1 answers to 2 objects', str(error))

    def test_osds_with_the_buckets_above_them(self):
        nodes = [
            {'id': -1, 'name': 'default', 'type': 'root', 'children': [-2]},
            {'id': -2, 'name': 'host-a', 'type': 'host', 'children': [0, 1]},
            {'id': 0, 'name': 'osd.0', 'type': 'osd', 'device_class': 'nvme'},
            {'id': 1, 'name': 'osd.1', 'type': 'osd'},
        ]
        self.answer('osd tree', {'nodes': nodes})
        above = {'host': 'host-a', 'root': 'default'}
        self.assertEqual(
            {
                0: ceph.Osd(0, 'nvme', {'osd': 'osd.0'} | above),
                1: ceph.Osd(1, '', {'osd': 'osd.1'} | above),
            },
            self.ceph.osds(),
        )
