# SPDX-License-Identifier: Apache-2.0
import dataclasses
import datetime
import json

from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import copying, fencing, golden, image_types, tasks
from trove_ceph.storage_service import serializer
from trove_ceph.verification import report as verification

NOW = datetime.datetime(2026, 11, 21, 12, 0, 0, 123456, datetime.UTC)
IMAGE = image_types.ImageRef('volumes', 'image')
CHILD = image_types.Child(image_types.ImageRef('vault', 'clone'), 'ab12', 's', trashed=True)
FACTS = image_types.ImageFacts(
    image=IMAGE,
    image_id='1f',
    size_bytes=2**40,
    object_bytes=4 * units.Mi,
    features=image_types.DEFAULT_FEATURES,
    data_pool=None,
    parent=IMAGE.snapshot('before'),
    snapshots=(image_types.SnapshotFacts('s', 7, 5, NOW, True, 't'),),
    children=(CHILD,),
    clients=('192.0.2.1:0/1', '192.0.2.1:0/2'),
    lock_owner='192.0.2.1:0/1',
    qos=image_types.Qos(iops=300),
    metadata={'class': 'a key of the serializer', 'is': 'too'},
    used_bytes=17,
    created_at=NOW,
    clone_depth=1,
)
BACKUP = '6b4a3f5e-0d0c-4c7f-9d39-2a6b8e1f7c55'
TASKS = (
    tasks.FlattenTask(IMAGE),
    tasks.CopyTask(
        IMAGE.snapshot('s'),
        image_types.ImageRef('vault', 'v'),
        'r',
        image_types.ImageOptions(),
        True,
    ),
    tasks.VerifyTask(IMAGE.snapshot('s'), IMAGE.snapshot('t')),
    tasks.InspectTask(IMAGE.snapshot('s'), BACKUP, '9.7.4', f'{BACKUP}:1-5', True, True, 3, 60),
    tasks.GoldenTask.of(golden.GoldenVolume('volumes', '9.7.4', 10)),
    tasks.FenceTask(IMAGE, 30),
    tasks.FenceTask(IMAGE, 30, frozenset({'10.0.0.1:0/1', '10.0.0.2:0/2'})),
    tasks.PurgeTask('volumes', '1f'),
)


class SerializerTest(base.BaseTestCase):
    def send(self, entity):
        return serializer.decode(json.loads(json.dumps(serializer.encode(entity))))

    def test_decode_returns_the_encoded_value(self):
        for entity in (
            FACTS,
            [FACTS, None, 'text', 1.5, True],
            image_types.PoolUsage('volumes', 1, 2, 3, 0.5, True, False),
            image_types.TrashedImage('volumes', '1f', 'image', NOW, (CHILD,)),
            [image_types.ListedImage(IMAGE, '1f')],
            fencing.Fence(IMAGE, frozenset({'a', 'b'})),
            copying.CopyReport(IMAGE.snapshot('s'), 1, 2, 3, 4, 5.5, 6.5),
            verification.Inspection(
                'corrupt', ('why',), 'a:1', '9.7.4', '9.7.3', 1, 2, 3, 4.5, {'opening': 1.5}
            ),
            *TASKS,
        ):
            self.assertEqual(entity, self.send(entity))

    def test_jobs(self):
        for work in TASKS:
            job = tasks.Job(
                'op', work, tasks.JobState.RUNNING, 'host:1', 2, NOW, NOW, 'copying', 5, 10
            )
            found = self.send(job)
            self.assertEqual(job, found)
            self.assertIs(tasks.JobState.RUNNING, found.state)

    def test_all_fields_keep_their_class(self):
        """A new class must be listed in the serializer."""
        for entity in (FACTS, *TASKS):
            for field in dataclasses.fields(entity):
                value = getattr(entity, field.name)
                self.assertEqual((type(value), value), (type(self.send(value)), value))

    def test_unknown_fields_are_ignored_and_missing_ones_have_defaults(self):
        primitive = serializer.encode(image_types.Qos(iops=5))
        primitive['is']['new_in_version_2'] = 'x'
        del primitive['is']['iops_burst']
        self.assertEqual(image_types.Qos(iops=5), serializer.decode(primitive))

    def test_a_malformed_message_is_an_invalid_request(self):
        wrong_size = serializer.encode(image_types.Qos(iops=5))
        wrong_size['is']['iops'] = -1
        for primitive in (
            {'class': 'Connection', 'is': {}},
            {'class': 'os.system', 'is': {}},
            {'pool': 'volumes'},
            {'class': 'ImageRef', 'is': {'pool': 'volumes'}},
            {'class': 'state', 'is': 'sleeping'},
            {'class': 'map', 'is': 5},
            wrong_size,
        ):
            self.assertRaises(exceptions.InvalidRequestError, serializer.decode, primitive)

    def test_other_classes_are_refused(self):
        for entity in (object(), ValueError('x'), {1, 2}, b'bytes', copying.Origin('a', 'b', 1, 2)):
            self.assertRaises(TypeError, serializer.encode, entity)
