# SPDX-License-Identifier: Apache-2.0
import troveclient.exceptions
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.bench.targets import fake_cloud
from trove_ceph_bench.targets import cloud, database, instance

UNAVAILABLE = exceptions.TargetUnavailableError
STALE = 'trove_ceph_bench_0badc0de'


class InstanceTargetTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.trove = fake_cloud.FakeTrove([fake_cloud.instance()])
        self.connection = fake_cloud.FakeConnection()
        self.addresses = []
        self.no_sql = None

    def find_reachable_address(self, addresses, timeout_sec):
        self.addresses = addresses
        if self.no_sql:
            raise self.no_sql
        return addresses[0]

    def target(self, **spec):
        return instance.InstanceTarget(
            't',
            {'instance': 'shop', **spec},
            lambda: cloud.Cloud(self.connection, self.trove, sleep=lambda seconds: None),
            self.find_reachable_address,
        )

    def ours(self):
        databases, users = self.trove.databases.names, self.trove.users.names
        return [name for name in databases if name.startswith(database.PREFIX)] + [
            name for name in users if name.startswith(database.USER_PREFIX)
        ]

    def delete_instance(self):
        self.trove.listed.clear()

    def test_schema_and_user_exist_only_while_entered(self):
        with self.target() as target:
            address = target.address
            self.assertEqual([address.database, address.user], self.ours())
            self.assertEqual('192.0.2.4', address.host)
            self.assertEqual(database.user_of(address.database), address.user)
            self.assertIsNone(target.image)
            self.assertIsNone(target.cpu_sec())
            self.assertFalse(target.restart())

        self.assertEqual([], self.ours())

    def test_configured_address_replaces_that_of_the_instance(self):
        for given, expected in (
            ('db.example', ('db.example', 3306)),
            ('db.example:3307', ('db.example', 3307)),
            ('2001:db8::1', ('2001:db8::1', 3306)),
        ):
            with self.target(address=given) as target:
                self.assertEqual(expected, (target.address.host, target.address.port))
            self.assertEqual(1, len(self.addresses))

    def test_removes_leftovers_of_a_killed_run_first(self):
        self.trove.databases.names.append(STALE)
        self.trove.users.names.append(database.user_of(STALE))

        with self.target():
            self.assertNotIn(STALE, self.ours())
            self.assertEqual(2, len(self.ours()))

    def test_removes_the_schema_after_a_timeout(self):
        self.no_sql = UNAVAILABLE('no SQL within 180 s')

        error = self.assertRaises(UNAVAILABLE, self.target().__enter__)

        self.assertIn('no SQL', str(error))
        self.assertEqual([], self.ours())

    def test_removes_the_schema_after_an_interruption(self):
        def interrupted():
            with self.target():
                raise KeyboardInterrupt

        self.assertRaises(KeyboardInterrupt, interrupted)

        self.assertEqual([], self.ours())

    def test_refuses_an_inactive_instance(self):
        self.trove.listed[0].status = 'BUILD'

        error = self.assertRaises(UNAVAILABLE, self.target().__enter__)

        self.assertEqual('instance shop is BUILD, expected ACTIVE', str(error))
        self.assertEqual([], self.trove.created)

    def test_reports_an_instance_deleted_during_the_run(self):
        def measured():
            with self.target():
                self.delete_instance()
                raise exceptions.LoadFailedError('FATAL: lost connection')

        error = self.assertRaises(UNAVAILABLE, measured)

        self.assertEqual('instance shop was deleted during the measurement', str(error))
        self.assertTrue(error.__suppress_context__)

    def test_deleted_instance_does_not_hide_an_interruption(self):
        def measured():
            with self.target():
                self.delete_instance()
                raise KeyboardInterrupt

        self.assertRaises(KeyboardInterrupt, measured)

    def test_error_names_the_schema_that_cannot_be_removed(self):
        target = self.target().__enter__()
        self.trove.refuses = troveclient.exceptions.ServiceUnavailable('later')

        error = self.assertRaises(UNAVAILABLE, target.__exit__, None, None, None)

        self.assertIn(f'still has {target.address.database}', str(error))

    def test_failed_removal_does_not_hide_the_first_error(self):
        def measured():
            with self.target():
                self.trove.refuses = troveclient.exceptions.ServiceUnavailable('later')
                raise exceptions.LoadFailedError('sysbench failed')

        self.assertRaises(exceptions.LoadFailedError, measured)

    def test_administrator_gets_the_image_of_the_volume(self):
        self.trove.listed[0].volume_id = 'v1'
        self.connection.is_admin = True

        with self.target(ceph={'conf': '/c', 'pool': 'volumes-nvme'}) as target:
            self.assertEqual(
                ('volumes-nvme', 'volume-v1', '/c'),
                (target.image.pool, target.image.name, target.image.conf),
            )

    def test_image_named_by_the_plan(self):
        with self.target(image='pool/data') as target:
            self.assertEqual(('pool', 'data'), (target.image.pool, target.image.name))
