# SPDX-License-Identifier: Apache-2.0
import dataclasses

import troveclient.exceptions
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.bench.targets import fake_cloud
from trove_ceph_bench.targets import cloud, database

ID = 'id-of-shop'
UNAVAILABLE = exceptions.TargetUnavailableError


class CloudTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 0

    def sleep(self, seconds):
        self.now += seconds

    def cloud(self, *instances, is_admin=False, **more):
        self.trove = fake_cloud.FakeTrove(instances or [fake_cloud.instance()], **more)
        self.connection = fake_cloud.FakeConnection(is_admin)
        return cloud.Cloud(self.connection, self.trove, lambda: self.now, self.sleep)


class CloudTest(CloudTestCase):
    def test_finds_by_name_and_id_with_public_addresses_first(self):
        found = self.cloud().get_instance('shop')

        self.assertEqual(('192.0.2.4', '10.0.0.4'), found.addresses)
        self.assertEqual(found, self.cloud().get_instance(ID))
        self.assertIsNone(found.volume_id)

    def test_unknown_instance(self):
        error = self.assertRaises(UNAVAILABLE, self.cloud().get_instance, 'shoq')

        self.assertEqual('there is no instance shoq', str(error))

    def test_ambiguous_name(self):
        one, two = fake_cloud.instance(), fake_cloud.instance(id='other')

        error = self.assertRaises(UNAVAILABLE, self.cloud(one, two).get_instance, 'shop')

        self.assertIn(f'{ID}, other', str(error))

    def test_administrator_finds_an_instance_of_another_project(self):
        theirs = fake_cloud.instance('theirs', server_id='s1', volume_id='v1')

        found = self.cloud(others=[theirs]).get_instance('theirs')

        self.assertEqual(('s1', 'v1'), (found.server_id, found.volume_id))

    def test_refusal_is_translated(self):
        client = self.cloud()
        self.trove.refuses = troveclient.exceptions.BadRequest('not now')

        error = self.assertRaises(UNAVAILABLE, client.create_schema, ID, 'd', 'secret')

        self.assertIn('not now', str(error))
        self.assertNotIn('secret', str(error))

    def test_schema_has_its_own_user(self):
        schema = database.new_name()

        self.cloud().create_schema(ID, schema, 'secret')

        created, user = self.trove.created
        self.assertEqual({'name': schema}, created)
        self.assertEqual(database.user_of(schema), user['name'])
        self.assertEqual([{'name': schema}], user['databases'])

    def test_lists_own_schemas_of_all_pages_and_users_without_schema(self):
        client = self.cloud()
        self.trove.databases.names += ['other', 'trove_ceph_bench_a1']
        self.trove.users.names += ['tcbench_b2']

        self.assertEqual({'trove_ceph_bench_a1', 'trove_ceph_bench_b2'}, client.list_schemas(ID))

    def test_removal_waits_until_the_schema_is_gone(self):
        client = self.cloud(lag=3)
        schema = database.new_name()
        client.create_schema(ID, schema, 'secret')

        client.ensure_no_schema(ID, schema)
        client.ensure_no_schema(ID, schema)

        self.assertEqual(set(), client.list_schemas(ID))
        self.assertGreater(self.now, 0)

    def test_removal_that_never_ends_is_reported(self):
        client = self.cloud(lag=10**6)
        schema = database.new_name()
        client.create_schema(ID, schema, 'secret')

        error = self.assertRaises(UNAVAILABLE, client.ensure_no_schema, ID, schema)

        self.assertIn('is still in instance', str(error))

    def test_has_instance(self):
        client = self.cloud()

        self.assertTrue(client.has_instance(ID))
        self.assertFalse(client.has_instance('gone'))


class DescribeTest(CloudTestCase):
    def instance(self, client):
        found = client.get_instance('shop')
        return dataclasses.replace(found, server_id='s1', volume_id='v1')

    def test_administrator_sees_volume_and_qos(self):
        client = self.cloud(is_admin=True)

        found = client.describe(self.instance(client))

        self.assertEqual({'name': 'f1', 'ram_mib': 2048, 'vcpus': 2}, found['flavor'])
        self.assertEqual('nvme', found['volume']['type'])
        self.assertEqual({'consumer': 'front-end', 'total_iops_sec': '100'}, found['volume']['qos'])

    def test_tenant_sees_neither_volume_nor_server(self):
        client = self.cloud()

        found = client.describe(self.instance(client))

        self.assertIsNone(found['volume'])
        self.assertEqual(2, found['volume_gib'])
        self.assertIsNone(client.image_id(self.instance(client)))
        self.assertIsNone(client.cpu_sec(self.instance(client)))
        self.assertIsNone(client.cpu_sec(client.get_instance('shop')))

    def test_migrated_volume_has_the_image_of_its_target(self):
        client = self.cloud(is_admin=True)
        self.assertEqual('v1', client.image_id(self.instance(client)))

        self.connection.volume.migration_id = 'v2'

        self.assertEqual('v2', client.image_id(self.instance(client)))

    def test_processor_seconds_of_all_cpus(self):
        client = self.cloud(is_admin=True)
        self.assertEqual(2.0, client.cpu_sec(self.instance(client)))

        self.connection.cpu_details = [{'time': None}]

        self.assertIsNone(client.cpu_sec(self.instance(client)))


class ListAllTest(base.BaseTestCase):
    """Lists come in pages, or whole."""

    def test_pages(self):
        class Manager:
            def list(self, marker=None):
                start = int(marker or 0)
                page = fake_cloud.Page(range(start, min(start + 2, 5)))
                page.next = str(start + 2) if start + 2 < 5 else None
                return page

        self.assertEqual([0, 1, 2, 3, 4], cloud.list_all(Manager()))

    def test_whole(self):
        manager = fake_cloud.resource(list=lambda: [1, 2])
        self.assertEqual([1, 2], cloud.list_all(manager))
