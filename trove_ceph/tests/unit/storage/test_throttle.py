# SPDX-License-Identifier: Apache-2.0
import threading
from unittest import mock

from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import image_types, throttle, transfer

MIB = units.Mi


class ThrottleTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 100.0
        self.waits = []
        self.cancel = mock.create_autospec(threading.Event(), instance=True)
        self.cancel.is_set.return_value = False
        self.cancel.wait.side_effect = self._wait

    def _wait(self, timeout):
        self.waits.append(timeout)
        self.now += timeout
        return False

    def _throttle(self, **options):
        return throttle.Throttle(cancel=self.cancel, clock=lambda: self.now, **options)

    def test_limits_the_rate(self):
        limits = self._throttle(bytes_per_sec=10 * MIB)
        for _ in range(6):
            limits.take(5 * MIB)
        # The last one waits for the time of the five before it.
        self.assertAlmostEqual(102.5, self.now)

    def test_idle_time_is_not_made_up_for(self):
        limits = self._throttle(bytes_per_sec=MIB)
        self.now += 3600
        for _ in range(3):
            limits.take(MIB)
        self.assertAlmostEqual(3702, self.now)

    def test_without_a_rate_nothing_waits(self):
        limits = self._throttle()
        limits.take(10**12)
        self.assertEqual([], self.waits)

    def test_cancel_ends_a_wait(self):
        limits = self._throttle(bytes_per_sec=1)
        limits.take(MIB)
        self.cancel.wait.side_effect = None
        self.cancel.wait.return_value = True
        self.assertRaises(exceptions.CanceledError, limits.take, 1)

    def test_refuses_less_than_two_chunks_in_flight(self):
        self.assertRaises(ValueError, throttle.Throttle, in_flight_bytes=throttle.CHUNK_BYTES)


class ChunksTest(base.BaseTestCase):
    def test_chunks_do_not_cross_objects(self):
        chunks = list(throttle.chunks([image_types.Extent(3 * MIB, 6 * MIB)]))
        self.assertEqual(
            [(3 * MIB, MIB), (4 * MIB, 4 * MIB), (8 * MIB, MIB)],
            [(chunk.offset, chunk.length) for chunk in chunks],
        )

    def test_small_chunks_have_a_minimum_cost(self):
        for length, least in ((512, 2**18), (MIB, MIB), (200 * MIB, throttle.CHUNK_BYTES)):
            self.assertEqual(least, throttle.cost(image_types.Extent(0, length, exists=False)))

    def test_zeros_have_larger_chunks(self):
        (chunk,) = throttle.chunks([image_types.Extent(1, 200 * MIB, exists=False)])
        self.assertEqual(image_types.Extent(1, 200 * MIB, exists=False), chunk)


class RunsTest(base.BaseTestCase):
    def test_zeros_are_detected_by_page(self):
        page, zeros = b'd' * 16384, bytes(16384)
        self.assertEqual([], list(transfer.runs(b'')))
        self.assertEqual([(0, 16384, False)], list(transfer.runs(page)))
        self.assertEqual([(0, 32768, True)], list(transfer.runs(2 * zeros)))
        mixed = zeros + page + bytes(16383) + b'd' + zeros + bytes(5)
        expected = [(0, 16384, True), (16384, 49152, False), (49152, 65541, True)]
        self.assertEqual(expected, list(transfer.runs(mixed)))
