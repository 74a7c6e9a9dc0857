# SPDX-License-Identifier: Apache-2.0
"""A tenant manages schemas, accounts, root and the networks that may connect, by Trove's API."""

import dataclasses

import pymysql
from pymysql.constants import ER
from tempest import config
from tempest.lib import decorators
from trove_tempest_plugin.tests import constants

from trove_ceph_tempest_plugin import mysql
from trove_ceph_tempest_plugin.tests import base

CONF = config.CONF
USER, PASSWORD = 'further_user', 'Further-passw0rd'
SCHEMA = 'further_schema'
REFUSED = (ER.DBACCESS_DENIED_ERROR, ER.ACCESS_DENIED_ERROR)
#: A network of documentation (RFC 5737), in which there is no client, and all networks.
NOWHERE, EVERYWHERE = '198.51.100.0/24', '0.0.0.0/0'


class AccountTestCase(base.DatabaseTest):
    """A database with further accounts."""

    def path(self, *parts: str) -> str:
        """Return the path of a collection of the instance of the class in Trove's API."""
        return '/'.join(('instances', self.instance_id, *parts))

    def create_account(self, name: str, schemas: list[str]) -> None:
        """Create an account of the tenant with the password PASSWORD; test cleanup deletes it."""
        user = {
            'name': name,
            'password': PASSWORD,
            'databases': [{'name': one} for one in schemas],
        }
        self._create('users', user)

    def create_schema(self, name: str) -> None:
        """Create a schema, and wait until it is listed; test cleanup deletes it."""
        self._create('databases', {'name': name})
        self._wait_for('databases', name)

    def seen_by(self, name: str, password: str = PASSWORD, schema: str = constants.DB_NAME):
        """Return a schema of the database, accessed as an account."""
        return mysql.Database(
            dataclasses.replace(
                self.database.address, user=name, password=password, database=schema
            )
        )

    def list_names(self, *parts: str) -> list[str]:
        """Return the names of users or databases, as Trove lists them."""
        return [one['name'] for one in self.client.list_resources(self.path(*parts))[parts[-1]]]

    def _create(self, kind, content):
        path, name = self.path(kind), content['name']
        self.client.create_resource(
            path, {kind: [content]}, expected_status_code=202, need_response=False
        )
        self.addCleanup(self.client.delete_resource, path, name, ignore_notfound=True)

    def _wait_for(self, kind, name, *, is_listed=True):
        """Wait until users or databases include a name, or do not any more."""

        def wrong():
            names = self.list_names(kind)
            return [] if (name in names) == is_listed else [names]

        self.assertEqual([], self.wait_until_empty(wrong, CONF.trove_ceph.connect_timeout_sec))


class AccountScenario(AccountTestCase):
    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a022')
    def test_schemas_and_accounts(self):
        """An account reaches a schema while it has access to it, and is gone when deleted."""
        timeout_sec = CONF.trove_ceph.connect_timeout_sec
        self.create_schema(SCHEMA)
        self.create_account(USER, [constants.DB_NAME])
        self.seen_by(USER).wait_reachable(timeout_sec)
        self.assertIn(USER, self.list_names('users'))
        account = self.seen_by(USER, schema=SCHEMA)
        self._wait_until_refused(account)

        grants = self.path('users', USER, 'databases')
        self.client.put_resource(grants, {'databases': [{'name': SCHEMA}]})
        account.wait_reachable(timeout_sec)
        account.query('CREATE TABLE own_rows (id INT PRIMARY KEY)')
        account.query('INSERT INTO own_rows VALUES (1)')
        self.assertEqual(
            {constants.DB_NAME, SCHEMA}, set(self.list_names('users', USER, 'databases'))
        )

        self.client.delete_resource(grants, SCHEMA)
        self._wait_until_refused(account)
        self.assertEqual([constants.DB_NAME], self.list_names('users', USER, 'databases'))
        self.client.delete_resource(self.path('users'), USER)
        self._wait_until_refused(self.seen_by(USER))
        self._wait_for('users', USER, is_listed=False)
        self.client.delete_resource(self.path('databases'), SCHEMA)
        self._wait_for('databases', SCHEMA, is_listed=False)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a023')
    def test_root(self):
        """Root has all privileges while it is enabled, and is not listed among the users."""
        self.assertFalse(self.is_root_enabled(self.instance_id))
        root = self.seen_by('root', self.get_root_pass(self.instance_id))
        root.wait_reachable(CONF.trove_ceph.connect_timeout_sec)
        self.assertTrue(self.is_root_enabled(self.instance_id))
        self.assertIn((constants.DB_USER,), root.query('SELECT User FROM mysql.user'))
        self.assertNotIn('root', self.list_names('users'))
        self.disable_root_access(self.instance_id)
        self._wait_until_refused(root)
        self.assertFalse(self.is_root_enabled(self.instance_id))

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a024')
    def test_access_rules(self):
        """Clients of networks that are not allowed get no connection; the addresses stay."""
        timeout_sec = CONF.trove_ceph.connect_timeout_sec
        before = self._instance()['addresses']
        self.addCleanup(self._allow, EVERYWHERE)
        self._allow(NOWHERE)
        self.assertEqual({NOWHERE}, self._allowed_in_neutron())
        self.assertEqual([NOWHERE], self._instance()['access']['allowed_cidrs'])
        self.assertEqual(
            [], self.wait_until_empty(lambda: [True] * self.database.answers(), timeout_sec)
        )
        # It is not merely slow.
        self.assertRaises(pymysql.OperationalError, self.database.connect)
        self._allow(EVERYWHERE)
        self.database.wait_reachable(timeout_sec)
        self.assertEqual({EVERYWHERE}, self._allowed_in_neutron())
        self.assertEqual(before, self._instance()['addresses'])

    def _allow(self, cidr):
        access = {'is_public': True, 'allowed_cidrs': [cidr]}
        self.client.put_resource(self.path(), {'instance': {'access': access}})
        self.wait_for_instance_status(self.instance_id, expected_op_status=['HEALTHY'])

    def _allowed_in_neutron(self):
        groups = self.os_admin.security_groups_client.list_security_groups()['security_groups']
        return {
            rule['remote_ip_prefix']
            for group in groups
            if self.instance_id in group['name']
            for rule in group['security_group_rules']
            if rule['direction'] == 'ingress'
        }

    def _instance(self):
        return self.client.get_resource('instances', self.instance_id)['instance']

    def _wait_until_refused(self, account):
        """Wait until the server refuses an account, or its access to a schema."""

        def accepted():
            try:
                account.query('SELECT 1')
            except pymysql.OperationalError as error:
                return [] if error.args[0] in REFUSED else [error]
            return [account.address.user]

        timeout_sec = CONF.trove_ceph.connect_timeout_sec
        self.assertEqual([], self.wait_until_empty(accepted, timeout_sec))
