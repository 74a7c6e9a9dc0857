# SPDX-License-Identifier: Apache-2.0
"""Tests of the commands sent to Ceph, and of the parsing of their output."""

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
replies = json.load(open({replies!r}))
arguments = sys.argv[1:]
assert arguments[:4] == ['--conf', '/etc/ceph/x.conf', '--id', 'reader'], arguments
text = sys.stdin.read()
with open({commands!r}, 'a') as commands:
    commands.write(json.dumps([arguments[4:], text]) + '\\n')
code, output = replies[' '.join(w for w in arguments[4:] if w not in ('--format', 'json'))]
print(output)
print('the reason', file=sys.stderr)
sys.exit(code)
"""
_INFO = {'block_name_prefix': 'rbd_data.5', 'size': 2**30, 'object_size': 2**22}


class CephTestCase(base.BaseTestCase):
    """Fake programs on the path with configured replies."""

    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.replies = {}
        for name in ('ceph', 'rbd'):
            program = self.directory / name
            program.write_text(
                _PROGRAM.format(
                    python=sys.executable,
                    replies=str(self.directory / 'replies'),
                    commands=str(self.directory / 'commands'),
                )
            )
            program.chmod(0o755)
        path = f'{self.directory}:{os.environ["PATH"]}'
        self.useFixture(fixtures.EnvironmentVariable('PATH', path))
        self.ceph = ceph.Ceph('/etc/ceph/x.conf', 'reader')

    def reply(self, arguments, output, code=0):
        text = output if isinstance(output, str) else json.dumps(output)
        self.replies[arguments] = [code, text]
        (self.directory / 'replies').write_text(json.dumps(self.replies))


class CephTest(CephTestCase):
    def test_image(self):
        self.reply('info fast/volume-1', _INFO)
        self.assertEqual(
            ceph.Image('volume-1', 'fast', 'fast', 'rbd_data.5', 2**30, 2**22),
            self.ceph.find_image('fast', 'volume-1'),
        )

    def test_image_with_a_data_pool(self):
        self.reply('info fast/volume-1', _INFO | {'data_pool': 'coded'})
        self.assertEqual('coded', self.ceph.find_image('fast', 'volume-1').data_pool)

    def test_no_such_image(self):
        self.reply('info fast/volume-1', '', code=2)
        self.assertIsNone(self.ceph.find_image('fast', 'volume-1'))

    def test_error_is_not_mistaken_for_a_missing_image(self):
        self.reply('info fast/volume-1', '', code=1)
        error = self.assertRaises(
            exceptions.StorageCommandError, self.ceph.find_image, 'fast', 'volume-1'
        )
        self.assertIn('exited with 1: the reason', str(error))

    def test_missing_program(self):
        (self.directory / 'rbd').unlink()
        self.useFixture(fixtures.EnvironmentVariable('PATH', str(self.directory)))
        error = self.assertRaises(
            exceptions.StorageCommandError, self.ceph.find_image, 'fast', 'volume-1'
        )
        self.assertIn('rbd --conf', str(error))

    def test_trash(self):
        self.reply('trash ls --all fast', [{'id': '5', 'name': 'volume-1'}])
        self.assertTrue(self.ceph.in_trash('fast', 'volume-1'))
        self.assertFalse(self.ceph.in_trash('fast', 'volume-10'))

    def test_existing_objects(self):
        image = ceph.Image('volume-1', 'fast', 'fast', 'rbd_data.5', 2**30, 2**22)
        extents = [
            {'offset': 0, 'length': 2**22},
            {'offset': 3 * 2**22, 'length': 2**23},  # two objects in one extent
        ]
        self.reply('diff --whole-object fast/volume-1', extents)
        self.assertEqual(
            ['rbd_data.5.0000000000000000', 'rbd_data.5.0000000000000003']
            + ['rbd_data.5.0000000000000004'],
            self.ceph.objects(image),
        )

    def test_one_process_maps_all_objects(self):
        lines = [json.dumps({'objname': n, 'acting': [i, 7]}) for i, n in enumerate('ab')]
        self.reply('', '\n'.join(lines) + '\n\n')
        self.assertEqual({'a': [0, 7], 'b': [1, 7]}, self.ceph.osds_of('fast', ['a', 'b']))
        commands = (self.directory / 'commands').read_text().splitlines()
        self.assertEqual(1, len(commands))
        self.assertEqual('osd map fast a\nosd map fast b\n', json.loads(commands[0])[1])

    def test_missing_reply_is_an_error(self):
        self.reply('', json.dumps({'objname': 'a', 'acting': [0]}))
        error = self.assertRaises(
            exceptions.StorageCommandError, self.ceph.osds_of, 'fast', ['a', 'b']
        )
        self.assertIn('1 replies for 2 objects', str(error))

    def test_osds_with_the_buckets_above_them(self):
        nodes = [
            {'id': -1, 'name': 'default', 'type': 'root', 'children': [-2]},
            {'id': -2, 'name': 'host-a', 'type': 'host', 'children': [0, 1]},
            {'id': 0, 'name': 'osd.0', 'type': 'osd', 'device_class': 'nvme'},
            {'id': 1, 'name': 'osd.1', 'type': 'osd'},
        ]
        self.reply('osd tree', {'nodes': nodes})
        parents = {'host': 'host-a', 'root': 'default'}
        self.assertEqual(
            {
                0: ceph.Osd(0, 'nvme', {'osd': 'osd.0'} | parents),
                1: ceph.Osd(1, '', {'osd': 'osd.1'} | parents),
            },
            self.ceph.osds(),
        )
