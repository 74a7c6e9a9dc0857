# SPDX-License-Identifier: Apache-2.0
from unittest import mock

import docker
import fixtures
import requests
from oslotest import base

from trove_ceph.guestagent import rehearsal


class FakeContainers:
    """The containers of a docker daemon; ``error`` is raised once a container was started."""

    def __init__(self):
        self.names = []
        self.runs = []
        self.error = None

    def list(self, all, filters):
        name = filters['name'].removeprefix('^/').removesuffix('$')
        return [mock.Mock(remove=self._remover(one)) for one in self.names if one == name]

    def _remover(self, name):
        return lambda force: self.names.remove(name)

    def run(self, image, command, name, **options):
        if name in self.names:
            raise docker.errors.APIError(f'Conflict: {name} is in use')
        self.names.append(name)
        self.runs.append((image, command, options))
        if self.error:
            raise self.error


class RehearsalTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.ensure_directory = self.useFixture(
            fixtures.MockPatch('trove.guestagent.common.operating_system.ensure_directory')
        ).mock
        self.containers = FakeContainers()
        self.client = mock.Mock(containers=self.containers)

    def rehearse(self):
        rehearsal.run(self.client, 'mysql:9.7.4', 1001, 1002)

    def test_one_container_makes_the_keys_where_the_database_finds_them(self):
        self.rehearse()

        ((image, command, options),) = self.containers.runs
        self.assertEqual(('mysql:9.7.4', 'make-keys'), (image, command))
        self.assertEqual('1001:1002', options['user'])
        self.assertEqual({'/etc/mysql': {'bind': '/etc/mysql', 'mode': 'rw'}}, options['volumes'])
        self.ensure_directory.assert_called_once_with(
            '/etc/mysql', user=1001, group=1002, as_root=True
        )
        self.assertEqual([], self.containers.names)

    def test_again_after_an_interruption(self):
        self.containers.names = ['database', rehearsal.CONTAINER]

        self.rehearse()

        self.assertEqual(1, len(self.containers.runs))
        self.assertEqual(['database'], self.containers.names)

    def test_what_fails_leaves_nothing(self):
        for error in (
            docker.errors.ContainerError(None, 127, 'make-keys', 'mysql:9.7.4', b'not found'),
            docker.errors.APIError('exec: make-keys: not found'),
            requests.exceptions.ReadTimeout('Read timed out'),
        ):
            self.containers.error = error

            self.rehearse()

            self.assertEqual([], self.containers.names)
        self.assertEqual(3, len(self.containers.runs))

    def test_a_missing_image_is_not_pulled(self):
        self.client.images.get.side_effect = docker.errors.ImageNotFound('mysql:9.7.4')

        self.rehearse()

        self.assertEqual([], self.containers.runs)
