# SPDX-License-Identifier: Apache-2.0
from unittest import mock

import docker
import fixtures
from oslotest import base

from trove_ceph.guestagent import rehearsal


class RehearsalTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.ensure_directory = self.useFixture(
            fixtures.MockPatch('trove.guestagent.common.operating_system.ensure_directory')
        ).mock
        self.client = mock.Mock()
        self.client.containers.list.return_value = []

    def run_once(self):
        rehearsal.run(self.client, 'mysql:9.7.4', 1001, 1002)

    def run_arguments(self):
        self.client.containers.run.assert_called_once()
        return self.client.containers.run.call_args

    def test_one_container_makes_the_keys_where_the_database_finds_them(self):
        self.run_once()

        arguments = self.run_arguments()
        self.assertEqual(('mysql:9.7.4', 'make-keys'), arguments.args)
        self.assertEqual(
            {'/etc/mysql': {'bind': '/etc/mysql', 'mode': 'rw'}}, arguments.kwargs['volumes']
        )
        self.assertEqual('1001:1002', arguments.kwargs['user'])
        self.assertTrue(arguments.kwargs['remove'])
        self.ensure_directory.assert_called_once_with(
            '/etc/mysql', user=1001, group=1002, as_root=True
        )

    def test_a_container_of_an_interrupted_rehearsal_is_removed_first(self):
        left = mock.Mock()
        self.client.containers.list.return_value = [left]
        left.remove.side_effect = lambda force: self.client.containers.run.assert_not_called()

        self.run_once()

        left.remove.assert_called_once_with(force=True)
        filters = self.client.containers.list.call_args.kwargs['filters']
        self.assertEqual({'name': '^/rehearsal$'}, filters)
        self.run_arguments()

    def test_an_image_that_does_not_know_the_command(self):
        for error in (
            docker.errors.ContainerError(None, 127, 'make-keys', 'mysql:9.7.4', b'not found'),
            docker.errors.APIError('exec: make-keys: not found'),
            docker.errors.ImageNotFound('mysql:9.7.4'),
        ):
            self.client.containers.run.side_effect = error
            self.run_once()
