# SPDX-License-Identifier: Apache-2.0
"""An operator gives a database a new guest image; data, accounts and addresses stay."""

import time

from tempest import config
from tempest.lib import decorators, exceptions
from trove_tempest_plugin.tests import constants

from trove_ceph_tempest_plugin import load
from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import accounts

CONF = config.CONF
USER = 'kept_user'


class RebuildTestCase(accounts.AccountTestCase):
    """A database that can be rebuilt."""

    def rebuild(self, image_id: str) -> None:
        """Rebuild the database on an image, and check that nothing of it was lost."""
        account = self._create_account()
        rows, addresses, (before, old) = self.write_rows(), self.addresses(), self.server()
        began = time.monotonic()
        with load.Client(self.database.address) as client:
            elapsed = self.act({'rebuild': {'image_id': image_id}}, admin=True)
            self.database.wait_reachable(CONF.trove_ceph.connect_timeout_sec)
            figures = client.figures()
        after, new = self.server()
        self.record(
            'rebuild', {'seconds_to_healthy': elapsed, 'other_server': new['id'] != old['id']}
        )
        self.record('client', figures)
        self.assertLessEqual(self.database.uptime_sec(), time.monotonic() - began)
        self.assertEqual(image_id, new['image']['id'])
        self._assert_old_system_gone(old['id'], new['id'])
        self.assertEqual(before['volume_id'], after['volume_id'])
        self.assertEqual(addresses, self.addresses())
        self.assertEqual(rows, self.rows())
        self.assertEqual(rows, self.rows(account))
        # The new agent has its own account in the old data.
        self.assertIn(USER, self.list_names('users'))
        self.assertEqual(len(rows) + base.ROWS, len(self.write_rows()))

    def _create_account(self):
        """Create a further account of the tenant, and return the database as it sees it."""
        self.create_account(USER, [constants.DB_NAME])
        account = self.seen_by(USER)
        account.wait_reachable(CONF.trove_ceph.connect_timeout_sec)
        return account

    def _assert_old_system_gone(self, old_id, new_id):
        servers = self.os_admin.servers_client
        if new_id != old_id:
            self.assertRaises(exceptions.NotFound, servers.show_server, old_id)
            return
        # Nova replaced the root disk of the same server.
        actions = servers.list_instance_actions(new_id)['instanceActions']
        self.assertIn('rebuild', [one['action'] for one in actions])

    def image_of_version(self) -> str:
        """Return the guest image of the datastore version, which warm guests have."""
        versions = self.admin_client.get_resource('mgmt', 'datastore-versions')['versions']
        instance = self.client.get_resource('instances', self.instance_id)['instance']
        (image_id,) = (
            one['image'] for one in versions if one['name'] == instance['datastore']['version']
        )
        return image_id

    def server(self) -> tuple[dict, dict]:
        """Return the instance and its server as an administrator sees them."""
        instance = self.admin_client.get_resource('instances', self.instance_id)['instance']
        return instance, self.os_admin.servers_client.show_server(instance['server_id'])['server']

    def addresses(self) -> list[tuple[str, str]]:
        """Return the addresses of the instance, each with its type."""
        instance = self.client.get_resource('instances', self.instance_id)['instance']
        return sorted((one['type'], one['address']) for one in instance['addresses'])


class RebuildScenario(RebuildTestCase):
    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a021')
    def test_rebuild_on_an_image(self):
        """The server gets the image, by a rebuild in Nova or as another server."""
        self.rebuild(CONF.database.rebuild_image_id or self.image_of_version())
