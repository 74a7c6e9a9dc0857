# SPDX-License-Identifier: Apache-2.0
"""Give the database of a class another server under load, and check what must not change."""

import time
from concurrent import futures

from tempest import config
from tempest.lib import exceptions

from trove_ceph import exceptions as trove_ceph_exceptions
from trove_ceph_tempest_plugin import failovers, guests, hypervisors, leaks, ledger
from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import replication

CONF = config.CONF
#: Commits before the failure, and after the failover.
COMMITS, COMMITS_TIMEOUT_SEC = replication.COMMITS, replication.COMMITS_TIMEOUT_SEC


class FailoverTestCase(base.DatabaseTest):
    """Base class of the scenarios of failovers."""

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not CONF.trove_ceph.server_command:
            raise cls.skipException('[trove_ceph] server_command is not set')

    def setUp(self):
        super().setUp()
        options = CONF.trove_ceph
        self.hypervisors = hypervisors.Hypervisors(
            options.server_command, options.host_command, options.service_command
        )
        self.failovers = failovers.Failovers(self.client, options.failover_timeout_sec)
        if not self.failovers.are_offered():
            raise self.skipException("trove-api has not loaded this project's extension")
        self.server_id, self.host = self._server()
        self.addresses = self._addresses()
        self.pool = guests.pool(options.guests_command) if options.guests_command else None
        self.leaks = leaks.Leaks(self.os_admin, self.admin_client, self.instance_id, self.pool)

    def _server(self, instance_id=None):
        """Return the server of an instance and its host; None: of the instance of the class."""
        instance_id = instance_id or self.instance_id
        instance = self.admin_client.get_resource('instances', instance_id)['instance']
        server = self.os_admin.servers_client.show_server(instance['server_id'])['server']
        return server['id'], server['OS-EXT-SRV-ATTR:host']

    def _addresses(self, instance_id=None):
        instance_id = instance_id or self.instance_id
        instance = self.client.get_resource('instances', instance_id)['instance']
        return sorted((one['type'], one['address']) for one in instance['addresses'])

    def survive(self, fail, *, request=None, recover_during=None, recover_after=None):
        """Fail under load, and fail over; check that nothing is lost and nothing else changed.

        :param fail: lets the server fail
        :param request: has the instance failed over, and returns the id of the failover; None: the
            tenant forces it
        :param recover_during: lets it run again as soon as the failover changes something
        :param recover_after: lets it run again after the failover
        :returns: the failover, as the tenant sees it
        """
        options = CONF.trove_ceph
        mixed = self.prepare_load('mixed-70-30')
        entries = ledger.Ledger(self.database)
        with futures.ThreadPoolExecutor() as executor, entries:
            running = executor.submit(mixed.run, options.sysbench_threads, options.sysbench_seconds)
            entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
            waited = self._list_ready_guests()
            failed_at = time.monotonic()
            fail()
            failover_id = (request or self._force)()
            requested_sec = round(time.monotonic() - failed_at, 1)
            self.failovers.wait_until_begun(failover_id)
            begun_sec = round(time.monotonic() - failed_at, 1)
            if recover_during:
                recover_during()
            completed = self.failovers.wait_until_completed(failover_id)
            entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
            if recover_after:
                recover_after()
                entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
            # Its connections broke with the server.
            load_error = running.exception()
        self.record('client', entries.figures())
        names = ('attempts', 'state', 'requested_by', 'cause', 'reason')
        self.record(
            'failover',
            {name: completed[name] for name in names}
            # From before the failure.
            | {'seconds_to_request': requested_sec, 'seconds_to_begin': begun_sec},
        )
        self.record('load', {'error': str(load_error)})
        raise_if_unexpected(load_error)
        self.assertEqual([], entries.faults())
        self.assert_moved()
        self.assert_warm(waited)
        self.assert_nothing_leaked()
        return completed

    def _force(self):
        return self.failovers.create(self.instance_id, self.id())

    def _list_ready_guests(self):
        """Return the ids of the warm guests that fit the instance, on other hosts than its own."""
        if self.pool is None:
            return []
        instance = self.client.get_resource('instances', self.instance_id)['instance']
        return self.pool.list_ready(instance['flavor']['id'], self.host)

    def assert_warm(self, waited):
        """Assert that the instance has a guest that waited, unless others have taken all."""
        if waited and not self.pool.is_bound_to(self.instance_id, waited):
            self.assertEqual([], sorted(set(waited) & set(self._list_ready_guests())))

    def assert_moved(self):
        """Assert that the instance has another server, its addresses, and no trace of the old."""
        self.wait_for_instance_status(self.instance_id, expected_op_status=['HEALTHY'])
        server_id, host = self._server()
        self.record('servers', {'old': self.host, 'new': host})
        self.assertNotEqual(self.server_id, server_id)
        self.assertEqual(self.addresses, self._addresses())
        self.assertRaises(
            exceptions.NotFound, self.os_admin.servers_client.show_server, self.server_id
        )

    def assert_nothing_leaked(self):
        """Assert that the instance has one server, with one volume and the ports that it needs."""
        timeout_sec = CONF.trove_ceph.delete_timeout_sec
        self.assertEqual([], self.wait_until_empty(self.leaks.found, timeout_sec))


def raise_if_unexpected(load_error):
    """Raise the error of a load, unless the load broke with its server."""
    if load_error and not isinstance(load_error, trove_ceph_exceptions.LoadFailedError):
        raise load_error


class FailingHostTestCase(FailoverTestCase):
    """The database of the class is on the host that may fail."""

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not (CONF.trove_ceph.host_command and CONF.trove_ceph.failing_host):
            raise cls.skipException('[trove_ceph] host_command or failing_host is not set')

    @classmethod
    def _creation_parameters(cls, datastore_version, volume):
        parameters = super()._creation_parameters(datastore_version, volume)
        # Trove passes it to Nova, which lets administrators name a host.
        return parameters | {'availability_zone': f'nova:{CONF.trove_ceph.failing_host}'}

    def setUp(self):
        super().setUp()
        self.assertEqual(CONF.trove_ceph.failing_host, self.host)

    def _fail(self, action):
        self.hypervisors.host(action, self.host)
