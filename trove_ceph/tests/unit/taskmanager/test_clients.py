# SPDX-License-Identifier: Apache-2.0
"""The guest agent, Nova, the tiers file and Trove's instances as the taskmanager sees them."""

import inspect
import io
import json
import types

import fixtures
import novaclient.exceptions
import requests
from keystoneauth1 import session
from oslo_messaging.rpc.client import RemoteError
from oslotest import base
from trove.common import context as trove_context
from trove.common import exception as trove_exceptions
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions, waiting
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.guestagent import manager as guest_manager
from trove_ceph.mysql import tuning
from trove_ceph.strategies.replacement.dependencies import StartProgress, StartState
from trove_ceph.taskmanager import volume_location
from trove_ceph.tests.unit.cinder import cinder_http
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import guest_rpcapi, instance_deletion, nova

TIERS = """
tiers:
  nvme:
    purpose: data
    device_class: nvme
    pool: volumes-nvme
    copies: 2
    placement_groups: {count: 32}
    volume_type: {name: fast, backend: nvme}
"""

ERASURE_CODED = """
  wide: {purpose: vault, device_class: hdd, pool: wide, copies: 2, placement_groups: {count: 8},
         erasure: {k: 2, m: 1}}
"""

VAULTS = """
  slow: {purpose: vault, device_class: hdd, pool: vault-hdd, copies: 2,
         placement_groups: {count: 8}}
---
  slower: {purpose: vault, device_class: tape, pool: vault-tape, copies: 2,
           placement_groups: {count: 8}}
"""


class GuestTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.calls = []
        self.error = None
        self.answer = {'held': True}
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.guestagent.api.API.get_client', lambda *_arguments, **_options: self
            )
        )
        self.guest = guest_rpcapi.GuestAPI(trove_context.TroveContext(), 'instance')

    def prepare(self, **_options):
        return self

    def call(self, _context, method, **arguments):
        self.calls.append((method, arguments))
        if self.error:
            raise self.error
        return self.answer

    def cast(self, context, method, **arguments):
        self.call(context, method, **arguments)

    def test_calls_are_those_of_our_guest_manager(self):
        self.guest.check_backup_settings()
        self.guest.quiesce_for_backup('b', 't', 'ddl', 20)
        self.guest.release_after_backup('b', 't')
        self.guest.trim_volume(900)
        self.guest.apply_tier(tuning.Tier(1.0, 60, 1000))
        self.guest.apply_tier(None)
        self.guest.record_flattened()
        self.answer = {'state': 'starting', 'error': ''}
        self.guest.start_moved_server('r', '9.7.4', '[mysqld]', {'max_connections': 7})
        self.answer['server_id'] = 'a-server'
        self.guest.start_moved_server('r', '9.7.4', '[mysqld]', {}, 'a-server')
        self.guest.start_moved_server('r', '9.7.4', '[mysqld]', {}, 'a-server', True, {})
        self.guest.stop_server()
        self.guest.restart_server()
        for method, arguments in self.calls:
            known = inspect.signature(getattr(guest_manager.Manager, method)).parameters
            given = ('self', 'context', *arguments)
            self.assertEqual(given, tuple(known)[: len(given)])
            for one in tuple(known)[len(given) :]:
                self.assertIsNot(known[one].empty, known[one].default, one)

    def progress(self, state, error=''):
        self.answer = {'state': state, 'error': error}
        return self.guest.start_moved_server('r', '9.7.4', '[mysqld]', {})

    def test_progress_of_a_moved_server(self):
        self.assertEqual(StartProgress(StartState.SERVING), self.progress('serving'))
        self.assertEqual(
            StartProgress(StartState.FAILED, 'unknown variable x'),
            self.progress('failed', 'unknown\n  variable x\n'),
        )
        found = self.progress('failed', 'x' * 10000).error
        self.assertEqual(guest_rpcapi.MAX_ERROR_CHARACTERS, len(found))

    def test_agent_of_an_earlier_release(self):
        for error in (
            RemoteError('NoSuchMethod', 'Endpoint does not support RPC method start_moved_server'),
            TypeError("start_moved_server() got an unexpected keyword argument 'server_id'"),
        ):
            self.error = error
            refused = self.assertRaises(
                exceptions.GuestOutdatedError,
                self.guest.start_moved_server,
                *('r', '9.7.4', '[mysqld]', {}, 'a-server'),
            )
            self.assertIn('so is its guest image', str(refused))

    def test_progress_of_another_server(self):
        """An agent of an earlier release, and the agent of the old server."""
        for found in ({}, {'server_id': None}, {'server_id': 'the-old-server'}):
            self.answer = {'state': 'serving', 'error': ''} | found
            error = self.assertRaises(
                exceptions.GuestUnavailableError,
                self.guest.start_moved_server,
                *('r', '9.7.4', '[mysqld]', {}, 'a-server'),
            )
            self.assertIn('a-server', str(error))

    def test_progress_that_our_guest_agent_never_gives(self):
        for state, error in (
            ('dreaming', ''),
            (None, ''),
            ({'state': 1}, ''),
            ('x' * 10000, ''),
            ('failed', None),
        ):
            refused = self.assertRaises(
                exceptions.GuestUnavailableError, self.progress, state, error
            )
            self.assertLess(len(str(refused)), 300)

    def test_reports_a_trim_that_cannot_be_requested(self):
        self.error = trove_exceptions.GuestError(original_message='no bus')
        self.assertRaises(exceptions.GuestUnavailableError, self.guest.trim_volume, 900)

    def test_the_guest_can_read_the_tier_from_the_message(self):
        tier = tuning.Tier(1.0, 60, 1000)
        self.assertIs(True, self.guest.apply_tier(tier))
        ((_method, arguments),) = self.calls
        self.assertEqual(tier, tuning.Tier(**json.loads(json.dumps(arguments['tier']))))

    def test_errors_carry_the_reason(self):
        self.error = RemoteError('NotQuiescedError', 'the volume is frozen already', [])
        error = self.assertRaises(
            exceptions.ServiceUnavailableError,
            self.guest.quiesce_for_backup,
            'b',
            't',
            'freeze',
            20,
        )
        self.assertIn('instance instance: quiesce_for_backup', str(error))
        self.assertIn('the volume is frozen already', str(error))

    def test_refuses_answers_that_our_guest_agent_never_gives(self):
        for answer, expected in (
            ({'reasons': ['x' * guest_rpcapi.MAX_ANSWER_BYTES]}, 'expected up to 4194304'),
            (['held'], 'answered with list, expected a mapping'),
            (None, 'answered with NoneType'),
        ):
            self.answer = answer
            error = self.assertRaises(
                exceptions.GuestUnavailableError, self.guest.check_backup_settings
            )
            self.assertIn(expected, str(error))


class NovaTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.requests, self.status, self.now = [], 200, 0.0
        self.on_request, self.answer = lambda: None, ANSWER
        http = requests.Session()
        http.mount('http://', Adapter(self))
        token = cinder_http.Token('service', 'admin')
        self.nova = nova.Nova.of_session(
            session.Session(token, session=http),
            start_wait=lambda seconds: waiting.Deadline(seconds, lambda: self.now, self.sleep),
        )

    def sleep(self, seconds):
        self.now += seconds

    def test_keeps_a_volume(self):
        self.nova.keep_volume('server', 'volume')
        (request,) = self.requests
        self.assertEqual('PUT', request.method)
        self.assertTrue(request.url.endswith('/servers/server/os-volume_attachments/volume'))
        self.assertEqual(
            {'volumeAttachment': {'volumeId': 'volume', 'delete_on_termination': False}},
            json.loads(request.body),
        )
        version = request.headers['OpenStack-API-Version']
        self.assertEqual('compute 2.85', version if isinstance(version, str) else version.decode())

    def test_ignores_a_volume_that_is_not_attached(self):
        self.status = 404
        self.nova.keep_volume('server', 'volume')

    def test_reports_a_refusal_by_nova(self):
        self.status = 409
        error = self.assertRaises(
            exceptions.ServiceUnavailableError, self.nova.keep_volume, 'server', 'volume'
        )
        self.assertIn('server server: Nova failed at setting delete_on_termination', str(error))

    def test_attaches_a_volume_that_outlives_the_server(self):
        self.nova.attach_volume('server', 'volume')
        (request,) = self.requests
        self.assertEqual('POST', request.method)
        self.assertTrue(request.url.endswith('/servers/server/os-volume_attachments'))
        # Nova keeps the volume unless it is told otherwise.
        self.assertEqual({'volumeAttachment': {'volumeId': 'volume'}}, json.loads(request.body))

    def test_attaches_a_volume_of_a_server_that_was_just_deleted(self):
        """For some seconds Nova counts the volume as attached."""
        statuses = [400, 400, 200]
        self.on_request = lambda: setattr(self, 'status', statuses.pop(0))
        self.nova.attach_volume('server', 'volume')
        self.assertEqual([], statuses)

    def test_reports_a_volume_that_stays_attached(self):
        self.status = 400
        self.assertRaises(
            exceptions.ServiceUnavailableError, self.nova.attach_volume, 'server', 'volume'
        )
        self.assertEqual(10, self.now)

    def test_detaches_a_volume(self):
        self.nova.detach_volume('server', 'volume')
        (request,) = self.requests
        self.assertEqual('DELETE', request.method)
        self.assertTrue(request.url.endswith('/servers/server/os-volume_attachments/volume'))
        self.status = 404
        self.nova.detach_volume('server', 'volume')
        self.status = 409
        error = self.assertRaises(
            exceptions.ServiceUnavailableError, self.nova.detach_volume, 'server', 'volume'
        )
        self.assertIn('Nova failed at detaching volume volume', str(error))

    def test_finds_the_volumes_of_a_server(self):
        self.answer = b'{"volumeAttachments": [{"volumeId": "a"}, {"volumeId": "b"}]}'
        self.assertEqual({'a', 'b'}, self.nova.find_volumes('server'))

    def test_powers_a_server_off_and_on(self):
        for verb, action in ((self.nova.stop, 'os-stop'), (self.nova.start, 'os-start')):
            self.requests.clear()
            self.status = 202
            verb('server')
            self.assertEqual(
                [{action: None}], [json.loads(request.body) for request in self.requests]
            )
            self.status = 500
            error = self.assertRaises(exceptions.ServiceUnavailableError, verb, 'server')
            self.assertIn('server server: Nova failed at ', str(error))
            self.status = 200

    def test_a_server_that_is_being_started(self):
        self.status = 409
        self.nova.start('server')
        (request,) = self.requests
        self.assertEqual({'os-start': None}, json.loads(request.body))

    def stop_in(self, status, task):
        """Request to power a server off with which Nova does something, or has done it."""
        server = {'id': 'server', 'name': 's', 'status': status, 'OS-EXT-STS:task_state': task}
        self.answer = json.dumps({'server': server}).encode()
        statuses = [409, 200]
        self.on_request = lambda: setattr(self, 'status', statuses.pop(0))
        self.requests.clear()
        self.nova.stop('server')
        self.assertEqual(['{"os-stop": null}', None], [request.body for request in self.requests])

    def test_a_server_that_is_off_or_being_powered_off(self):
        self.stop_in('SHUTOFF', None)
        self.stop_in('ACTIVE', 'powering-off')

    def test_a_server_that_may_start_again(self):
        """Nova reboots it when its host works again."""
        for status, task in (('REBOOT', 'rebooting'), ('SHUTOFF', 'powering-on'), ('PAUSED', None)):
            error = self.assertRaises(
                exceptions.ServiceUnavailableError, self.stop_in, status, task
            )
            self.assertIn('Nova failed at powering it off', str(error))

    def test_leaves_a_server_off_that_is_gone(self):
        self.status = 404
        self.nova.stop('server')
        (request,) = self.requests
        self.assertTrue(request.url.endswith('/servers/server/action'))

    def test_attaches_a_port(self):
        self.nova.attach_port('server', 'port')
        (request,) = self.requests
        self.assertTrue(request.url.endswith('/servers/server/os-interface'))
        self.assertEqual({'interfaceAttachment': {'port_id': 'port'}}, json.loads(request.body))

    def test_describes_a_server(self):
        self.nova.describe('server', 'db1', {'key': 'value'}, ('one', 'two'))
        bodies = {
            request.url.rpartition('/server')[2]: json.loads(request.body)
            for request in self.requests
        }
        self.assertEqual(
            {
                '': {'server': {'name': 'db1'}},
                '/metadata': {'metadata': {'key': 'value'}},
                '/tags': {'tags': ['one', 'two']},
            },
            bodies,
        )

    def test_deletes_a_server_that_is_gone(self):
        self.status = 404
        self.nova.delete('server')


