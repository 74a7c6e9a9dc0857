# SPDX-License-Identifier: Apache-2.0
"""The bytes in flight of a transfer, and its resumption after a kill."""

import concurrent.futures
import threading

import fixtures
from oslo_utils import units
from oslotest import base

from trove_ceph.storage import copying, image_types, throttle, transfer, verify
from trove_ceph.storage.fake import backend, cluster
from trove_ceph.tests import interruption

MIB = units.Mi


class CopyTestCase(base.BaseTestCase):
    """With an image of ``blocks`` full blocks of 4 MiB."""

    blocks = 160

    def setUp(self):
        super().setUp()
        self.cluster = cluster.Cluster({'volumes': 2048 * MIB, 'vault': 2048 * MIB})
        self.storage = backend.FakeBackend(self.cluster)
        self.vault = image_types.ImageRef('vault', 'copy')
        self.image = image_types.ImageRef('volumes', 'image')
        self.storage.create_image(self.image, self.blocks * 4 * MIB, image_types.ImageOptions())
        with self.storage.open_writer(self.image) as writer:
            for number in range(self.blocks):
                writer.write(number * 4 * MIB, bytes([number + 1]) * 4 * MIB)
            writer.create_snapshot('s')

    def copy(self, target=None, **options):
        snapshot = self.image.snapshot('s')
        return copying.copy(self.storage, snapshot, target or self.storage, self.vault, **options)


class InFlightTest(CopyTestCase):
    def test_limits_the_bytes_in_flight(self):
        in_flight, maximum = 0, 0
        lock = threading.Lock()
        threads = concurrent.futures.ThreadPoolExecutor(4)
        self.addCleanup(threads.shutdown)

        class Reader(backend.FakeReader):
            def read(self, offset, length):
                nonlocal in_flight, maximum
                with lock:
                    in_flight += length
                    maximum = max(maximum, in_flight)
                return threads.submit(self._read, offset, length)

        class Writer(backend.FakeWriter):
            def write(self, offset, data):
                def work():
                    nonlocal in_flight
                    self._image.write(offset, data)
                    with lock:
                        in_flight -= len(data)

                return threads.submit(work)

        with self.storage.open_reader(self.image.snapshot('s')) as opened:
            reader = Reader(opened._image, opened._state)
        self.storage.create_image(self.vault, 640 * MIB, image_types.ImageOptions())
        checkpoints = []
        with Writer(self.storage, self.cluster.get(self.vault)) as writer:
            limits = throttle.Throttle(in_flight_bytes=16 * MIB)
            data_transfer = transfer.Transfer(reader, writer, None, limits, checkpoints.append)
            end = data_transfer.run(transfer.Checkpoint())
        self.assertEqual(0, in_flight)
        self.assertTrue(8 * MIB <= maximum <= 16 * MIB, maximum)
        # A checkpoint is saved each time that so much is on disk, while more is in flight.
        positions = [checkpoint.position_bytes for checkpoint in checkpoints]
        self.assertEqual(640 * MIB, positions.pop())
        self.assertEqual(end, checkpoints[-1])
        for number, position in enumerate(positions, start=1):
            self.assertTrue(
                0 <= position - number * transfer.CHECKPOINT_BYTES <= 32 * MIB, positions
            )
        self.assertEqual(2, len(positions))
        with self.storage.open_reader(self.image.snapshot('s')) as source:
            data = source.read(0, checkpoints[0].position_bytes).result()
            self.assertEqual(verify.checksum(data), checkpoints[0].checksum)


class KilledBackend(backend.FakeBackend):
    """Its writers are killed at a request; the next writer gets their lock."""

    def __init__(self, cluster, at_request):
        super().__init__(cluster)
        self.left = at_request

    def open_writer(self, image):
        return KilledWriter(self, self.cluster.get(image))

    def count(self):
        if self.left == 0:
            raise interruption.Kill
        self.left -= 1


class KilledWriter(backend.FakeWriter):
    def _do(self, request):
        self._owner.count()
        return super()._do(request)


class KilledTest(CopyTestCase):
    """With a quarter of the data, and four times as many checkpoints."""

    blocks = 40

    def setUp(self):
        super().setUp()
        checkpoint_bytes = transfer.CHECKPOINT_BYTES // 4
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.storage.transfer.CHECKPOINT_BYTES', checkpoint_bytes)
        )

    def test_killed_at_any_request(self):
        """After any kill the next run completes the copy, from the checkpoint on."""
        at_request = 0
        while True:
            target = KilledBackend(self.cluster, at_request)
            try:
                self.copy(target)
            except interruption.Kill:
                self._check_resumed()
                # Most requests are equal writes.
                is_alike = 8 <= at_request <= self.blocks
                at_request += 6 if is_alike else 1
            else:
                break
        self.assertGreater(at_request, self.blocks)

    def _check_resumed(self):
        complete = copying.complete_copies(self.storage.describe(self.vault))
        report = self.copy()
        moved = self.blocks * 4 * MIB - report.resumed_at
        self.assertEqual(0 if complete else moved, report.copied_bytes)
        # What the killed run has copied counts, too.
        total = self.blocks * 4 * MIB
        self.assertEqual((total, total), (report.total_bytes, report.used_bytes))
        facts = self.storage.describe(self.vault)
        self.assertEqual(['s'], list(copying.complete_copies(facts)))
        self.assertEqual(['trove_ceph.copied.s'], list(facts.metadata))
        with self.storage.open_reader(self.vault.snapshot('s')) as reader:
            for number in range(0, self.blocks, 13):
                data = reader.read(number * 4 * MIB, 4 * MIB).result()
                self.assertEqual(bytes([number + 1]) * 4 * MIB, data)
        self.storage.remove_snapshot(self.vault.snapshot('s'))
        self.storage.remove(self.vault)

    def test_killed_at_the_very_end_then_an_increment(self):
        requests = KilledBackend(self.cluster, 10**6)
        self.copy(requests)
        self.storage.remove_snapshot(self.vault.snapshot('s'))
        self.storage.remove(self.vault)
        killed = KilledBackend(self.cluster, 10**6 - requests.left - 1)
        self.assertRaises(interruption.Kill, self.copy, killed)
        self.storage.create_snapshot(self.image.snapshot('t'))
        copying.copy(self.storage, self.image.snapshot('t'), self.storage, self.vault, since='s')
        facts = self.storage.describe(self.vault)
        self.assertEqual(['s', 't'], list(copying.complete_copies(facts)))
