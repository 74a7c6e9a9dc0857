# SPDX-License-Identifier: Apache-2.0
"""The attachments of a volume, with the real client of Cinder."""

import types
from unittest import mock

import fixtures
import openstack.exceptions
import requests
from keystoneauth1 import adapter, session
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.cinder import client
from trove_ceph.tests.unit.cinder import cinder_http


class AttachmentsTest(base.BaseTestCase):
    """The test case acts as Cinder."""

    def setUp(self):
        super().setUp()
        self.attachments = {'attachment': 'server'}
        self.refusal = None
        self.actions = []
        http = requests.Session()
        http.mount('http://', cinder_http.Adapter(self))
        self.session = session.Session(cinder_http.Token('service', 'admin'), session=http)
        self.cinder = client.Cinder.of_session(self.session)

    def answer(self, method, url, body, _token, version):
        resource_id = url.rpartition('/')[2]
        if self.refusal is not None:
            raise cinder_http.Refused(self.refusal, 'refused')
        if method == 'POST':
            self.actions.append((url.partition('/volumes/')[2], body))
            return body
        if method == 'GET':
            self.assertEqual('attachments', resource_id.partition('?')[0])
            self.assertEqual('all_tenants=1&volume_id=volume', url.partition('?')[2])
            self.assertLessEqual((3, 27), version)
            return {
                'attachments': [
                    {'id': attachment_id, 'volume_id': 'volume', 'instance': server_id}
                    | {'status': 'reserved'}
                    for attachment_id, server_id in self.attachments.items()
                ]
            }
        if self.attachments.pop(resource_id, None) is None:
            raise cinder_http.Refused(404, 'no such attachment')
        return {'attachments': []}

    def test_attachments_of_a_volume(self):
        """Nova may leave a reserved one, which Cinder does not show with the volume."""
        self.attachments['of-no-server'] = None
        self.assertEqual({'server': 'attachment'}, self.cinder.find_attachments('volume'))
        self.attachments.clear()
        self.assertEqual({}, self.cinder.find_attachments('volume'))

    def test_deletes_an_attachment(self):
        for _again in range(2):
            self.cinder.delete_attachment('attachment')
            self.assertEqual({}, self.attachments)

    def test_rolls_back_a_detachment(self):
        self.cinder.roll_back_detachment('volume')
        self.assertEqual([('volume/action', {'os-roll_detaching': None})], self.actions)

    def test_cloud_of_the_environment(self):
        found = adapter.Adapter(self.session, service_type='block-storage')
        config = types.SimpleNamespace(get_session_client=lambda _service: found)
        connect = mock.Mock(return_value=types.SimpleNamespace(config=config))
        self.useFixture(fixtures.MonkeyPatch('openstack.connect', connect))
        cinder = client.Cinder.of_environment()
        self.assertEqual(self.cinder.project_id, cinder.project_id)
        cinder.request_flatten('volume')
        marked = {'metadata': {'trove_ceph.dependent': 'flatten'}}
        self.assertEqual([('volume/metadata', marked)], self.actions)
        cinder.withdraw_flatten('volume')
        marked = {'metadata': {'trove_ceph.dependent': 'shared'}}
        self.assertEqual(('volume/metadata', marked), self.actions[-1])
        connect.side_effect = openstack.exceptions.ConfigException('no cloud')
        error = self.assertRaises(exceptions.ServiceUnavailableError, client.Cinder.of_environment)
        self.assertIn('no cloud', str(error))

    def test_cinder_that_refuses(self):
        self.refusal = 409
        for verb, argument in (
            (self.cinder.delete_attachment, 'attachment'),
            (self.cinder.roll_back_detachment, 'volume'),
            (self.cinder.find_attachments, 'volume'),
        ):
            self.assertRaises(exceptions.ServiceUnavailableError, verb, argument)
