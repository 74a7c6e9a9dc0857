# SPDX-License-Identifier: Apache-2.0
"""The attachments of a volume, with the real client of Cinder."""

import requests
from keystoneauth1 import session
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.cinder import client
from trove_ceph.tests.unit.cinder import cinder_http

VOLUME = {
    'id': 'volume',
    'name': None,
    'status': 'in-use',
    'size': 1,
    'volume_type': 'nvme',
    'metadata': {},
    'os-vol-tenant-attr:tenant_id': 'service',
    'created_at': '2026-01-01T00:00:00.000000',
}


class AttachmentsTest(base.BaseTestCase):
    """The test case acts as Cinder."""

    def setUp(self):
        super().setUp()
        self.attachments = {'attachment': 'server'}
        self.refusal = None
        http = requests.Session()
        http.mount('http://', cinder_http.Adapter(self))
        self.cinder = client.Cinder.of_session(
            session.Session(cinder_http.Token('service', 'admin'), session=http)
        )

    def answer(self, method, url, _body, _token, _version=None):
        resource_id = url.rpartition('/')[2]
        if self.refusal is not None:
            raise cinder_http.Refused(self.refusal, 'refused')
        if method == 'GET':
            shown = [
                {'server_id': server_id, 'attachment_id': attachment_id}
                for attachment_id, server_id in self.attachments.items()
            ]
            return {'volume': VOLUME | {'attachments': shown}}
        if self.attachments.pop(resource_id, None) is None:
            raise cinder_http.Refused(404, 'no such attachment')
        return {'attachments': []}

    def test_attachments_of_a_volume(self):
        found = self.cinder.find_volume('volume')
        self.assertEqual({'server': 'attachment'}, found.attachments)
        self.attachments.clear()
        self.assertEqual({}, self.cinder.find_volume('volume').attachments)

    def test_deletes_an_attachment(self):
        for _again in range(2):
            self.cinder.delete_attachment('attachment')
            self.assertEqual({}, self.attachments)

    def test_attachment_that_nova_still_has(self):
        self.refusal = 409
        self.assertRaises(
            exceptions.ServiceUnavailableError, self.cinder.delete_attachment, 'attachment'
        )
