# SPDX-License-Identifier: Apache-2.0
"""Databases on the servers of warm guests: created, restored, resized, and operated as any."""

from concurrent import futures

from tempest import config
from tempest.lib import decorators

from trove_ceph import exceptions
from trove_ceph_tempest_plugin import guests, load
from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import (
    accounts,
    backup,
    configuration,
    deletion,
    rebuild,
    resize,
    restart,
)

CONF = config.CONF


class WarmGuestScenario(backup.BackupTestCase, rebuild.RebuildTestCase):
    """The database of the class is created when a warm guest waits for it."""

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not CONF.trove_ceph.guests_command:
            raise cls.skipException('[trove_ceph] guests_command is not set')

    @classmethod
    def resource_setup(cls):
        cls.pool = guests.pool(CONF.trove_ceph.guests_command)
        # Where hot guests are configured, a creation prefers them.
        cls.waited = cls.pool.await_ready(CONF.trove_ceph.guest_timeout_sec, 'ready', 'hot')
        super().resource_setup()

    @classmethod
    def await_guest(cls):
        """Wait until a guest is ready, and return the ids of all that are."""
        return cls.pool.await_ready(CONF.trove_ceph.guest_timeout_sec)

    def assert_warm(self, instance_id, waited):
        """Assert that an instance has one of the guests that waited."""
        self.assertTrue(
            self.pool.is_bound_to(instance_id, waited),
            f'instance {instance_id} has none of the guests that waited: {", ".join(waited)}',
        )

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a070')
    def test_created_warm(self):
        """The database has the guest that waited, and its server tells which database it is."""
        self.record('created', {'seconds_to_healthy': self.created_sec})
        self.assert_warm(self.instance_id, self.waited)
        instance, server = self.server()
        self.assertEqual(instance['name'], server['name'])
        self.assertEqual(self.instance_id, server['metadata']['trove_instance_id'])

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a071')
    def test_restored_warm(self):
        """A restored database has a guest that waited, and the rows of the backup."""
        self.require_backups()
        rows = self.write_rows()
        stored = self.back_up('to-restore')
        self.write_rows()
        waited = self.await_guest()

        # Another test may have grown the volume.
        size_gib = self.server()[0]['volume']['size']
        restored = self.create_instance(
            backup_id=stored['id'], create_user=False, volume={'size': size_gib}
        )
        self.wait_for_instance_status(
            restored['id'],
            expected_op_status=['HEALTHY'],
            timeout=CONF.database.database_restore_timeout,
        )

        self.assert_warm(restored['id'], waited)
        database = self.database_of(restored['id'])
        database.wait_reachable(CONF.trove_ceph.connect_timeout_sec)
        self.assertEqual(rows, self.rows(database))
        self.wait_for_instance_status(restored['id'], need_delete=True, expected_status='DELETED')
        self.backups.delete(stored['id'])

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a072')
    def test_resized_warm(self):
        """Under load the database moves to a guest of its new flavor, with rows and addresses."""
        options = CONF.trove_ceph
        flavor = options.flavor_id or CONF.database.flavor_id
        if self.server()[0]['flavor']['id'] == flavor:
            # Only this flavor need have a pool, so the way to the other one may be Trove's own.
            larger = options.resize_flavor_id or CONF.database.resize_flavor_id
            self.act({'resize': {'flavorRef': larger}})
            self.database.wait_reachable(options.connect_timeout_sec)
        waited = self.await_guest()
        rows, addresses, (_, before) = self.write_rows(), self.addresses(), self.server()
        mixed = self.prepare_load('mixed-70-30')
        with (
            futures.ThreadPoolExecutor() as executor,
            load.Client(self.database.address) as client,
        ):
            running = executor.submit(mixed.run, options.sysbench_threads, options.sysbench_seconds)
            elapsed = self.act({'resize': {'flavorRef': flavor}})
            self.database.wait_reachable(options.connect_timeout_sec)
            figures = client.figures()
            # Its connections break with the old server.
            load_error = running.exception()
        self.record('resize', {'seconds_to_healthy': elapsed})
        self.record('client', figures)
        if load_error and not isinstance(load_error, exceptions.LoadFailedError):
            raise load_error
        self.assert_warm(self.instance_id, waited)
        instance, after = self.server()
        self.assertEqual(flavor, instance['flavor']['id'])
        self.assertNotEqual(before['id'], after['id'])
        self.assertEqual(addresses, self.addresses())
        self.assertEqual(rows, self.rows())

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a073')
    def test_rebuilt_warm(self):
        """For the image of its version the database moves to a guest, which has that image."""
        options = CONF.trove_ceph
        flavor = options.flavor_id or CONF.database.flavor_id
        if self.server()[0]['flavor']['id'] != flavor:
            self.act({'resize': {'flavorRef': flavor}})
            self.database.wait_reachable(options.connect_timeout_sec)
        waited = self.await_guest()
        old = self.server()[1]['id']
        self.rebuild(self.image_of_version())
        self.assert_warm(self.instance_id, waited)
        self.assertNotEqual(old, self.server()[1]['id'])


class TestWarmGuests(
    WarmGuestScenario,
    accounts.AccountScenario,
    configuration.ConfigurationScenario,
    resize.ResizeScenario,
    restart.RestartScenario,
    deletion.DeletionScenario,
):
    """The operations of a tenant work on such a database as on any."""


def load_tests(loader, tests, pattern):
    return base.on_volume_types(loader, everywhere=None, first=TestWarmGuests)
