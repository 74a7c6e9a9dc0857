# SPDX-License-Identifier: Apache-2.0
"""The signs of automatic failover: Trove's real conductor and tables, Nova's real client."""

import io
import json
import urllib.parse
import uuid

import novaclient.client
import requests
from keystoneauth1 import session
from oslotest import base
from trove.common import context as trove_context
from trove.conductor import manager as conductor_manager

from trove_ceph import exceptions
from trove_ceph.strategies.failover.facts import HostState, ServerState
from trove_ceph.tests.unit.cinder import cinder_http
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import failover_signs, nova


class DatabasesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        trove_database.path()
        self.instance = trove_database.add_instance(f'project-{uuid.uuid4()}', 'volume')
        self.databases = failover_signs.Databases()

    def report(self, sent, instance=None, **payload):
        conductor_manager.Manager().heartbeat(
            trove_context.TroveContext(), (instance or self.instance).id, payload, sent=sent
        )

    def found(self):
        return self.databases.list_reports().get(self.instance.id)

    def test_each_report_changes_the_time(self):
        self.assertIsNone(self.found())
        self.report(1000.5, service_status='healthy')
        self.assertEqual(1000.5, self.found())
        self.report(1030.5, service_status='healthy')
        self.assertEqual(1030.5, self.found())

    def test_deleted_instances_are_left_out(self):
        self.report(1000.5, service_status='healthy')
        self.instance.update(deleted=True)
        self.assertIsNone(self.found())

    def test_a_server_that_must_be_restarted_reports_too(self):
        """The conductor then keeps the status and its time."""
        self.report(1000.5, service_status='restart required')
        self.report(1030.5, service_status='healthy')
        self.assertEqual(1030.5, self.found())

    def test_other_messages_are_no_reports(self):
        backup = trove_database.add_backup(self.instance)
        conductor_manager.Manager().update_backup(
            trove_context.TroveContext(), self.instance.id, backup.id, sent=5.0, size=1.0
        )
        self.assertIsNone(self.found())

    def test_instances_and_their_facts(self):
        (found,) = [one for one in self.databases.list_instances() if one.id == self.instance.id]
        self.assertEqual(('mysql', '9.7'), (found.datastore, found.version))
        facts = self.databases.find_facts(self.instance.id)
        self.assertEqual(('NONE', found.server_id), (facts.task, facts.server_id))


class Nova(requests.adapters.BaseAdapter):
    """Nova over HTTP.

    :ivar answers: the status and the body by the path and query of requests
    """

    def __init__(self):
        super().__init__()
        self.answers, self.versions = {}, set()

    def send(self, request, **_options):
        self.versions.add(request.headers['OpenStack-API-Version'])
        parsed = urllib.parse.urlparse(request.url)
        path = parsed.path.partition('/v3/service')[2] + (parsed.query and f'?{parsed.query}')
        status, body = self.answers.get(path, (404, {}))
        response = requests.Response()
        response.status_code, response.url, response.request = status, request.url, request
        response.headers['Content-Type'] = 'application/json'
        response.raw = io.BytesIO(json.dumps(body).encode())
        return response

    def close(self):
        """Do nothing."""


class ServersTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        http = requests.Session()
        self.nova = Nova()
        http.mount('http://', self.nova)
        client = novaclient.client.Client(
            nova.API_VERSION,
            session=session.Session(cinder_http.Token('service', 'admin'), session=http),
        )
        self.servers = failover_signs.Servers(client)

    def show(self, status, actions=None, **facts):
        """Show a server, and return what is found of it."""
        facts = {
            'id': 'server',
            'status': status,
            'OS-EXT-STS:task_state': None,
            'OS-EXT-SRV-ATTR:host': 'host',
            'locked': False,
        } | facts
        self.nova.answers['/servers/server'] = (200, {'server': facts})
        listed = [{'action': action, 'user_id': user} for action, user in actions or ()]
        self.nova.answers['/servers/server/os-instance-actions'] = (
            200,
            {'instanceActions': listed},
        )
        return self.servers.find('server')

    def test_a_server(self):
        self.assertEqual(ServerState('server', 'ACTIVE', host='host'), self.show('ACTIVE'))
        found = self.show('ACTIVE', **{'OS-EXT-STS:task_state': 'rebooting', 'locked': True})
        self.assertEqual(('rebooting', True), (found.task_state, found.is_locked))

    def test_servers_of_a_host(self):
        path = '/servers?all_tenants=1&host=compute-3'
        self.nova.answers[path] = (200, {'servers': [{'id': 'a'}, {'id': 'b'}]})
        self.nova.answers[f'{path}&marker=b'] = (200, {'servers': []})
        self.assertEqual({'a', 'b'}, self.servers.list_on_host('compute-3'))
        self.nova.answers.clear()
        self.assertRaises(
            exceptions.ServiceUnavailableError, self.servers.list_on_host, 'compute-3'
        )

    def test_who_stopped_a_server(self):
        for actions, expected in (
            ([('stop', None), ('create', 'trove')], ''),
            ([('attach_volume', 'trove'), ('stop', 'operator'), ('stop', None)], 'operator'),
            ([('create', 'trove')], None),
        ):
            self.assertEqual(expected, self.show('SHUTOFF', actions).stopped_by)
        self.assertIsNone(self.show('ACTIVE', [('stop', 'operator')]).stopped_by)

    def test_a_server_of_a_cell_that_does_not_answer(self):
        """Nova then shows only what its API database has."""
        self.nova.answers['/servers/server'] = (
            200,
            {'server': {'id': 'server', 'status': 'UNKNOWN'}},
        )
        self.assertEqual(ServerState('server', 'UNKNOWN'), self.servers.find('server'))

    def test_a_deleted_server(self):
        self.assertIsNone(self.servers.find('server'))

    def test_hosts(self):
        services = [
            {'host': name, 'binary': 'nova-compute', 'state': state, 'status': status}
            | {'disabled_reason': reason}
            for name, state, status, reason in (
                ('up', 'up', 'enabled', None),
                ('down', 'down', 'enabled', None),
                ('closed', 'up', 'disabled', 'new memory'),
                ('silently-closed', 'up', 'disabled', None),
                ('by-nova', 'down', 'disabled', 'AUTO: Connection to libvirt lost: 0'),
            )
        ]
        # In a cell that does not answer.
        services.append({'host': 'unknown', 'binary': 'nova-compute', 'status': 'UNKNOWN'})
        self.nova.answers['/os-services?binary=nova-compute'] = (200, {'services': services})
        self.assertEqual(
            {
                'up': HostState(True),
                'down': HostState(False),
                'closed': HostState(True, 'new memory'),
                'silently-closed': HostState(True, ''),
                'by-nova': HostState(False),
            },
            self.servers.list_hosts(),
        )
        # Before 2.69, Nova leaves out the servers and services of cells that do not answer.
        self.assertEqual({'compute 2.85'}, {str(one) for one in self.nova.versions})

    def test_errors_are_translated(self):
        self.nova.answers['/servers/server'] = (500, {})
        self.assertRaises(exceptions.ServiceUnavailableError, self.servers.find, 'server')
        self.nova.answers['/os-services?binary=nova-compute'] = (403, {})
        error = self.assertRaises(exceptions.ServiceUnavailableError, self.servers.list_hosts)
        self.assertIn('listing the compute hosts failed', str(error))
