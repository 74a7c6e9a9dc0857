# SPDX-License-Identifier: Apache-2.0
"""Storage on a real Ceph, with the key that the tiers create for the storage service."""

import json
import subprocess
import sys
import time

import rbd
from oslo_utils import units

from trove_ceph.storage import image_types
from trove_ceph.storage.ceph import backend, connection
from trove_ceph.tests.functional import base, ceph, storage_client

USER = 'client.trove-ceph-storage'
# The watch of a dead client expires after 30 s; a busy machine may be later.
WATCH_SEC = 40
EXPIRY_TIMEOUT_SEC = 600
# The monitors learn within seconds how full a pool is.
FULL_TIMEOUT_SEC = 300


def link(case, cluster, user=USER, **options):
    """Return a new connection, like that of another process, which is closed after the test."""
    result = connection.Connection(str(cluster.conf), user, **options)
    case.addCleanup(result.close)
    return result


def connect(case, cluster, user=USER, **options):
    """Return a new client, which is closed after the test."""
    return backend.CephBackend(link(case, cluster, user, **options))


class DeadClients:
    """A test that kills clients of its cluster, whose watches Ceph keeps for a while."""

    fails_at = repeers_at = None

    def await_dead_clients(self, error):
        """Wait for their watches to expire, and repeer the pools if that takes too long."""
        now = time.monotonic()
        if self.fails_at is None:
            self.fails_at, self.repeers_at = now + EXPIRY_TIMEOUT_SEC, now + WATCH_SEC
        self.assertLess(now, self.fails_at, error)
        if now > self.repeers_at:
            # A client that is blocklisted at the very moment when its watch expires may stay listed
            # as a watcher. Repeering makes all clients watch again.
            self.cluster.repeer(self.pool, self.second_pool)
            self.repeers_at = time.monotonic() + WATCH_SEC
        time.sleep(1)

    def _remove_image(self, name):
        """Remove an image as soon as the watches of its dead clients have expired.

        For a test case after this class whose own method refuses until then.
        """
        while True:
            try:
                return super()._remove_image(name)
            except rbd.ImageBusy as error:
                self.await_dead_clients(error)


class CephStorageTestCase(DeadClients, base.FunctionalTestCase):
    """A test with three clients of a cluster, by default of the shared one."""

    pool, second_pool, data_pool = 'volumes-nvme', 'volumes-hdd', 'vault-data'

    def setUp(self):
        super().setUp()
        self.cluster = self.find_cluster()
        # Closed only after a contract has removed its images: a closed client would connect again.
        self.storage, self.other, self.third = (connect(self, self.cluster) for _ in range(3))

    def find_cluster(self):
        return ceph.shared_cluster()

    def start_writing(self, image):
        """Start a process that writes to an image continuously; return it after its first write."""
        arguments = ('write', str(self.cluster.conf), USER, image.pool, image.name)
        process = subprocess.Popen(
            [sys.executable, storage_client.__file__, *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual('writing\n', process.stdout.readline())
        return process

    def await_watch(self, image, address, is_watching):
        """Wait until a client watches an image, or until its watch has expired."""
        deadline = time.monotonic() + EXPIRY_TIMEOUT_SEC
        while (address in self.storage.find_clients(image).watchers) is not is_watching:
            self.assertLess(time.monotonic(), deadline, f'{address}, {is_watching=}')
            time.sleep(0.5)

    def fill(self, pool):
        """Make a pool full by a quota."""
        self.addCleanup(self.empty, pool)
        image = image_types.ImageRef(self.pool, f'{self.prefix}-filling')
        self.storage.create_image(image, 8 * units.Mi, image_types.ImageOptions(data_pool=pool))
        with self.storage.open_writer(image) as writer:
            writer.write(0, b'f' * 4 * units.Mi).result()
        self._set_quota(pool, units.Mi)
        self._await(lambda: self.storage.usage(pool).full)

    def empty(self, pool):
        self._set_quota(pool, 0)
        self._await(lambda: not self.storage.usage(pool).full)

    def _set_quota(self, pool, max_bytes):
        with self.cluster.connection() as handle:
            request = {'prefix': 'osd pool set-quota', 'pool': pool, 'field': 'max_bytes'}
            request['val'] = str(max_bytes)
            code, _, message = handle.mon_command(json.dumps(request), b'')
        self.assertEqual(0, code, message)

    def _await(self, condition):
        deadline = time.monotonic() + FULL_TIMEOUT_SEC
        while not condition():
            self.assertLess(time.monotonic(), deadline, f'not within {FULL_TIMEOUT_SEC} s')
            time.sleep(0.5)
