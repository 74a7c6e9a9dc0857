# SPDX-License-Identifier: Apache-2.0
"""Copies on a real Ceph in difficult cases: untrimmed snapshots, kills, other clusters."""

import json
import subprocess
import sys

import rbd
from oslo_utils import units
from testtools.content import text_content

from trove_ceph.storage import copying, image_types, transfer
from trove_ceph.tests.contract import storage as contract
from trove_ceph.tests.functional import ceph, storage, storage_client

MIB = units.Mi
# More than one and a half checkpoints: it can be killed after the first.
LARGE_MIB = 448


class CopiesTest(contract.StorageContract, storage.CephStorageTestCase):
    def setUp(self):
        super().setUp()
        self.vault = self.ref('vault', self.second_pool)

    def _copy(self, image, name, since=None):
        snapshot = image.snapshot(name)
        return copying.copy(self.storage, snapshot, self.storage, self.vault, since=since)

    def test_copies_correctly_after_removal_of_an_untrimmed_snapshot(self):
        """In this state ``rbd deep cp`` copies wrong data without an error."""
        self._set_flag('osd set', 'nosnaptrim')
        self.addCleanup(self._set_flag, 'osd unset', 'nosnaptrim')
        image = self.make(size_mib=64)
        with self.storage.open_writer(image) as writer:
            self._overwrite(writer)
            writer.create_snapshot('s0')
            writer.create_snapshot('a')
            self._overwrite(writer)
            writer.create_snapshot('b')
            writer.remove_snapshot('a')
        deep = self._deep_copy(image)
        self._copy(image, 's0')
        self._copy(image, 'b', since='s0')
        for name in ('s0', 'b'):
            expected = self.content(image.snapshot(name))
            self.assertEqual(expected, self.content(self.vault.snapshot(name)), name)
            right = expected == self.content(deep.snapshot(name))
            self.addDetail(f'deep copy of {name}', text_content('right' if right else 'wrong'))

    def _set_flag(self, command, flag):
        with self.cluster.connection() as handle:
            request = json.dumps({'prefix': command, 'key': flag})
            code, _, message = handle.mon_command(request, b'')
        self.assertEqual(0, code, message)

    def _overwrite(self, writer):
        for number in range(12):
            writer.write(number * 4 * MIB, self.data(4 * MIB)).result()
        for _ in range(100):
            writer.write(self.random.randrange(63 * MIB), self.data(16384)).result()

    def _deep_copy(self, image):
        deep = self.ref('deep')
        with self.cluster.pool(image.pool) as context:
            with rbd.Image(context, image.name, read_only=True) as source:
                source.deep_copy(context, deep.name)
        return deep

    def test_resumes_a_killed_copy(self):
        image = self.make(size_mib=LARGE_MIB)
        with self.storage.open_writer(image) as writer:
            blocks = range(LARGE_MIB // 4)
            writes = [writer.write(at * 4 * MIB, self.data(4 * MIB)) for at in blocks]
            for write in writes:
                write.result()
            writer.create_snapshot('s')
        arguments = ('copy', self.cluster.conf, storage.USER, image.pool, image.name, 's')
        arguments += (self.vault.pool, self.vault.name, 100 * MIB)
        process = self._spawn(*arguments)
        for line in process.stdout:
            if int(line) > transfer.CHECKPOINT_BYTES + 64 * MIB:
                break
        process.kill()
        process.wait()
        self.assertEqual({}, copying.complete_copies(self.storage.describe(self.vault)))
        # Waits until the watch of the killed process expires.
        report = self._copy(image, 's')
        self.assertGreaterEqual(report.resumed_at, transfer.CHECKPOINT_BYTES)
        self.assertLessEqual(report.copied_bytes, LARGE_MIB * MIB - transfer.CHECKPOINT_BYTES)
        self.assertEqual(LARGE_MIB * MIB, report.compared_bytes)
        self.assertEqual(['s'], list(copying.complete_copies(self.storage.describe(self.vault))))

    def _spawn(self, *arguments):
        process = subprocess.Popen(
            [sys.executable, storage_client.__file__, *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_copies_to_another_cluster(self):
        elsewhere = ceph.Cluster(self.directory / 'c', {'ssd': 2}, osd_gib=3)
        self.addCleanup(elsewhere.try_tool, 'destroy')
        elsewhere.create()
        elsewhere.start()
        tiers = {'far': ceph.tier('data', 'ssd', 'far', 2, 8)}
        elsewhere.apply({'tiers': tiers, 'users': {storage.USER: {'role': 'storage'}}})
        far, vault = storage.connect(self, elsewhere), image_types.ImageRef('far', 'vault')
        self.assertNotEqual(self.storage.cluster_id, far.cluster_id)

        image = self.make_written()
        copying.copy(self.storage, image.snapshot('s'), far, vault)
        self.write(image, 5 * MIB, b'more')
        self.storage.create_snapshot(image.snapshot('t'))
        report = copying.copy(self.storage, image.snapshot('t'), far, vault, since='s')
        self.assertEqual(4, report.copied_bytes)
        for name in ('s', 't'):
            with far.open_reader(vault.snapshot(name)) as reader:
                copied = reader.read(0, reader.size_bytes).result()
            self.assertEqual(self.content(image.snapshot(name)), copied)

    def test_increment_moves_only_changes(self):
        """Within a tenth: new pages in empty ranges, and overlapping writes over data."""
        image = self.make_written(size_mib=256)
        self._copy(image, 's')
        changed = set()
        with self.storage.open_writer(image) as writer:
            for _ in range(200):
                page = self.random.randrange(256 * MIB // 16384)
                overlapping = self.random.randrange(8 * MIB // 4096)
                for block in (page * 4, overlapping):
                    writer.write(block * 4096, self.data(16384)).result()
                    changed |= set(range(block, block + 4))
            writer.create_snapshot('t')
        report = self._copy(image, 't', since='s')
        self.assertLessEqual(report.copied_bytes, 1.1 * len(changed) * 4096)
        self.assertLessEqual(report.compared_bytes, report.copied_bytes + report.zeroed_bytes)
