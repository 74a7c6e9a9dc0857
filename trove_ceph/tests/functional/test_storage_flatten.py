# SPDX-License-Identifier: Apache-2.0
"""Flattening an image after an interrupted flatten.

The object map then has objects that were never written. The tests create that state by removing,
behind librbd's back, an object that it has copied from the parent.
"""

import errno
import itertools
import threading

import fixtures
import rados
import rbd
import testtools
from oslo_utils import units
from oslotest import base
from testtools.content import text_content

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.storage.ceph import flattening, object_map_repair, objects
from trove_ceph.tests.contract import storage as contract
from trove_ceph.tests.functional import storage

MIB = units.Mi
OBJECT_BYTES = 4 * MIB


class ObjectsTest(contract.StorageContract, storage.CephStorageTestCase):
    def test_finds_absent_objects(self):
        """An image has millions of objects: names are generated on demand."""
        taken, ahead = 0, []

        def names():
            nonlocal taken
            for taken in range(1, 1001):
                yield f'{self.prefix}-{taken}'

        there = {f'{self.prefix}-{number}' for number in (1, 128, 129, 1000)}
        with self.cluster.pool(self.pool) as pool:
            for name in there:
                pool.write_full(name, b'there')
            found = objects.absent(pool, names(), lambda: ahead.append(taken))
            for name in there:
                pool.remove_object(name)
        self.assertEqual([one for one in names() if one not in there], found)
        steps = [after - before for before, after in itertools.pairwise(ahead)]
        self.assertEqual(ahead[0], steps[0])
        self.assertLess(max(steps), 500)

    def test_waits_for_all_requests_after_an_error(self):
        """librados does not keep a context that is closed while a request is in flight."""
        waited = []

        class Completion:
            def __init__(self, number, code):
                self._number, self._code = number, code

            def wait_for_complete_and_cb(self):
                waited.append(self._number)

            def get_return_value(self):
                return self._code

        class Context:
            def aio_stat(self, name, _oncomplete):
                if name == 'refused':
                    raise rados.ObjectNotFound('no such request')
                return Completion(name, -errno.ETIMEDOUT if name == 1 else 0)

        with testtools.ExpectedException(rados.OSError):
            objects.absent(Context(), range(5))
        self.assertEqual([*range(5)], waited)
        waited.clear()
        with testtools.ExpectedException(rados.ObjectNotFound):
            objects.absent(Context(), [*range(3), 'refused'])
        self.assertEqual([*range(3)], waited)


