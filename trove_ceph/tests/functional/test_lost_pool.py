# SPDX-License-Identifier: Apache-2.0
"""A pool of one copy loses its OSD for good.

The commands are those of doc/source/admin/one-copy-pools.rst.
"""

import functools
import shutil
import subprocess
import time

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.tests.contract import storage as contract
from trove_ceph.tests.functional import (
    base,
    ceph,
    storage,
    test_storage_service,
    workspace,
)

MIB = units.Mi
SOURCES, REPLICAS = 'sources', 'replicas'
# A client with a shorter limit never finds a restarted OSD.
REQUEST_SEC = 11
TIMEOUT_SEC = 300
# The OSD that fails, and its replacement.
FAILING, SPARE = 2, 3
CRUSH_WEIGHT = 1


@functools.cache
def cluster():
    """Return a cluster to break, created at its first use; it ends with the workspace."""
    created = ceph.Cluster(workspace.shared() / 'one-copy', {'nvme': 2, 'hdd': 2}, osd_gib=3)
    created.create()
    created.start()
    tiers = {
        SOURCES: ceph.tier('data', 'nvme', SOURCES, 2, 8),
        REPLICAS: ceph.tier('replica', 'hdd', REPLICAS, 1, 8),
    }
    created.apply({'tiers': tiers, 'users': {storage.USER: {'role': 'storage'}}})
    return created


