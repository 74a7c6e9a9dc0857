# SPDX-License-Identifier: Apache-2.0
"""Tests of storage operations through the command line, with output of Ceph 16."""

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.tests.unit.tempest_plugin import test_ceph
from trove_ceph_tempest_plugin import images

IMAGE = image_types.ImageRef('fast', 'volume-1')
_SNAPSHOTS = [
    {
        'id': 7,
        'name': 'snapshot-1',
        'size': 2**30,
        'protected': 'true',
        'timestamp': 'Sat Nov 21 17:00:00 2026',
        'namespace': {'type': 'user'},
    },
    {
        'id': 8,
        'name': 'a0d1',
        'size': 2**30,
        'protected': 'false',
        'timestamp': 'Sat Nov 21 17:00:01 2026',
        'namespace': {'type': 'trash', 'original_name': 'snapshot-2'},
    },
]


class ImagesTest(test_ceph.CephTestCase):
    def setUp(self):
        super().setUp()
        self.images = images.Images('/etc/ceph/x.conf', 'reader')

    def describe(self, parent=None):
        info = {'id': '5f', 'size': 2**30, 'object_size': 2**22, 'features': ['layering']}
        self.reply('info fast/volume-1', info | ({'parent': parent} if parent else {}))
        self.reply('snap ls --all fast/volume-1', _SNAPSHOTS)
        self.reply('status fast/volume-1', {'watchers': [{'address': '192.0.2.1:0/7'}]})
        child = {'pool': 'slow', 'image': 'volume-2', 'id': '60', 'trash': False}
        self.reply('children --all --snap-id 7 fast/volume-1', [])
        self.reply('children --all --snap-id 8 fast/volume-1', [child])
        return self.images.describe(IMAGE)

    def test_image(self):
        facts = self.describe()
        self.assertEqual(('5f', 2**30, None), (facts.image_id, facts.size_bytes, facts.parent))
        self.assertEqual({'layering'}, facts.features)
        self.assertEqual(('192.0.2.1:0/7',), facts.clients)
        child = image_types.Child(image_types.ImageRef('slow', 'volume-2'), '60', 'a0d1')
        self.assertEqual((child,), facts.children)
        self.assertEqual(
            [('snapshot-1', 7, False, None), ('a0d1', 8, True, 'snapshot-2')],
            [(one.name, one.snapshot_id, one.removed, one.removed_name) for one in facts.snapshots],
        )

    def test_clone(self):
        facts = self.describe({'pool': 'slow', 'image': 'volume-0', 'snapshot': 's'})
        self.assertEqual(image_types.SnapshotRef('slow', 'volume-0', 's'), facts.parent)

    def test_translates_errors(self):
        for code, error_class in (
            (2, exceptions.NotFoundError),
            (16, exceptions.BusyError),
            (39, exceptions.BusyError),
            (13, exceptions.StorageCommandError),
        ):
            self.reply('rm --no-progress fast/volume-1', '', code=code)
            error = self.assertRaises(error_class, self.images.remove, IMAGE)
            self.assertIn('the reason', str(error))

    def test_list_names_includes_the_trash(self):
        self.reply('ls fast', ['volume-1'])
        self.reply('trash ls --all fast', [{'id': '5', 'name': 'volume-0'}])
        self.assertEqual(
            ['fast/volume-0 (in the trash, id 5)', 'volume-1'], self.images.list_names('fast')
        )
