# SPDX-License-Identifier: Apache-2.0
"""The deletion of a server whose binding failed, also one whose host has failed."""

import datetime

import novaclient.client
import requests
from keystoneauth1 import session
from oslotest import base

from trove_ceph import exceptions, waiting
from trove_ceph.tests.unit.cinder import cinder_http
from trove_ceph.tests.unit.trove_adapter import test_replacement_servers
from trove_ceph.trove_adapter import nova

NOW = datetime.datetime(2026, 1, 1, 12)


class NovaDeletionTest(base.BaseTestCase):
    """``pass_time`` is what happens in the cloud while the deletion waits."""

    def setUp(self):
        super().setUp()
        self.cloud = test_replacement_servers.Cloud()
        self.seconds = 0.0
        self.pass_time = lambda: None
        http = requests.Session()
        http.mount('http://', self.cloud)
        cloud = session.Session(cinder_http.Token('service', 'admin'), session=http)
        client = novaclient.client.Client(nova.API_VERSION, session=cloud)
        self.nova = nova.Nova(
            client,
            lambda seconds: waiting.Deadline(seconds, lambda: self.seconds, self.sleep),
            lambda: NOW + datetime.timedelta(seconds=self.seconds),
        )
        self.cloud.servers['server'] = {
            'id': 'server',
            'name': 'db1',
            'status': 'ACTIVE',
            'OS-EXT-SRV-ATTR:host': 'host-1',
        }

    def test_a_server_is_off_when_nova_has_switched_it_off(self):
        found = self.cloud.servers['server']
        for status, task, is_off in (
            ('ACTIVE', None, False),
            ('ACTIVE', 'powering-off', False),
            ('SHUTOFF', None, True),
            ('SHUTOFF', 'powering-on', False),
            ('SHELVED_OFFLOADED', None, True),
            ('PAUSED', None, False),
        ):
            found.update({'status': status, 'OS-EXT-STS:task_state': task})
            self.assertEqual(is_off, self.nova.is_off('server'), (status, task))
        del self.cloud.servers['server']
        self.assertTrue(self.nova.is_off('server'))

    def test_a_server_whose_host_nova_counts_as_down(self):
        self.assertIs(False, self.nova.has_host_down('unknown'))
        self.report(-90, 'down')
        self.assertIs(False, self.nova.has_host_down('server'), 'no other host is up')
        self.cloud.services['host-2'] = {'host': 'host-2', 'state': 'up'}
        self.assertIs(True, self.nova.has_host_down('server'))
        self.report(-3)
        self.assertIs(False, self.nova.has_host_down('server'))
        self.report(-90, 'down')
        del self.cloud.servers['server']['OS-EXT-SRV-ATTR:host']
        self.assertIs(False, self.nova.has_host_down('server'), 'no administrator')

    def test_memory_of_a_flavor(self):
        self.assertEqual(2048, self.nova.find_ram_mib('7'))
        error = self.assertRaises(
            exceptions.ServiceUnavailableError, self.nova.find_ram_mib, 'unknown'
        )
        self.assertIn('flavor unknown: ', str(error))

    def sleep(self, seconds):
        self.seconds += seconds
        self.pass_time()

    def report(self, at_sec, state='up'):
        reported_at = NOW + datetime.timedelta(seconds=at_sec)
        self.cloud.services['host-1'] = {
            'host': 'host-1',
            'state': state,
            'updated_at': reported_at.isoformat(timespec='microseconds'),
        }

    def test_waits_for_a_report_of_the_host(self):
        """Until then it may have failed, and would find the request when it returns."""
        self.report(-3)

        def pass_time():
            self.assertIn('server', self.cloud.servers)
            if self.seconds >= 7:
                self.report(7)

        self.pass_time = pass_time
        self.nova.delete('server')
        self.assertEqual({}, self.cloud.servers)
        self.assertEqual(7, self.seconds)

    def test_waits_until_nova_counts_the_host_as_down(self):
        self.report(-3)

        def pass_time():
            self.assertIn('server', self.cloud.servers)
            if self.seconds >= 58:
                self.report(-3, 'down')

        self.pass_time = pass_time
        self.nova.delete('server')
        self.assertEqual({}, self.cloud.servers)
        self.assertEqual(58, self.seconds)

    def test_host_of_which_nova_never_knows(self):
        self.report(-3)
        error = self.assertRaises(exceptions.ServiceUnavailableError, self.nova.delete, 'server')
        self.assertIn('its host host-1 last reported to Nova', str(error))
        self.assertIn('server', self.cloud.servers)

    def test_server_that_is_gone_or_goes_by_itself(self):
        self.report(-3)
        self.pass_time = self.cloud.servers.clear
        for _again in range(2):
            self.nova.delete('server')
        self.assertEqual(0.5, self.seconds)

    def test_waits_until_the_server_is_gone(self):
        """It is deleted at once also where Nova keeps deleted servers for a while."""
        self.report(1, 'down')
        asked = []

        def post_servers(rest, _query, body):
            asked.append((rest, body))
            return {}

        self.cloud.post_servers = post_servers
        self.pass_time = lambda: self.seconds >= 5 and self.cloud.servers.clear()
        self.nova.delete('server')
        self.assertEqual([('server/action', {'forceDelete': None})], asked)
        self.assertEqual(5, self.seconds)

    def test_reports_a_server_that_nova_does_not_delete(self):
        self.cloud.post_servers = lambda *_request: {}
        error = self.assertRaises(exceptions.ServiceUnavailableError, self.nova.delete, 'server')
        self.assertIn('did not delete it within 180 s; its status is ACTIVE', str(error))
