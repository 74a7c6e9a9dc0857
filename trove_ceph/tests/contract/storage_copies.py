# SPDX-License-Identifier: Apache-2.0
"""Copies: full and incremental, interrupted anywhere, of random histories, and verified."""

import threading

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import copying, image_types, throttle
from trove_ceph.tests.contract import storage

MIB = units.Mi


class CopiesContract(storage.StorageContract):
    def setUp(self):
        super().setUp()
        self.vault = self.ref('vault', self.second_pool)

    def copy(self, image, name, since=None, **options):
        return copying.copy(
            self.storage, image.snapshot(name), self.storage, self.vault, since=since, **options
        )

    def complete(self):
        return list(copying.complete_copies(self.storage.describe(self.vault)))

    def assert_copied(self, image, *names):
        for name in names:
            self.assertEqual(
                self.content(image.snapshot(name)), self.content(self.vault.snapshot(name)), name
            )
        self.assertEqual(list(names), self.complete())

    def test_full_copy_and_increment(self):
        image = self.make_written(size_mib=32)
        options = image_types.ImageOptions(data_pool=self.data_pool, object_bytes=MIB)
        report = self.copy(image, 's', options=options)
        self.assertEqual(9 * MIB, report.copied_bytes)
        self.assertGreaterEqual(report.compared_bytes, 9 * MIB)
        used_bytes = report.used_bytes
        self.assertTrue(9 * MIB <= used_bytes <= 32 * MIB, report)
        facts = self.storage.describe(self.vault)
        self.assertEqual((self.data_pool, MIB), (facts.data_pool, facts.object_bytes))

        with self.storage.open_writer(image) as writer:
            writer.write(3 * MIB + 512, self.data(16384)).result()
            writer.write(30 * MIB, self.data(512)).result()
            writer.create_snapshot('t')
        report = self.copy(image, 't', since='s')
        self.assertEqual(self.vault.snapshot('t'), report.snapshot)
        # In a new object, everything before the write is new, too; zeros are not copied.
        self.assertTrue(16384 + 512 <= report.copied_bytes <= 2 * 16384, report)
        self.assertGreater(report.used_bytes, used_bytes)
        self.assert_copied(image, 's', 't')

    def test_a_repetition_changes_nothing(self):
        image = self.make_written()
        first = self.copy(image, 's')
        before = self.storage.describe(self.vault)
        expected = copying.CopyReport(
            self.vault.snapshot('s'), used_bytes=first.used_bytes, total_bytes=first.copied_bytes
        )
        self.assertEqual(expected, self.copy(image, 's'))
        self.assertEqual(before, self.storage.describe(self.vault))

    def test_zeros_free_space(self):
        image = self.make_written()
        self.copy(image, 's')
        with self.storage.open_writer(image) as writer:
            writer.zero(100, 5 * MIB).result()
            writer.write(8 * MIB, bytes(MIB)).result()
            writer.create_snapshot('t')
        report = self.copy(image, 't', since='s')
        # The fake detects changes by sector.
        self.assertLessEqual(report.copied_bytes, 2 * 512)
        self.assertGreaterEqual(report.zeroed_bytes, 6 * MIB - 2 * 512)
        self.assert_copied(image, 's', 't')

    def test_the_source_is_removed_meanwhile(self):
        image = self.make_written()

        def remove(progress):
            if progress.phase == 'verifying' and self.storage.describe(image).snapshots:
                self.other.remove_snapshot(image.snapshot('s'))

        error = self.assertRaises(
            exceptions.NotFoundError,
            self.copy,
            image,
            's',
            limits=throttle.Throttle(progress=remove),
        )
        self.assertIn('was removed meanwhile', str(error))
        self.assertEqual([], self.complete())
        self.assertEqual((), self.storage.describe(self.vault).snapshots)

    def test_the_image_grew_and_shrank(self):
        image = self.make_written(size_mib=16)
        self.copy(image, 's')
        with self.storage.open_writer(image) as writer:
            writer.resize(40 * MIB)
            writer.write(39 * MIB, self.data(1000)).result()
            writer.create_snapshot('grown')
            writer.resize(6 * MIB + 5)
            writer.create_snapshot('shrunk')
            writer.resize(12 * MIB)
            writer.create_snapshot('regrown')
        previous = 's'
        for name in ('grown', 'shrunk', 'regrown'):
            self.copy(image, name, since=previous)
            previous = name
        self.assert_copied(image, 's', 'grown', 'shrunk', 'regrown')

    def test_intermediate_snapshots_may_be_skipped_or_removed(self):
        image = self.make_written()
        self.copy(image, 's')
        for name in ('t', 'u', 'v'):
            self.write(image, 3 * MIB, self.data(3 * MIB))
            self.storage.create_snapshot(image.snapshot(name))
        self.storage.remove_snapshot(image.snapshot('t'))
        self.copy(image, 'v', since='s')
        self.storage.remove_snapshot(image.snapshot('u'))
        self.assert_copied(image, 's', 'v')

    def test_removed_snapshots_that_clones_keep_do_no_harm(self):
        image, clone = self.make_written(), self.ref('clone')
        self.copy(image, 's')
        self.write(image, 2 * MIB, self.data(4 * MIB))
        self.storage.create_snapshot(image.snapshot('kept'))
        self.storage.clone(image.snapshot('kept'), clone, image_types.ImageOptions())
        self.storage.remove_snapshot(image.snapshot('kept'))
        self.write(image, 5 * MIB, self.data(2 * MIB))
        self.storage.create_snapshot(image.snapshot('t'))
        self.copy(image, 't', since='s')
        self.assert_copied(image, 's', 't')

    def test_a_copy_of_a_clone_has_no_parent(self):
        parent, clone = self.make_written('parent'), self.ref('clone')
        self.storage.clone(parent.snapshot('s'), clone, image_types.ImageOptions())
        self.write(clone, 5 * MIB, b'of the clone')
        self.storage.create_snapshot(clone.snapshot('a'))
        self.copy(clone, 'a')
        with self.storage.open_writer(clone) as writer:
            writer.zero(0, 4 * MIB).result()
            writer.write(8 * MIB + 7, b'more').result()
            writer.create_snapshot('b')
        self.copy(clone, 'b', since='a')
        self.storage.flatten(clone)
        self.storage.create_snapshot(clone.snapshot('c'))
        self.copy(clone, 'c', since='b')
        self.assert_copied(clone, 'a', 'b', 'c')
        self.assertIsNone(self.storage.describe(self.vault).parent)

    def test_random_histories(self):
        for _ in range(3):
            self._copy_random_history()
            self.remove_all()

    def _copy_random_history(self):
        image = self.make(size_mib=24)
        names = [f's{number}' for number in range(5)]
        with self.storage.open_writer(image) as writer:
            for name in names:
                for _ in range(self.random.randrange(6)):
                    self._change(writer)
                writer.create_snapshot(name)
        previous = None
        for name in names:
            self.copy(image, name, since=previous)
            previous = name
        self.assert_copied(image, *names)

    def _change(self, writer):
        size = writer.facts().size_bytes
        offset = self.random.randrange(size)
        length = min(self.random.choice([1, 512, 16384, MIB, 5 * MIB]), size - offset)
        action = self.random.choice(['write', 'write', 'zero', 'resize'])
        if action == 'write':
            writer.write(offset, self.data(length)).result()
        elif action == 'zero':
            writer.zero(offset, length).result()
        else:
            writer.resize(self.random.randrange(MIB, 32 * MIB))

    def test_a_canceled_copy_is_resumed(self):
        image = self.make_written(size_mib=32)
        self.write(image, 16 * MIB, self.data(12 * MIB))
        self.storage.create_snapshot(image.snapshot('t'))
        cancel = threading.Event()

        def stop_in_the_middle(progress):
            if progress.position_bytes >= 6 * MIB:
                cancel.set()

        limits = throttle.Throttle(cancel=cancel, progress=stop_in_the_middle)
        self.assertRaises(exceptions.CanceledError, self.copy, image, 't', limits=limits)
        self.assertEqual([], self.complete())
        report = self.copy(image, 't')
        self.assertGreaterEqual(report.resumed_at, 6 * MIB)
        self.assertLess(report.copied_bytes, 21 * MIB)
        self.assertEqual(21 * MIB, report.total_bytes)
        self.assertGreaterEqual(report.compared_bytes, 21 * MIB)
        self.assert_copied(image, 't')

    def test_a_copy_canceled_while_verifying_is_resumed(self):
        image = self.make_written()
        cancel = threading.Event()

        def stop_when_comparing(progress):
            if progress.phase == 'verifying':
                cancel.set()

        limits = throttle.Throttle(cancel=cancel, progress=stop_when_comparing)
        self.assertRaises(exceptions.CanceledError, self.copy, image, 's', limits=limits)
        self.assertEqual((['s'], []), (self.snapshot_names(self.vault), self.complete()))
        report = self.copy(image, 's')
        self.assertEqual((0, 9 * MIB), (report.copied_bytes, report.total_bytes))
        self.assert_copied(image, 's')

    def test_a_partial_copy_of_another_increment_is_rolled_back(self):
        image = self.make_written()
        self.copy(image, 's')
        with self.storage.open_writer(image) as writer:
            writer.write(0, self.data(9 * MIB)).result()
            writer.create_snapshot('t')
            writer.roll_back('s')
            writer.write(100, b'only this').result()
            writer.create_snapshot('u')
        self._cancel_at(4 * MIB, image, 't', since='s')
        self.storage.remove_snapshot(image.snapshot('t'))
        self.copy(image, 'u', since='s')
        self.assert_copied(image, 's', 'u')

    def test_a_partial_copy_of_another_full_copy_is_removed(self):
        image = self.make_written()
        self._cancel_at(4 * MIB, image, 's')
        with self.storage.open_writer(image) as writer:
            writer.zero(0, 16 * MIB).result()
            writer.create_snapshot('empty')
        self.copy(image, 'empty')
        self.assert_copied(image, 'empty')
        self.assertEqual(0, self.storage.describe(self.vault).used_bytes)

    def _cancel_at(self, position, image, name, since=None):
        cancel = threading.Event()

        def stop(progress):
            if progress.position_bytes >= position:
                cancel.set()

        limits = throttle.Throttle(cancel=cancel, progress=stop)
        self.assertRaises(
            exceptions.CanceledError, self.copy, image, name, since=since, limits=limits
        )

    def test_an_increment_may_have_an_older_base_than_the_latest_copy(self):
        image = self.make_written()
        self.copy(image, 's')
        self.write(image, 0, self.data(9 * MIB))
        self.storage.create_snapshot(image.snapshot('t'))
        self.copy(image, 't', since='s')
        with self.storage.open_writer(image) as writer:
            writer.roll_back('s')
            writer.create_snapshot('u')
        self.copy(image, 'u', since='s')
        self.assert_copied(image, 's', 't', 'u')

    def test_an_increment_needs_its_base(self):
        image = self.make_written()
        self.storage.create_snapshot(image.snapshot('t'))
        self.assertRaises(exceptions.NotFoundError, self.copy, image, 't', since='s')
        self._cancel_at(4 * MIB, image, 's')
        error = self.assertRaises(exceptions.NotFoundError, self.copy, image, 't', since='s')
        self.assert_message(error, self.vault, 's')
        # Another snapshot with the same name.
        self.copy(image, 's')
        self.storage.remove_snapshot(image.snapshot('s'))
        self.storage.create_snapshot(image.snapshot('s'))
        self.assertRaises(exceptions.NotFoundError, self.copy, image, 't', since='s')
        self.assertRaises(exceptions.AlreadyExistsError, self.copy, image, 's')
        self.assertRaises(exceptions.NotFoundError, self.copy, image, 'none')

    def test_refuses_an_image_with_other_content(self):
        image = self.make_written()
        theirs = self.data(5000)
        with self.storage.open_writer(self.make('vault', pool=self.second_pool)) as writer:
            writer.write(0, theirs).result()
            writer.create_snapshot('theirs')
        error = self.assertRaises(exceptions.AlreadyExistsError, self.copy, image, 's')
        self.assert_message(error, self.vault)
        self.assertEqual(theirs, self.content_now(self.vault)[:5000])

    def test_refuses_an_image_that_another_client_holds(self):
        image = self.make_written()
        self.make('vault', pool=self.second_pool)
        with self.other.open_writer(self.vault):
            self.assertRaises(exceptions.BusyError, self.copy, image, 's')
        self.copy(image, 's')
        self.assert_copied(image, 's')

    def test_detects_a_change_of_the_base(self):
        """Another client wrote to the image after the base copy: the next copy is corrupt."""
        image = self.make_written()
        self.copy(image, 's')
        self.storage.create_snapshot(image.snapshot('t'))
        self.write(self.vault, 5 * MIB + 3, b'not of the source')
        error = self.assertRaises(exceptions.CorruptCopyError, self.copy, image, 't', since='s')
        self.assert_message(error, self.vault.snapshot('t'), f'byte {5 * MIB + 3}')
        self.assertEqual((['s'], ['s']), (self.snapshot_names(self.vault), self.complete()))
        self.copy(image, 't', since='s')
        self.assert_copied(image, 's', 't')

    def test_detects_a_change_during_an_interruption(self):
        """Both in copied data and in a range that the source does not store."""
        image = self.make_written(size_mib=32)
        self.write(image, 16 * MIB, self.data(12 * MIB))
        self.storage.create_snapshot(image.snapshot('t'))
        for offset in (MIB + 3, 14 * MIB):
            self._cancel_at(20 * MIB, image, 't')
            self._assert_change_is_detected(offset, image, 't')
            self.assertEqual([], self.complete())
        self.copy(image, 't')
        with self.storage.open_writer(image) as writer:
            writer.zero(0, 4 * MIB).result()
            writer.write(5 * MIB, self.data(MIB)).result()
            writer.write(20 * MIB, self.data(MIB)).result()
            writer.create_snapshot('u')
        for offset in (2 * MIB, 5 * MIB + 7, 8 * MIB):
            self._cancel_at(6 * MIB, image, 'u', since='t')
            self._assert_change_is_detected(offset, image, 'u', since='t')
        self.copy(image, 'u', since='t')
        self.assert_copied(image, 't', 'u')

    def _assert_change_is_detected(self, offset, image, name, since=None):
        self.write(self.vault, offset, b'not of the source')
        error = self.assertRaises(exceptions.CorruptCopyError, self.copy, image, name, since=since)
        self.assert_message(error, self.vault.snapshot(name), f'byte {offset};')
        self.assertNotIn(name, self.snapshot_names(self.vault))

    def test_a_snapshot_may_be_removed_meanwhile(self):
        """Ceph may then report the difference in other extents during the verification."""
        image = self.make_written()
        self.copy(image, 's')
        self.write(image, 3 * MIB, self.data(4 * MIB))
        self.storage.create_snapshot(image.snapshot('between'))
        self.write(image, 3 * MIB + 100, self.data(1000))
        self.storage.create_snapshot(image.snapshot('t'))
        self._cancel_at(4 * MIB, image, 't', since='s')
        self.storage.remove_snapshot(image.snapshot('between'))
        self.copy(image, 't', since='s')
        self.assert_copied(image, 's', 't')

    def test_compares_everything_on_request(self):
        image = self.make_written()
        self.copy(image, 's')
        self.storage.create_snapshot(image.snapshot('t'))
        self.assertEqual(0, self.copy(image, 't', since='s').compared_bytes)
        self.storage.create_snapshot(image.snapshot('u'))
        report = self.copy(image, 'u', since='t', compare_all=True)
        self.assertGreaterEqual(report.compared_bytes, 9 * MIB)

    def test_the_error_names_the_full_pool(self):
        image = self.make_written()
        self.fill(self.data_pool)
        options = image_types.ImageOptions(data_pool=self.data_pool)
        error = self.assertRaises(exceptions.NoSpaceError, self.copy, image, 's', options=options)
        self.assert_message(error, self.data_pool, '% filled, full')
        self.assertEqual([], self.complete())
        self.empty(self.data_pool)
        self.copy(image, 's', options=options)
        self.assert_copied(image, 's')

    def test_copies_are_removed_and_created_again(self):
        image = self.make_written()
        self.copy(image, 's')
        self.storage.remove_snapshot(self.vault.snapshot('s'))
        self.assertEqual([], self.complete())
        self.storage.remove(self.vault)
        self.copy(image, 's')
        self.assert_copied(image, 's')

    def test_a_clone_of_a_copy_is_not_a_copy(self):
        image, restored = self.make_written(), self.ref('restored')
        self.copy(image, 's')
        self.storage.clone(self.vault.snapshot('s'), restored, image_types.ImageOptions())
        self.storage.create_snapshot(restored.snapshot('s'))
        self.assertEqual({}, copying.complete_copies(self.storage.describe(restored)))
