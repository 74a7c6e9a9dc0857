# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.bench.targets import fake_mysql
from trove_ceph_bench import model
from trove_ceph_bench.targets import database


def address(**more):
    return model.Address(**{'user': 'u', 'password': 'right', 'database': 'd', **more})


class NamesTest(base.BaseTestCase):
    def test_user_and_schema_names_map_to_each_other(self):
        schema = database.new_name()

        user = database.user_of(schema)

        # Trove's limit.
        self.assertLessEqual(len(user), 16)
        self.assertEqual(schema, database.schema_of(user))
        self.assertNotEqual(schema, database.new_name())


class ServerTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.mysql = fake_mysql.FakeMysql()

    def server(self, **more):
        return database.Server(address(**more), self.mysql.connect)

    def test_creates_and_removes_a_schema(self):
        name = database.new_name()
        self.server().create_schema(name)
        self.assertEqual({'mysql', 'shop', name}, self.mysql.schemas)

        self.server().ensure_no_schema(name)
        self.server().ensure_no_schema(name)

        self.assertEqual({'mysql', 'shop'}, self.mysql.schemas)

    def test_leftovers_are_schemas_of_other_processes(self):
        self.mysql.schemas |= {database.new_name(), 'trove_ceph_bench_0badc0de'}

        self.assertEqual(['trove_ceph_bench_0badc0de'], self.server().list_leftovers())

    def test_socket_takes_precedence_over_host(self):
        self.server(unix_socket='/s').check()
        self.server(host='h', port=3307).check()

        self.assertEqual(['/s', ('h', 3307)], self.mysql.endpoints)

    def test_wrong_password_error_does_not_contain_the_password(self):
        server = self.server(password='secret')

        error = self.assertRaises(exceptions.TargetUnavailableError, server.check)

        self.assertIn('refuses the user u; check the password', str(error))
        self.assertNotIn('secret', str(error))

    def test_error_names_the_missing_privilege(self):
        self.mysql.may_change = False

        error = self.assertRaises(
            exceptions.TargetUnavailableError, self.server().create_schema, database.new_name()
        )

        self.assertIn(r"GRANT ALL ON `trove\_ceph\_bench\_%`.* TO 'u'@", str(error))

    def test_disclosure_has_the_durability_settings(self):
        found = database.disclose(self.server())

        self.assertEqual('9.7.4', found['version'])
        self.assertEqual('1', found['durability']['sync_binlog'])
        self.assertNotIn('gtid_mode', found['durability'])
        self.assertEqual(fake_mysql.VARIABLES, found['variables'])
        self.assertTrue(found['durable'])

    def test_durable_only_if_each_commit_is_flushed(self):
        safe = {'innodb_flush_log_at_trx_commit': '1', 'sync_binlog': '1', 'log_bin': 'ON'}

        self.assertTrue(database.is_durable(safe))
        self.assertTrue(database.is_durable(safe | {'log_bin': 'OFF', 'sync_binlog': '0'}))
        self.assertFalse(database.is_durable(safe | {'sync_binlog': '1000'}))
        self.assertFalse(database.is_durable(safe | {'innodb_flush_log_at_trx_commit': '2'}))


class FindReachableAddressTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 0
        self.mysql = fake_mysql.FakeMysql()

    def sleep(self, seconds):
        self.now += seconds

    def find(self, addresses, connect=None):
        return database.find_reachable_address(
            addresses, 30, connect or self.mysql.connect, lambda: self.now, self.sleep
        )

    def test_returns_the_first_address_that_answers(self):
        def connect(host, **options):
            if host == 'public':
                raise OSError('timed out')
            return self.mysql.connect(host=host, **options)

        found = self.find([address(host='public'), address(host='private')], connect)

        self.assertEqual(('private', 0), (found.host, self.now))

    def test_waits_until_the_user_exists(self):
        def connect(**options):
            self.mysql.password = 'right' if self.now > 10 else 'not yet'
            return self.mysql.connect(**options)

        self.assertEqual('h', self.find([address(host='h')], connect).host)
        self.assertGreater(self.now, 10)

    def test_timeout_names_all_addresses(self):
        self.mysql.is_up = False

        error = self.assertRaises(
            exceptions.TargetUnavailableError, self.find, [address(host='a'), address(host='b')]
        )

        self.assertIn('no SQL connection within 30 s', str(error))
        self.assertIn('a:3306', str(error))
        self.assertIn('b:3306', str(error))

    def test_without_any_address(self):
        error = self.assertRaises(exceptions.TargetUnavailableError, self.find, [])

        self.assertIn('the server has no address', str(error))
