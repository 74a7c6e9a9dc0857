# SPDX-License-Identifier: Apache-2.0
"""Storage on a real Ceph, with the key that tiers make for the storage service."""

import json
import subprocess
import sys
import time

from oslo_utils import units

from trove_ceph.storage import image_types
from trove_ceph.storage.ceph import backend, connection
from trove_ceph.tests.functional import base, ceph, storage_client

USER = 'client.trove-ceph-storage'
# Ceph ends the watch of a client that is dead 30 s after it died, on a busy machine.
WATCH_SEC = 40
FORGOTTEN_SEC = 600
# The monitors learn within seconds how full a pool is.
FULL_TIMEOUT_SEC = 300


def link(case, cluster, user=USER, **options):
    """A connection of its own, as another process would have, until the test ends."""
    made = connection.Connection(str(cluster.conf), user, **options)
    case.addCleanup(made.close)
    return made


def connect(case, cluster, user=USER, **options):
    """A client of its own, until the test ends."""
    return backend.CephBackend(link(case, cluster, user, **options))


class DeadClients:
    """A test that kills clients of its cluster, which Ceph remembers for a while."""

    gives_up_at = repeers_at = None

    def await_dead_clients(self, error):
        """Give Ceph time to forget them, and see to it that it does."""
        now = time.monotonic()
        if self.gives_up_at is None:
            self.gives_up_at, self.repeers_at = now + FORGOTTEN_SEC, now + WATCH_SEC
        self.assertLess(now, self.gives_up_at, error)
        if now > self.repeers_at:
            # Who is put on the blocklist at the very moment that its watch ends may be listed as a
            # watcher until the object is looked at anew. That lets all watches begin anew.
            self.cluster.repeer(self.pool, self.second_pool)
            self.repeers_at = time.monotonic() + WATCH_SEC
        time.sleep(1)


class CephStorageTestCase(DeadClients, base.FunctionalTestCase):
    """A test with three clients of the shared cluster."""

    pool, second_pool, data_pool = 'volumes-nvme', 'volumes-hdd', 'vault-data'

    def setUp(self):
        super().setUp()
        self.cluster = ceph.shared_cluster()
        self.storage, self.other, self.third = (connect(self, self.cluster) for _ in range(3))

    def start_writing(self, image):
        """Start another process that writes to an image all the time; return it once it does."""
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

    def fill(self, pool):
        """Have a pool take no more data, by a quota."""
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
            self.assertLess(time.monotonic(), deadline, 'not within the time')
            time.sleep(0.5)
