# SPDX-License-Identifier: Apache-2.0
"""The volume of an instance that is replaced: no server but the old one may be detached."""

import types

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.taskmanager import replacement_volumes


class ReplacementVolumesTest(base.BaseTestCase):
    """The test case acts as Cinder."""

    def setUp(self):
        super().setUp()
        self.volume = types.SimpleNamespace(status='in-use')
        self.attachments = {'old-server': 'attachment'}
        self.image = 'image'
        # The status after the deletion of an attachment.
        self.next_status = 'available'
        self.deleted, self.fenced = [], []
        self.volumes = replacement_volumes.ReplacementVolumes(
            self,
            lambda _volume: self.image,
            self.describe,
            lambda *arguments: self.fenced.append(arguments),
        )
        self.features = {'exclusive-lock'}

    def find_volume(self, volume_id):
        self.assertEqual('volume', volume_id)
        return self.volume

    def describe(self, image):
        self.assertEqual('image', image)
        return types.SimpleNamespace(features=self.features)

    def find_attachments(self, volume_id):
        self.assertEqual('volume', volume_id)
        return dict(self.attachments)

    def delete_attachment(self, attachment_id):
        self.deleted.append(attachment_id)
        self.attachments.clear()
        self.volume.status = self.next_status

    def detach(self):
        self.volumes.detach('volume', 'old-server')

    def test_refuses_a_volume_whose_clients_are_not_known(self):
        self.volumes.check('volume')
        self.features = set()
        for text in ('has no exclusive-lock feature', 'is on no tier', 'does not exist'):
            error = self.assertRaises(
                exceptions.ReplacementRefusedError, self.volumes.check, 'volume'
            )
            self.assertIn(text, str(error))
            if self.image is None:
                self.volume = None
            self.image = None

    def test_fences(self):
        self.volumes.fence('volume', self.setUp)
        self.assertEqual([('volume', self.setUp)], self.fenced)

    def test_detaches_from_a_server_whose_host_is_down(self):
        self.detach()
        self.assertEqual(['attachment'], self.deleted)
        self.detach()
        self.assertEqual(['attachment'], self.deleted)

    def test_removes_an_attachment_that_only_reserves_the_volume(self):
        self.volume.status = 'reserved'
        self.detach()
        self.assertEqual(['attachment'], self.deleted)

    def test_waits_until_it_is_available(self):
        self.next_status = 'detaching'
        for _again in range(2):
            error = self.assertRaises(exceptions.InProgressError, self.detach)
            self.assertIn('expected the status available, found detaching', str(error))
        self.volume.status = 'available'
        self.detach()

    def test_leaves_the_attachment_of_another_server(self):
        self.attachments['other'] = 'another'
        error = self.assertRaises(exceptions.InProgressError, self.detach)
        self.assertIn('is attached to server other', str(error))
        self.assertEqual([], self.deleted)

    def test_volume_that_needs_no_detachment(self):
        self.attachments.clear()
        self.volume.status = 'error'
        self.detach()
        self.volume = None
        self.detach()
        self.assertEqual([], self.deleted)
