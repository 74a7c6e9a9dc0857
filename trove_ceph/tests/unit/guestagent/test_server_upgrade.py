# SPDX-License-Identifier: Apache-2.0
"""MySQL is upgraded in place, once its image is there."""

from unittest import mock

import docker
from oslotest import base
from trove.common import cfg, exception

from trove_ceph import exceptions
from trove_ceph.guestagent import server

CONF = cfg.CONF
UPGRADE = {'instance_id': 'i', 'datastore_version': '9.8.1'}


class UpgradeTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        for name, value in (('datastore_manager', 'mysql'), ('datastore_version', '9.7.4')):
            CONF.set_override(name, value)
            self.addCleanup(CONF.clear_override, name)
        self.done = mock.Mock()
        self.subject = server.MySqlServer(mock.Mock(), self.done.docker, mock.Mock(), 77)
        self.subject.stop_db = self.done.stop
        self.subject.start_db = self.done.start
        self.image = CONF.mysql.docker_image
        asked = mock.call.docker.images.get(f'{self.image}:9.8.1')
        self.pulled = [asked, mock.call.docker.images.pull(self.image, tag='9.8.1')]
        self.started = [
            mock.call.stop(),
            mock.call.docker.containers.get('database'),
            mock.call.docker.containers.get().remove(force=True),
            mock.call.start(update_db=True, ds_version='9.8.1'),
        ]

    def test_image_that_is_there(self):
        self.subject.upgrade(UPGRADE)
        self.assertEqual([self.pulled[0], *self.started], self.done.mock_calls)

    def test_image_that_is_pulled(self):
        self.done.docker.images.get.side_effect = docker.errors.ImageNotFound('none')
        self.subject.upgrade(UPGRADE)
        self.assertEqual([*self.pulled, *self.started], self.done.mock_calls)

    def test_image_that_cannot_be_had(self):
        self.done.docker.images.get.side_effect = docker.errors.ImageNotFound('none')
        for error in (docker.errors.NotFound('manifest unknown'), docker.errors.APIError('full')):
            self.done.reset_mock()
            self.done.docker.images.pull.side_effect = error
            found = self.assertRaises(exceptions.ServerFailedError, self.subject.upgrade, UPGRADE)
            self.assertIn(f'goes on: {self.image}:9.8.1 cannot be pulled: {error}', str(found))
            self.assertEqual(self.pulled, self.done.mock_calls)

    def test_another_major_version(self):
        self.assertRaises(
            exception.TroveError, self.subject.upgrade, {'datastore_version': '10.0.1'}
        )
        self.assertEqual([], self.done.mock_calls)
