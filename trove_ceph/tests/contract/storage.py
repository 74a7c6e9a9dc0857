# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the contract tests of storage.

A concrete test class inherits a contract and a test case. ``setUp`` of the test case sets
``storage``, the clients ``other`` and ``third`` of the same cluster, and ``pool``, ``second_pool``
and ``data_pool``. The test case has the methods ``fill(pool)``, after which the pool accepts no
data, and ``await_dead_clients(error)``, which raises a busy error, or returns when watches of dead
clients may have expired.
"""

import random
import uuid

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import image_types

MIB = units.Mi


class StorageContract:
    """Mix in before the test case."""

    def setUp(self):
        super().setUp()
        self.prefix = f't{uuid.uuid4().hex[:8]}'
        self.random = random.Random(self.id())
        self.addCleanup(self.remove_all)

    def ref(self, name, pool=None):
        return image_types.ImageRef(pool or self.pool, f'{self.prefix}-{name}')

    def make(self, name='image', size_mib=16, pool=None, **options):
        image = self.ref(name, pool)
        self.storage.create_image(image, size_mib * MIB, image_types.ImageOptions(**options))
        return image

    def make_written(self, name='image', **options):
        """Return an image with a snapshot ``s`` of three objects of data."""
        image = self.make(name, **options)
        with self.storage.open_writer(image) as writer:
            writer.write(0, self.data(9 * MIB)).result()
            writer.create_snapshot('s')
        return image

    def data(self, count):
        return self.random.randbytes(count)

    def write(self, image, offset, data, storage=None):
        with (storage or self.storage).open_writer(image) as writer:
            writer.write(offset, data).result()

    def content(self, snapshot):
        """Return all data of a snapshot."""
        with self.storage.open_reader(snapshot) as reader:
            return reader.read(0, reader.size_bytes).result()

    def content_now(self, image):
        """Return all data of an image, by a temporary snapshot."""
        snapshot = image.snapshot(f'read-{uuid.uuid4().hex}')
        self.storage.create_snapshot(snapshot)
        try:
            return self.content(snapshot)
        finally:
            self.storage.remove_snapshot(snapshot)

    def snapshot_names(self, image):
        return self.storage.describe(image).snapshot_names

    def remove_all(self):
        """Remove the images of this test, clones first."""
        while True:
            try:
                return self._remove_all()
            except exceptions.BusyError as error:
                self.await_dead_clients(error)

    def _remove_all(self):
        pools = [self.pool, self.second_pool]
        for pool in pools:
            for trashed in self.storage.list_trash(pool):
                if trashed.name.startswith(self.prefix):
                    self.storage.restore(pool, trashed.image_id, f'{trashed.name}-restored')
        images = [
            facts
            for pool in pools
            for facts in self.storage.describe_pool(pool)
            if facts.image.name.startswith(self.prefix)
        ]
        for facts in images:
            self.storage.flatten(facts.image)
        for facts in images:
            for name in self.snapshot_names(facts.image):
                self.storage.remove_snapshot(facts.image.snapshot(name))
            self.storage.remove(facts.image)

    def assert_message(self, error, *parts):
        for part in parts:
            self.assertIn(str(part), str(error))

    def assert_missing(self, image):
        self.assertRaises(exceptions.NotFoundError, self.storage.describe, image)
