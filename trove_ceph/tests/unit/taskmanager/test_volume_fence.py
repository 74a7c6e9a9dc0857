# SPDX-License-Identifier: Apache-2.0
"""A volume counts as fenced only with the proof of the storage service."""

import types

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import tasks
from trove_ceph.storage.image_types import ImageRef
from trove_ceph.taskmanager import volume_fence

IMAGE = ImageRef('volumes', 'volume-1')


class VolumeFenceTest(base.BaseTestCase):
    """The test case acts as Cinder, the tiers file and the storage service."""

    def setUp(self):
        super().setUp()
        self.volumes = {'volume': object()}
        self.images = {self.volumes['volume']: IMAGE}
        self.ran = []
        self.error = None
        self.clients = ['a-watcher']

    def find_volume(self, volume_id):
        return self.volumes.get(volume_id)

    def describe(self, image):
        self.assertEqual(IMAGE, image)
        return types.SimpleNamespace(
            image_id='10ab', clients=tuple(self.clients), lock_owner='the-owner'
        )

    def run_job(self, operation_id, work, _timeout_sec):
        if self.error is not None:
            raise self.error
        self.ran.append((operation_id, work))

    def fence(self, volume_id='volume', confirm=None):
        storage = types.SimpleNamespace(describe=self.describe, run=self.run_job)
        volume_fence.VolumeFence(self, storage, self.images.get).fence(volume_id, confirm)

    def test_fences_the_image(self):
        self.fence()
        # The permissions of the storage service require this operation id.
        self.assertEqual([('fence.10ab', tasks.FenceTask(IMAGE))], self.ran)

    def test_fences_only_clients_that_were_there_before_the_claim_was_confirmed(self):
        self.fence(confirm=lambda: self.clients.append('of-the-successor'))
        ((operation_id, work),) = self.ran
        self.assertEqual(frozenset({'a-watcher', 'the-owner'}), work.only)
        self.assertEqual(tasks.FenceTask.operation_id('10ab', work.only), operation_id)
        self.assertTrue(operation_id.startswith('fence.10ab.'))

    def test_fences_nothing_without_the_claim(self):
        def confirm():
            raise exceptions.ClaimLostError('another worker has it')

        self.assertRaises(exceptions.ClaimLostError, self.fence, confirm=confirm)
        self.assertEqual([], self.ran)

    def assert_not_fenced(self, text, volume_id='volume'):
        error = self.assertRaises(exceptions.NotFencedError, self.fence, volume_id)
        self.assertIn(text, str(error))
        self.assertEqual([], self.ran)

    def test_volume_whose_clients_are_not_known(self):
        self.assert_not_fenced('does not exist', 'other')
        self.images.clear()
        self.assert_not_fenced('is on no tier')

    def test_any_other_error_is_no_proof(self):
        for error in (
            exceptions.StillRunningError('still running'),
            exceptions.ServiceUnavailableError('no answer'),
            exceptions.NotFencedError('still held'),
        ):
            self.error = error
            self.assert_not_fenced(str(error))
