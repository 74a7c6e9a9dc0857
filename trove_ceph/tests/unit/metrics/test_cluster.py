# SPDX-License-Identifier: Apache-2.0
"""The metrics of a cluster in memory."""

import datetime

from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.metrics import cluster
from trove_ceph.storage import image_types, tasks
from trove_ceph.storage.fake import backend
from trove_ceph.storage.fake import cluster as fake_cluster

NOW = datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)
POOLS = (
    cluster.MeasuredPool('volumes', 'fast', 'data', True),
    cluster.MeasuredPool('vault', 'vault', 'vault', True),
    cluster.MeasuredPool('vault-data', 'vault', 'vault', False),
)


class ClusterTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        capacities = dict.fromkeys((one.name for one in POOLS), units.Gi)
        self.cluster = fake_cluster.Cluster(capacities)
        self.storage = backend.FakeBackend(self.cluster)
        self.jobs = []
        self.figures = cluster.Cluster(self.storage, POOLS, lambda: (self.jobs, []), lambda: NOW)

    def samples(self):
        return {
            (sample.name, *sample.labels.values()): sample.value
            for metric in self.figures.read()
            for sample in metric.samples
        }

    def make(self, name, pool='volumes', parent=None):
        image, options = image_types.ImageRef(pool, name), image_types.ImageOptions()
        if parent is None:
            self.storage.create_image(image, 8 * units.Mi, options)
        else:
            self.storage.clone(parent, image, options)
        snapshot = image.snapshot('s')
        self.storage.create_snapshot(snapshot)
        return snapshot

    def test_usage(self):
        image = self.make('one').of
        with self.storage.open_writer(image) as writer:
            writer.write(0, b'x' * 4 * units.Mi).result()
        found = self.samples()
        labels = ('fast', 'data', 'volumes')
        self.assertEqual(4 * units.Mi, found['trove_ceph_pool_stored_bytes', *labels])
        self.assertEqual(units.Gi, found['trove_ceph_pool_max_bytes', *labels])
        self.assertEqual(4 / 1024, found['trove_ceph_pool_fill_ratio', *labels])
        self.assertEqual(0, found['trove_ceph_pool_full', *labels])
        # The data pool of a tier has no images of its own.
        self.assertIn(('trove_ceph_pool_fill_ratio', 'vault', 'vault', 'vault-data'), found)
        self.assertNotIn(('trove_ceph_images', 'vault', 'vault-data'), found)

    def test_clones_and_trash(self):
        clone = self.make('clone', parent=self.make('source'))
        self.make('clone-of-clone', 'vault', parent=clone)
        trashed = self.make('old').of
        self.storage.trash(trashed)
        found = self.samples()
        fast, vault = ('fast', 'volumes'), ('vault', 'vault')
        self.assertEqual(2, found['trove_ceph_images', *fast])
        self.assertEqual(1, found['trove_ceph_clones', *fast])
        self.assertEqual(1, found['trove_ceph_clone_depth', *fast])
        self.assertEqual(2, found['trove_ceph_clone_depth', *vault])
        self.assertEqual(1, found['trove_ceph_trash_images', *fast])
        self.assertEqual(8 * units.Mi, found['trove_ceph_trash_bytes', *fast])
        self.assertEqual(0, found['trove_ceph_trash_images', *vault])

    def test_blocklist(self):
        self.storage.blocklist(['10.0.0.1:0/1', '10.0.0.2:0/2'], 60)
        self.assertEqual(2, self.samples()['trove_ceph_blocklist_entries',])

    def test_a_pool_that_does_not_answer_leaves_the_others(self):
        self.make('one', 'vault')
        describe = self.storage.describe_pool

        def describe_pool(pool):
            if pool == 'volumes':
                raise exceptions.CephUnreachableError('pool volumes: no answer')
            return describe(pool)

        self.storage.describe_pool = describe_pool
        found = self.samples()
        self.assertEqual(0, found['trove_ceph_pool_up', 'fast', 'volumes'])
        self.assertNotIn(('trove_ceph_images', 'fast', 'volumes'), found)
        self.assertEqual(1, found['trove_ceph_pool_up', 'vault', 'vault'])
        self.assertEqual(1, found['trove_ceph_images', 'vault', 'vault'])

    def test_jobs(self):
        snapshot = self.make('one')
        copy = tasks.CopyTask(snapshot, image_types.ImageRef('vault', 'copy'))
        flatten = tasks.FlattenTask(snapshot.of)
        for number, (work, state, age_sec) in enumerate(
            (
                (copy, tasks.JobState.RUNNING, 60),
                (copy, tasks.JobState.INTERRUPTED, 600),
                (flatten, tasks.JobState.DONE, 6000),
                (flatten, tasks.JobState.FAILED, 6000),
            )
        ):
            began = NOW - datetime.timedelta(seconds=age_sec)
            self.jobs.append(tasks.Job(f'o{number}', work, state, 'h', 1, began, began))
        found = self.samples()
        jobs, oldest = 'trove_ceph_storage_jobs', 'trove_ceph_storage_job_oldest_seconds'
        self.assertEqual(1, found[jobs, 'copy', 'running'])
        self.assertEqual(1, found[jobs, 'copy', 'interrupted'])
        self.assertEqual(0, found[jobs, 'copy', 'waiting'])
        self.assertEqual(1, found[jobs, 'flatten', 'failed'])
        self.assertNotIn((jobs, 'flatten', 'done'), found)
        self.assertEqual(600, found[oldest, 'copy'])
        self.assertEqual(0, found[oldest, 'flatten'])

    def test_every_metric_is_described(self):
        described = {one.name for one in cluster.DESCRIPTIONS}
        self.assertEqual(described, {metric.name for metric in self.figures.read()})