class StuckFlattenTest(base.BaseTestCase):
    """A hypervisor has the work and lives, and does not go on."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(object_map_repair, 'copy_up'))
        self.progress = []

    def flatten(self):
        case = self

        class Attempts(flattening.Flattening):
            def _flatten(self):
                self._is_silent = True
                self._note(MIB)(case.progress.pop(0), 100)
                raise exceptions.StorageError('this client is on the blocklist')

        Attempts(None, image_types.ImageRef('pool', 'clone'), None, None).run()

    def test_ends(self):
        self.progress = [5] * 100
        error = self.assertRaises(exceptions.BusyError, self.flatten)
        self.assertIn('see whether its pool is full', str(error))
        self.assertGreater(len(self.progress), 90)

    def test_goes_on_with_any_progress(self):
        self.progress = [*range(50)]
        # The fiftieth attempt finds no further progress to report.
        self.assertRaises(IndexError, self.flatten)


class FlattenTest(contract.StorageContract, storage.CephStorageTestCase):
    def setUp(self):
        super().setUp()
        self.image = self.make_written()
        self.expected = self.content(self.image.snapshot('s'))

    def clone(self, name, pool=None, **options):
        clone = self.ref(name, pool)
        self.storage.clone(self.image.snapshot('s'), clone, image_types.ImageOptions(**options))
        return clone

    def break_off(self, clone, number=1, data_pool=None):
        """Mark an object of a clone in the object map without creating it."""
        offset = number * OBJECT_BYTES
        # The same data as in the parent, so that only the copy of it is lost.
        self.write(clone, offset, self.expected[offset : offset + 512])
        self.remove_object(clone, number, data_pool)

    def remove_object(self, clone, number, data_pool=None):
        with self.cluster.pool(clone.pool) as pool, rbd.Image(pool, clone.name) as handle:
            prefix = handle.stat()['block_name_prefix']
        with self.cluster.pool(data_pool or clone.pool) as pool:
            pool.remove_object(f'{prefix}.{number:016x}')

    def assert_whole(self, clone, begin=0):
        self.assertIsNone(self.storage.describe(clone).parent)
        # Not by assertEqual, which would print both.
        is_same = self.content_now(clone)[begin:] == self.expected[begin:]
        self.assertTrue(is_same, 'the clone has lost data')

    def test_nothing_is_lost(self):
        for name, pool, data_pool in (
            ('same', self.pool, None),
            ('other', self.second_pool, None),
            ('coded', self.second_pool, self.data_pool),
        ):
            clone = self.clone(name, pool, data_pool=data_pool)
            self.break_off(clone, data_pool=data_pool)
            self.storage.flatten(clone)
            self.assert_whole(clone)

    def test_snapshot_of_the_clone_is_unchanged(self):
        clone = self.clone('clone')
        self.storage.create_snapshot(clone.snapshot('before'))
        self.break_off(clone)
        self.storage.flatten(clone)
        self.assert_whole(clone)
        is_same = self.content(clone.snapshot('before')) == self.expected
        self.assertTrue(is_same, 'the snapshot has lost data')

    def test_librbd_alone_loses_data(self):
        """Also after the map was rebuilt, which keeps such marks."""
        found = {}
        for name in ('flattened', 'rebuilt'):
            clone = self.clone(name)
            self.break_off(clone)
            with self.cluster.pool(clone.pool) as pool, rbd.Image(pool, clone.name) as handle:
                if name == 'rebuilt':
                    handle.rebuild_object_map()
                handle.flatten()
            found[name] = self.content_now(clone) == self.expected
        self.addDetail('librbd is right', text_content(str(found)))
        if all(found.values()):
            self.skipTest('this Ceph flattens what the object map has, too')
        self.assertEqual({'flattened': False, 'rebuilt': False}, found)

    def test_flattens_an_image_of_a_client_that_shares_its_lock(self):
        """As a hypervisor does, which releases the lock on request and takes it again."""
        clone = self.clone('clone')
        self.break_off(clone)
        with self.cluster.pool(clone.pool) as pool, rbd.Image(pool, clone.name) as handle:
            handle.write(b'before', 0)
            self.storage.flatten(clone)
            handle.write(b'after!', 6)
        self.assertEqual(b'beforeafter!', self.content_now(clone)[:12])
        self.assert_whole(clone, begin=12)

    def test_flattens_an_image_of_a_client_that_keeps_its_lock(self):
        clone = self.clone('clone')
        self.break_off(clone)
        with self.other.open_writer(clone) as writer:
            writer.write(0, b'before').result()
            self.storage.flatten(clone)
            writer.write(6, b'after!').result()
        self.assertEqual(b'beforeafter!', self.content_now(clone)[:12])
        self.assert_whole(clone, begin=12)

    def test_flattens_a_striped_image(self):
        """Its objects hold chunks from all over the image."""
        clone, features = self.ref('striped'), ','.join({*image_types.DEFAULT_FEATURES, 'striping'})
        with self.cluster.pool(self.pool) as pool:
            rbd.RBD().clone(
                *(pool, self.image.name, 's', pool, clone.name),
                features=rbd.RBD().features_from_string(features),
                stripe_unit=MIB,
                stripe_count=3,
            )
        self.break_off(clone)
        self.storage.flatten(clone)
        self.assert_whole(clone)

    def test_client_that_flattens_is_killed(self):
        """A hypervisor with the image open does the work; librbd would continue without it."""
        self.image = self.make('large', size_mib=164)
        self.expected = self.data(160 * MIB).ljust(164 * MIB, b'\0')
        self.write(self.image, 0, self.expected[: 160 * MIB])
        self.storage.create_snapshot(self.image.snapshot('s'))
        clone = self.clone('clone')
        # One object after the other, so that there is time.
        self.storage.set_image_metadata(clone, {'conf_rbd_concurrent_management_ops': '1'})
        hypervisor = self.start_writing(clone)
        killed = threading.Event()

        def kill_in_the_middle(done, _total):
            if done >= 40 * MIB and not killed.is_set():
                killed.set()
                hypervisor.kill()
                hypervisor.wait()
                self.remove_object(clone, 3)

        self.storage.flatten(clone, kill_in_the_middle)
        self.assertTrue(killed.is_set())
        # It wrote to the first object.
        self.assert_whole(clone, begin=OBJECT_BYTES)
