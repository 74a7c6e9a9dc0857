# SPDX-License-Identifier: Apache-2.0
"""A taskmanager meets agents of an earlier release, over a bus of oslo.messaging."""

import datetime
import uuid

import fixtures
import oslo_messaging as messaging
from oslo_config import cfg
from oslo_messaging import conffixture
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import context as trove_context

from trove_ceph import exceptions
from trove_ceph.db.guest_record import GuestState
from trove_ceph.guestagent import waiting_messages
from trove_ceph.tests.unit.db import guest_helpers
from trove_ceph.trove_adapter import guest_keys, guest_rpcapi, waiting_guest_rpcapi

CONF = trove_cfg.CONF
TIMEOUT_SEC = 60


class InstanceAgent:
    """The agent of an instance, of a release that knew neither a request nor an argument."""

    target = messaging.Target(version='1.0')

    def trim_volume(self, context):
        """Answer without the limit that requests have now."""

    def stop_db(self, context):
        """Do as all releases do."""
        return {}


class AgentVersionsTest(base.BaseTestCase):
    """This bus delivers the exceptions of an agent as they are."""

    url = 'fake://'

    def setUp(self):
        super().setUp()
        conf = cfg.ConfigOpts()
        self.useFixture(conffixture.ConfFixture(conf))
        conf([])
        self.transport = messaging.get_rpc_transport(conf, url=self.url)
        self.addCleanup(self.transport.cleanup)
        self.useFixture(
            fixtures.MonkeyPatch('trove.guestagent.api.API.get_client', self._instance_client)
        )
        self.useFixture(fixtures.MonkeyPatch('trove.rpc.get_client', self._guest_client))
        CONF.set_override('inst_rpc_key_encr_key', 'a key of the control plane')
        self.addCleanup(CONF.clear_override, 'inst_rpc_key_encr_key')

    def _instance_client(self, _api, target, *_arguments, **_options):
        return messaging.get_rpc_client(self.transport, target)

    def _guest_client(self, target, key, version_cap):
        return messaging.get_rpc_client(self.transport, target, version_cap=version_cap)

    def serve(self, topic, endpoint):
        served = messaging.get_rpc_server(
            self.transport,
            messaging.Target(topic=topic, server='guest'),
            [endpoint],
            access_policy=messaging.DefaultRPCAccessPolicy,
        )
        served.start()
        self.addCleanup(served.wait)
        self.addCleanup(served.stop)

    def agent_of_an_instance(self):
        instance_id = str(uuid.uuid4())
        guest = guest_rpcapi.GuestAPI(trove_context.TroveContext(), instance_id)
        guest.agent_high_timeout = TIMEOUT_SEC
        self.serve(f'guestagent.{instance_id}', InstanceAgent())
        return guest, instance_id

    def test_an_agent_that_does_not_know_a_request(self):
        guest, instance_id = self.agent_of_an_instance()
        error = self.assertRaises(exceptions.GuestOutdatedError, guest.check_backup_settings)
        self.assertIn(f'guest agent of instance {instance_id}: check_backup_settings', str(error))
        self.assertIn('rebuild the instance on the guest image of this release', str(error))
        guest.stop_server()

    def test_an_agent_that_does_not_know_an_argument(self):
        guest, _ = self.agent_of_an_instance()
        error = self.assertRaises(
            exceptions.GuestOutdatedError, guest._call_checked, 'trim_volume', max_age_sec=900
        )
        self.assertIn('rebuild the instance on the guest image of this release', str(error))

    def test_a_waiting_guest_of_an_earlier_version(self):
        major = waiting_messages.VERSION.partition('.')[0]

        class Earlier:
            target = messaging.Target(version=f'{major}.0')

            def ping(self, context, message):
                raise AssertionError('it is of another version')

        guest = guest_helpers.record(
            str(uuid.uuid4()),
            datetime.datetime(2026, 1, 1),
            GuestState.READY,
            encrypted_key=guest_keys.encrypt(guest_keys.make()),
        )
        self.serve(waiting_messages.topic(guest.guest_id), Earlier())
        api = waiting_guest_rpcapi.WaitingGuestAPI(context={})
        error = self.assertRaises(exceptions.GuestOutdatedError, api.ping, guest)
        self.assertIn(guest.guest_id, str(error))
        self.assertIn(f'its agent is older than version {waiting_messages.VERSION}', str(error))
        self.assertIn('build the guest image of this release', str(error))


class SerializedTest(AgentVersionsTest):
    """The same, on a bus that sends exceptions as text."""

    url = 'kombu+memory:////'