@base.long
class LostPoolTest(contract.StorageContract, storage.CephStorageTestCase):
    pool, second_pool = SOURCES, REPLICAS

    def setUp(self):
        super().setUp()
        self.source = self.make_written()
        self.ceph('osd', 'crush', 'reweight', f'osd.{SPARE}', 0)
        self.wait_for(lambda: set(self.states().values()) == {'active+clean'})
        self.replicas = self.make_replicas('r1', 'r2', 'r3')
        for replica in self.replicas:
            self.write(replica, 0, self.data(5 * MIB))

    def find_cluster(self):
        return cluster()

    def make_replicas(self, *names):
        snapshot = self.source.snapshot('replicas')
        self.storage.create_snapshot(snapshot)
        replicas = [self.ref(name, REPLICAS) for name in names]
        for replica in replicas:
            self.storage.clone(snapshot, replica, image_types.ImageOptions())
        self.storage.remove_snapshot(snapshot)
        return replicas

    def ceph(self, *arguments):
        """Run a command of the operator."""
        command = ['ceph', '--conf', self.cluster.conf, *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SEC, check=False
        )
        self.assertEqual(0, done.returncode, f'{arguments}: {done.stderr}')

    def states(self):
        """Return the state of each placement group of the replicas' pool."""
        listed = self.cluster.mon_command('pg ls-by-pool', poolstr=REPLICAS)['pg_stats']
        return {one['pgid']: one['state'] for one in listed}

    def osds_up(self):
        return {one['osd'] for one in self.cluster.mon_command('osd dump')['osds'] if one['up']}

    def wait_for(self, condition):
        deadline = time.monotonic() + TIMEOUT_SEC
        while not condition():
            self.assertLess(time.monotonic(), deadline, self.states())
            time.sleep(0.2)

    def destroy_osd(self):
        """Destroy the disk under all placement groups of the replicas' pool."""
        ceph.kill_all([self.cluster.pids()[f'osd.{FAILING}']])
        shutil.rmtree(self.cluster.root / 'data' / f'osd.{FAILING}')
        self.wait_for(lambda: FAILING not in self.osds_up())

    def repair(self):
        """Do what the operator does, with a new disk."""
        self.ceph('osd', 'purge', f'osd.{FAILING}', '--yes-i-really-mean-it')
        self.ceph('osd', 'crush', 'reweight', f'osd.{SPARE}', CRUSH_WEIGHT)
        for group in self.states():
            self.ceph('osd', 'force-create-pg', group, '--yes-i-really-mean-it')
        self.wait_for(lambda: set(self.states().values()) == {'active+clean'})

    def test_only_the_replicas_are_lost(self):
        expected = self.content(self.source.snapshot('s'))
        served = self.serve()
        self.destroy_osd()
        self.check_that_requests_to_the_lost_pool_fail()
        self.check_that_the_source_is_served(self.storage)
        self.check_the_service(served)
        is_same = self.content(self.source.snapshot('s')) == expected
        self.assertTrue(is_same, 'the source has other data')

        self.repair()
        # A client for which the pool was never silent.
        self.storage = self.other
        self.assertEqual((), self.storage.describe(self.source).children)
        self.assertEqual([], self.storage.list_images(REPLICAS))
        self.assertEqual([], self.storage.list_trash(REPLICAS))
        for replica in self.replicas:
            self.assertRaises(exceptions.NotFoundError, self.storage.trash, replica)
            self.assertRaises(exceptions.NotFoundError, self.storage.remove, replica)
        # Ceph has kept the snapshot of the lost clones until the next is removed.
        self.assertEqual([False, True], self._removed())
        (replica,) = self.make_replicas('r1')
        self.assertEqual([False, True], self._removed())
        is_same = self.content_now(self.source) == self.content_now(replica)
        self.assertTrue(is_same, 'the new clone has other data')
        self.storage.remove(replica)
        self.assertEqual([False], self._removed())

    def _removed(self):
        return [one.removed for one in self.storage.describe(self.source).snapshots]

    def serve(self):
        config = self.directory / 'service.conf'
        config.write_text(
            f'[trove_ceph_storage]\nceph_conf = {self.cluster.conf}\npools = {SOURCES},{REPLICAS}\n'
        )
        served = test_storage_service.ServerProcess('one', config)
        self.addCleanup(served.close)
        served.request('list_jobs')
        return served

    def check_that_requests_to_the_lost_pool_fail(self):
        client = storage.connect(self, self.cluster, operation_timeout_sec=REQUEST_SEC)
        first, second, _ = self.replicas
        for verb, arguments in (
            ('describe', (first,)),
            ('list_images', (REPLICAS,)),
            ('list_trash', (REPLICAS,)),
            ('trash', (first,)),
            ('remove', (second,)),
            ('clone', (self.source.snapshot('s'), self.ref('r4', REPLICAS), options())),
        ):
            error = self.assertRaises(
                exceptions.CephUnreachableError, getattr(client, verb), *arguments
            )
            self.assert_message(error, REPLICAS)

    def check_that_the_source_is_served(self, client):
        facts = client.describe(self.source)
        found = [(one.image.pool, one.image.name, one.snapshot) for one in facts.children]
        (removed,) = [one for one in facts.snapshots if one.removed]
        self.assertEqual([(REPLICAS, '', removed.name)] * 3, found)
        self.assertIn(self.source, [one.image for one in client.describe_pool(SOURCES)])
        snapshot, clone = self.source.snapshot('t'), self.ref('copy')
        client.create_snapshot(snapshot)
        client.clone(snapshot, clone, options())
        client.remove_snapshot(snapshot)
        self.write(clone, 0, self.data(MIB), client)
        client.remove(clone)
        # Even a source that is deleted meanwhile waits in the trash for its replicas.
        trashed = client.trash(self.source)
        self.assertEqual(3, len(trashed.children))
        error = self.assertRaises(exceptions.BusyError, client.purge, SOURCES, trashed.image_id)
        self.assert_message(error, REPLICAS, 'does not answer')
        client.restore(SOURCES, trashed.image_id, self.source.name)

    def check_the_service(self, served):
        """Its requests to other pools are not held up by those to the lost one."""
        for replica in self.replicas:
            served.send('describe', image=replica, with_usage=True)
            served.send('trash', image=replica)
        snapshot = self.source.snapshot('u')
        served.request('create_snapshot', snapshot=snapshot)
        served.request('remove_snapshot', snapshot=snapshot)


def options():
    return image_types.ImageOptions()
