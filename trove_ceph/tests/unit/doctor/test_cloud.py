# SPDX-License-Identifier: Apache-2.0
"""The services of OpenStack, by openstacksdk on answers of Cinder and Nova."""

import datetime
import importlib.metadata
import types
from unittest import mock

import fixtures
import keystoneauth1.adapter
import keystoneauth1.session
from keystoneauth1 import noauth
from openstack import exceptions as sdk_exceptions
from openstack.block_storage.v3 import service as volume_service
from openstack.compute.v2 import service as compute_service
from openstack.image.v2 import image
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.doctor import cloud
from trove_ceph.doctor.cloud_facts import API_LISTS, AgentImage, ServiceFacts

VOLUME = {
    'binary': 'cinder-volume',
    'host': 'a@fast',
    'state': 'down',
    'status': 'enabled',
    'updated_at': '2026-11-24T03:00:01.000000',
}
COMPUTE = {
    'binary': 'nova-compute',
    'host': 'a',
    'state': 'up',
    'status': 'disabled',
    'updated_at': None,
}
CONF = types.SimpleNamespace(service_credentials=types.SimpleNamespace(region_name='RegionOne'))


class FakeConnection:
    """openstacksdk's connection, with its own resources."""

    def __init__(self, session, region_name):
        self.region_name = region_name
        self.block_storage = mock.Mock()
        self.block_storage.services.return_value = iter([volume_service.Service(**VOLUME)])
        self.compute = mock.Mock()
        self.compute.services.return_value = iter([compute_service.Service(**COMPUTE)])
        self.image = mock.Mock()
        self.image.images.return_value = iter(
            [
                image.Image(id='other', tags=[]),
                image.Image(id='i', tags=['a'], trove_ceph_agent='1.4'),
            ]
        )
        self.config = mock.Mock()
        self.config.get_session_client.side_effect = lambda name: keystoneauth1.adapter.Adapter(
            session, service_type=name, region_name=region_name
        )


class CloudTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        session = keystoneauth1.session.Session(auth=noauth.NoAuth(endpoint='http://cloud.test'))
        for name, replacement in (
            ('trove_ceph.trove_adapter.service_session.get', lambda: session),
            ('openstack.connection.Connection', FakeConnection),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, replacement))
        self.cloud = cloud.Cloud(CONF)

    def test_services(self):
        at = datetime.datetime(2026, 11, 24, 3, 0, 1)
        self.assertEqual(
            [
                ServiceFacts('cinder', 'cinder-volume', 'a@fast', False, True, at),
                ServiceFacts('nova', 'nova-compute', 'a', True, False, None),
            ],
            self.cloud.services(),
        )

    def test_services_that_do_not_answer(self):
        error = sdk_exceptions.HttpException('503')
        self.cloud._connection.compute.services.side_effect = error
        self.assertRaisesRegex(
            exceptions.ServiceUnavailableError,
            'listing the services of Nova: .*503',
            self.cloud.services,
        )

    def test_images_with_our_guest_agent(self):
        self.assertEqual([AgentImage('i', ('a',))], self.cloud.agent_images())
        self.cloud._connection.image.images.assert_called_once_with(status='active')
        self.cloud._connection.image.images.side_effect = sdk_exceptions.HttpException('503')
        self.assertRaisesRegex(
            exceptions.ServiceUnavailableError,
            'listing the images of Glance: .*503',
            self.cloud.agent_images,
        )

    def _answers(self, *statuses):
        """Have Trove's API answer with these statuses; return the paths that are asked for."""
        asked, left = [], list(statuses)

        def get(adapter, path, **options):
            self.assertEqual(('database', False), (adapter.service_type, options['raise_exc']))
            asked.append(path)
            return types.SimpleNamespace(status_code=left.pop(0))

        self.useFixture(fixtures.MonkeyPatch('keystoneauth1.adapter.Adapter.get', get))
        return asked

    def test_extensions_of_the_live_api(self):
        asked = self._answers(200, 404, 403, 404)
        found = self.cloud.missing_extensions()
        self.assertEqual(['trove_ceph_failovers', 'trove_ceph_replication'], found)
        self.assertEqual([f'/{path}?limit=1' for path in API_LISTS.values()], asked)

    def test_api_that_fails(self):
        self._answers(503)
        self.assertRaisesRegex(
            exceptions.ServiceUnavailableError,
            'GET /backup_policies with the status 503',
            self.cloud.missing_extensions,
        )

    def test_lists_are_those_of_the_extensions(self):
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.api.extension._prepare', lambda: None))
        found = importlib.metadata.entry_points(group='trove.api.extensions')
        for name, path in API_LISTS.items():
            resources = found[name].load()().get_resources()
            of_path = {one.collection: one.controller for one in resources}
            self.assertTrue(hasattr(of_path[f'{{tenant_id}}/{path}'], 'index'), path)

    def test_cinder(self):
        adapter = self.cloud.cinder()._client.client
        self.assertEqual('block-storage', adapter.service_type)
        self.assertEqual('RegionOne', adapter.region_name)
