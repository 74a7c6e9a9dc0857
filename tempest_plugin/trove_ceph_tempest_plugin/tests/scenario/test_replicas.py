# SPDX-License-Identifier: Apache-2.0
"""Replicas of a database under load: created, promoted, re-provisioned, detached.

No acknowledged commit is lost, a replica never has a transaction that its source has not, and in
the end all tables have the same checksums at the same position.
"""

import time
from concurrent import futures

from tempest import config
from tempest.lib import decorators, exceptions

from trove_ceph import exceptions as trove_ceph_exceptions
from trove_ceph_bench import ledger as bench_ledger
from trove_ceph_bench import model
from trove_ceph_tempest_plugin import guests, load
from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import replication

CONF = config.CONF
COMMITS, COMMITS_TIMEOUT_SEC = replication.COMMITS, replication.COMMITS_TIMEOUT_SEC
#: The guest's clock, which counts whole seconds, against that of this host.
UPTIME_ERROR_SEC = 5
PROMOTE = {'promote_to_replica_source': {}}


class TestReplicas(replication.ReplicationTestCase):
    """Each test creates its replicas; the last one deletes the class's database."""

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a080')
    def test_creation_under_load(self):
        """The source keeps serving, and is not restarted; the replica has all its commits."""
        options = CONF.trove_ceph
        mixed = self.prepare_load('mixed-70-30')
        uptime_sec, began = self.database.uptime_sec(), time.monotonic()
        with (
            futures.ThreadPoolExecutor() as executor,
            self.start_ledger() as entries,
            load.Client(self.database.address) as client,
        ):
            entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
            running = executor.submit(mixed.run, options.sysbench_threads, options.sysbench_seconds)
            (replica_id,) = self.create_replicas()
            figures = client.figures()
            entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
            self.record('load', running.result())
        self.record('client', figures)
        self.assertEqual(0, figures['errors'])
        elapsed = time.monotonic() - began
        # A restart sets the uptime to zero.
        self.assertGreaterEqual(self.database.uptime_sec() - uptime_sec, elapsed - UPTIME_ERROR_SEC)
        self.assert_equal(replica_id)
        self.assertEqual([], entries.faults(self.database_of(replica_id)))
        collected = [self.traces_of(replica_id)]
        self._delete([replica_id])
        self.assert_vanishes(collected)
        self._assert_no_clone_is_left()

    def _assert_no_clone_is_left(self):
        def remaining():
            facts = self.describe_image(self.instance_id)
            return [*facts.snapshots, *facts.children] if facts else []

        self.assertEqual([], self.wait_for(remaining))

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a085')
    def test_creation_on_a_warm_guest(self):
        """A replica gets a guest that waited, and follows its source on it."""
        options = CONF.trove_ceph
        if not options.guests_command:
            raise self.skipException('[trove_ceph] guests_command is not set')
        pool = guests.pool(options.guests_command)
        waited = pool.await_ready(options.guest_timeout_sec)
        self.write_rows()

        (replica_id,) = self.create_replicas()

        self.assertTrue(
            pool.is_bound_to(replica_id, waited),
            f'replica {replica_id} has none of the guests that waited: {", ".join(waited)}',
        )
        self.write_rows()
        self.assert_equal(replica_id)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a081')
    def test_promotion_under_load(self):
        """What the old source acknowledged is on the new one, and it can be promoted back."""
        options = CONF.trove_ceph
        (replica_id,) = self.create_replicas()
        mixed = self.prepare_load('mixed-70-30')
        with futures.ThreadPoolExecutor() as executor, self.start_ledger() as entries:
            running = executor.submit(mixed.run, options.sysbench_threads, options.sysbench_seconds)
            entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
            elapsed = self._promote(replica_id, self.instance_id)
            # The old source accepts no commits.
            load_error = running.exception()
        self.record('client', entries.figures())
        self.record('promotion', {'seconds_to_healthy': elapsed, 'load': str(load_error)})
        if load_error and not isinstance(load_error, trove_ceph_exceptions.LoadFailedError):
            raise load_error
        self.assertEqual([], entries.faults(self.database_of(replica_id)))
        self.assert_equal(self.instance_id, source_id=replica_id)

        self._promote(self.instance_id, replica_id)

        self.write_rows()
        self.assert_equal(replica_id)

    def _promote(self, instance_id, old_source_id):
        """Promote a replica, and wait until its source follows it."""
        elapsed = self.act(PROMOTE, instance_id=instance_id)
        self.wait_for_source(old_source_id, instance_id)
        self.wait_for_instance_status(
            old_source_id, expected_op_status=['HEALTHY'], timeout=self.timeout_sec
        )
        self.assertIsNone(self.source_of(instance_id))
        return elapsed

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a082')
    def test_reads_of_replicas(self):
        """Replicas of one request are clones of one snapshot; all serve reads at the same time."""
        options = CONF.trove_ceph
        self.prepare_load('read')
        found = self.create_replicas(count=options.read_replicas)
        facts = [one for one in map(self.describe_image, found) if one]
        for one in facts:
            self.assertIsNotNone(one.parent)
            self.assertEqual(facts[0].parent, one.parent)
        dataset = model.Dataset('scenario', options.sysbench_tables, options.sysbench_rows)
        loads = [load.Load(self.database_of(one).address, 'read', dataset) for one in found]
        for number in range(1, len(loads) + 1):
            with futures.ThreadPoolExecutor(number) as executor:
                running = [
                    executor.submit(one.run, options.sysbench_threads, options.sysbench_seconds)
                    for one in loads[:number]
                ]
                figures = [one.result() for one in running]
            self.record(f'read on {number}', {'tps': sum(one['tps'] for one in figures)})
            for one in figures:
                self.assertGreater(one['tps'], 0)
                self.assertEqual(0, one['errors'])
        for one in found:
            self.assert_equal(one)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a083')
    def test_reprovisioning_under_load(self):
        """A replica gets a fresh clone, and keeps its id, server, addresses and accounts."""
        options = CONF.trove_ceph
        (replica_id,) = self.create_replicas()
        before, collected = self._facts(replica_id), self.traces_of(replica_id)
        # The account and the address of clients; it raises if they have changed.
        replica = self.database_of(replica_id)
        mixed = self.prepare_load('mixed-70-30')
        with (
            futures.ThreadPoolExecutor() as executor,
            self.start_ledger() as entries,
            bench_ledger.Reader(replica.answers) as reader,
        ):
            running = executor.submit(mixed.run, options.sysbench_threads, options.sysbench_seconds)
            entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
            requested = self.replicas.reprovision(replica_id, self.id())
            self.replicas.wait_until_reprovisioned(requested)
            entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
            self.record('load', running.result())
        self.record('client', entries.figures())
        self.record('replica', {'out_of_service_sec': round(reader.gap_sec, 1)})
        after = self._facts(replica_id)
        self.assertNotEqual(before.pop('volume'), after.pop('volume'))
        self.assertEqual(before, after)
        self.assert_equal(replica_id)
        self.assertEqual([], entries.faults(replica))
        self.assertEqual([], self.wait_for(collected.remaining_volume))

    def _facts(self, instance_id):
        """Return what a re-provisioning must keep, and the volume, which it replaces."""
        instance = self.admin_client.get_resource('instances', instance_id)['instance']
        return {
            'volume': instance['volume_id'],
            'server': instance['server_id'],
            'name': instance['name'],
            'addresses': sorted((one['type'], one['address']) for one in instance['addresses']),
        }

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a086')
    def test_chain_is_refused(self):
        """The request fails at once with the reason, and creates nothing."""
        (replica_id,) = self.create_replicas()
        before = self._instances()
        # Trove answers 401 to what it forbids.
        error = self.assertRaises(
            exceptions.Unauthorized, self.create_instance, replica_of=replica_id
        )
        self.assertIn(f'Cannot create a replica of a replica {replica_id}', str(error))
        self.assertEqual(before, self._instances())
        self.assertEqual(self.instance_id, self.source_of(replica_id))

    def _instances(self):
        return sorted(one['id'] for one in self.client.list_resources('instances')['instances'])

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a084')
    def test_survives_its_source(self):
        """A detached replica is a database of its own; nothing is left of its deleted source.

        As long as the source has a replica, its deletion is refused, and changes nothing.
        """
        rows = self.write_rows()
        (replica_id,) = self.create_replicas()
        error = self.assertRaises(
            exceptions.Forbidden, self.client.delete_resource, 'instances', self.instance_id
        )
        self.assertIn('Detach replicas before deleting replica source', str(error))
        self.wait_for_instance_status(self.instance_id, expected_op_status=['HEALTHY'])
        self.client.put_resource(f'instances/{replica_id}', {'instance': {'replica_of': None}})
        self.wait_for_source(replica_id, None)
        self.wait_for_instance_status(replica_id, expected_op_status=['HEALTHY'])
        collected = [self.traces_of(self.instance_id)]

        self.wait_for_instance_status(self.instance_id, need_delete=True, expected_status='DELETED')

        # The image of the source stays in the trash until the clone is flattened.
        self.assert_vanishes(collected)
        replica = self.database_of(replica_id)
        self.assertEqual(rows, self.rows(replica))
        self.database = replica
        self.assertEqual(len(rows) + base.ROWS, len(self.write_rows()))
        self.assertRaises(exceptions.NotFound, self.replicas.show, replica_id)


def load_tests(loader, tests, pattern):
    return base.on_volume_types(loader, everywhere=None, first=TestReplicas)