# Of each request the client reads its own part.
ANSWER = json.dumps(
    {
        'volumeAttachment': {},
        'interfaceAttachment': {},
        'metadata': {},
        'tags': [],
        'server': {'id': 'server', 'status': 'ACTIVE'},
    }
).encode()


class Adapter(requests.adapters.BaseAdapter):
    """The network to Nova."""

    def __init__(self, test):
        super().__init__()
        self._test = test

    def send(self, request, **_options):
        self._test.requests.append(request)
        self._test.on_request()
        response = requests.Response()
        response.status_code = self._test.status
        response.headers['Content-Type'] = 'application/json'
        response.url, response.request = request.url, request
        response.raw = io.BytesIO(self._test.answer)
        return response

    def close(self):
        """Do nothing."""


class VolumeLocationsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.path = self.useFixture(fixtures.TempDir()).join('tiers.yaml')
        with open(self.path, 'w') as tiers:
            tiers.write(TIERS)

    def find(self, backend, **facts):
        volume = cinder_resources.Volume(
            'id', 'name', 'in-use', 1, backend, 'project', 'fast', {}, **facts
        )
        return volume_location.VolumeLocations(self.path).find(volume)

    def test_back_ends(self):
        self.assertEqual('volumes-nvme/volume-id', str(self.find('lab@nvme#nvme')))
        self.assertEqual(
            'volumes-nvme/volume-moved', str(self.find('lab@nvme#nvme', name_id='moved'))
        )
        # The back end of a cluster has the cluster's name.
        self.assertEqual('volumes-nvme/volume-id', str(self.find('blocks@nvme#nvme')))
        for backend in ('lab@lvm#lvm', 'lab@nvme', None):
            self.assertIsNone(self.find(backend))

    def test_pools(self):
        locations = volume_location.VolumeLocations(self.path)
        found = [tuple(locations.pools_of(one)) for one in ('volumes-nvme', 'of-no-tier')]
        self.assertEqual([('volumes-nvme',), ('of-no-tier',)], found)
        with open(self.path, 'a') as tiers:
            tiers.write(ERASURE_CODED)
        self.assertEqual(('wide', 'wide-data'), tuple(locations.pools_of('wide')))

    def test_types(self):
        locations = volume_location.VolumeLocations(self.path)
        found = [one for one in ('fast', 'nvme', 'lvm', None) if locations.has_type(one)]
        self.assertEqual(['fast'], found)

    def test_vault(self):
        self.assert_no_vault(None, 'vault_tier is not set', 'none')
        with open(self.path, 'a') as tiers:
            tiers.write(VAULTS.partition('---')[0])
        self.assertEqual('vault-hdd', volume_location.VolumeLocations(self.path).vault())
        self.assert_no_vault('nvme', 'nvme', 'slow')
        with open(self.path, 'a') as tiers:
            tiers.write(VAULTS.partition('---')[2])
        self.assert_no_vault(None, 'vault_tier is not set', 'slow, slower')
        self.assertEqual('vault-tape', volume_location.VolumeLocations(self.path, 'slower').vault())

    def assert_no_vault(self, vault_tier, *words):
        locations = volume_location.VolumeLocations(self.path, vault_tier)
        error = self.assertRaises(exceptions.InvalidTiersError, locations.vault)
        for word in words:
            self.assertIn(word, str(error))

    def test_reports_an_invalid_file(self):
        with open(self.path, 'w') as tiers:
            tiers.write('tiers: []')
        self.assertRaises(exceptions.InvalidTiersError, self.find, 'lab@nvme#nvme')


