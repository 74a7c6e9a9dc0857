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

    def find_volume(self, volume_id):
        return self.volumes.get(volume_id)

    def describe(self, image):
        self.assertEqual(IMAGE, image)
        return types.SimpleNamespace(image_id='10ab')

    def run_job(self, operation_id, work, _timeout_sec):
        if self.error is not None:
            raise self.error
        self.ran.append((operation_id, work))

    def fence(self, volume_id='volume'):
        storage = types.SimpleNamespace(describe=self.describe, run=self.run_job)
        volume_fence.VolumeFence(self, storage, self.images.get).fence(volume_id)

    def test_fences_the_image(self):
        self.fence()
        # The permissions of the storage service require this operation id.
        self.assertEqual([('fence.10ab', tasks.FenceTask(IMAGE))], self.ran)

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