class InstanceDeletionTest(base.BaseTestCase):
    """Trove's own deletion of an instance whose server is gone."""

    def setUp(self):
        super().setUp()
        trove_database.path()
        self.instance = trove_database.add_instance('project', 'volume', region_id='lab')
        neutron = types.SimpleNamespace(
            list_ports=lambda **_: {'ports': []},
            list_security_groups=lambda **_: {'security_groups': []},
        )
        notifier = types.SimpleNamespace(info=lambda *_: None)
        server_groups = types.SimpleNamespace(list=lambda **_: [])
        flavor = types.SimpleNamespace(name='small', ram=1024)
        self.nova = types.SimpleNamespace(
            servers=types.SimpleNamespace(get=self._gone),
            server_groups=server_groups,
            flavors=types.SimpleNamespace(get=lambda _: flavor),
        )
        for name, value in (
            ('trove.common.clients.create_nova_client', lambda *_, **__: self.nova),
            ('trove.common.clients.create_neutron_client', lambda *_, **__: neutron),
            ('trove.common.clients.create_cinder_client', self._never),
            ('trove.rpc.get_notifier', lambda **_: notifier),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))

    def _gone(self, _server_id):
        raise novaclient.exceptions.NotFound(404)

    def _never(self, *_arguments, **_options):
        raise AssertionError('Cinder must get no request')

    def test_deletes_without_a_request_to_cinder(self):
        context = trove_context.TroveContext(project_id='project', user_id='user')
        instance_deletion.delete_but_volume(context, self.instance.id)
        found = trove_database.instance(self.instance.id)
        self.assertTrue(found.deleted)
        self.assertEqual(InstanceTasks.NONE, found.task_status)
        self.assertEqual('volume', found.volume_id)
