# SPDX-License-Identifier: Apache-2.0
"""A waiting guest in a temporary directory, and what the taskmanager sends it."""

import os
import secrets

import fixtures
import oslo_messaging as messaging
from oslo_config import cfg
from oslo_messaging import conffixture
from trove.common import context
from trove.common.rpc import secure_serializer
from trove.common.rpc import serializer as trove_serializer

from trove_ceph import message_auth
from trove_ceph.conf import guest as guest_conf
from trove_ceph.guestagent import waiting_messages

GUEST, INSTANCE, VOLUME = (f'{digit * 8}-0000-4000-8000-{digit * 12}' for digit in '123')
MAC = 'fa:16:3e:00:00:01'
INTERFACE = {
    'mac': MAC,
    'mtu': 1442,
    'addresses': ['10.0.0.5/24'],
    'gateway': '10.0.0.1',
    'routes': [],
    'nameservers': [],
}
TENANTS_SECRET = 'rpc-key-of-the-instance'
LOAD = {'volume_id': VOLUME, 'version': '9.7.4', 'contents': '[mysqld]\n'}


class Machine(fixtures.Fixture):
    """The files of a waiting guest."""

    def _setUp(self):
        self.root = self.useFixture(fixtures.TempDir()).path
        self.directory = os.path.join(self.root, 'conf.d')
        self.network = os.path.join(self.root, 'network')
        os.mkdir(self.directory)
        self.rpc_key, self.signing_key = secrets.token_hex(16), secrets.token_hex(32)
        # The whole process shares one fake bus.
        self.bus = f'transport_url = fake://\ncontrol_exchange = {secrets.token_hex(8)}\n'
        self.write('trove-guestagent.conf', f'[DEFAULT]\n{self.bus}')
        self.write('guest_info.conf', info(GUEST, self.rpc_key))
        self.write('waiting-guest.conf', f'[trove_ceph]\nwaiting_guest_key = {self.signing_key}\n')
        module = 'trove_ceph.guestagent.network_interface'
        self.useFixture(fixtures.MonkeyPatch(f'{module}.DIRECTORY', self.network))
        self.useFixture(fixtures.MonkeyPatch(f'{module}.RELOAD', ('true',)))
        module = 'trove_ceph.guestagent.guest_identity'
        hostname = os.path.join(self.root, 'hostname')
        self.useFixture(fixtures.MonkeyPatch(f'{module}.HOSTNAME_PATH', hostname))
        self.useFixture(fixtures.MonkeyPatch(f'{module}.SET_HOSTNAME', ('true',)))

    def write(self, name, content):
        with open(self.path(name), 'w') as file:
            file.write(content)

    def path(self, name):
        return os.path.join(self.directory, name)

    def files(self):
        """Return the contents of all files by their paths below the root."""
        return {
            os.path.relpath(os.path.join(directory, name), self.root): open(
                os.path.join(directory, name)
            ).read()
            for directory, _, names in os.walk(self.root)
            for name in names
        }

    def conf(self):
        """Read the files as an agent does at its start."""
        conf = cfg.ConfigOpts()
        conf.register_opts(
            [cfg.StrOpt('guest_id'), cfg.StrOpt('instance_rpc_encr_key'), cfg.BoolOpt('x')]
        )
        guest_conf.register(conf)
        self.useFixture(conffixture.ConfFixture(conf))
        conf(['--config-dir', self.directory])
        return conf

    def arguments(self, **changes):
        """Return the arguments of a bind request."""
        files = {
            self.path('guest_info.conf'): info(INSTANCE, TENANTS_SECRET),
            self.path('trove-guestagent.conf'): f'[DEFAULT]\n{self.bus}x = true\n',
        }
        return {
            'instance_id': INSTANCE,
            'files': files,
            'volume_id': VOLUME,
            'interfaces': [INTERFACE],
        } | changes


def info(guest_id, rpc_key):
    return (
        f'[DEFAULT]\nguest_id={guest_id}\ndatastore_manager=mysql\n'
        f'instance_rpc_encr_key={rpc_key}\n'
    )


class Server:
    """The guest manager before there is an instance; the test finishes its start."""

    def __init__(self):
        self.loads, self._started = [], []
        self.error = None
        self.serves = True

    def run(self, start):
        self._started.append(start)

    def finish(self):
        while self._started:
            self._started.pop()()

    def start_without_instance(self, load):
        self.loads.append(load)
        if self.error:
            raise self.error

    def is_serving_without_instance(self):
        return self.serves


class Taskmanager:
    """Calls a waiting guest on the bus, as the taskmanager does.

    :param machine: whose keys it has
    :ivar transport: of oslo.messaging
    """

    def __init__(self, machine, transport):
        self.transport = transport
        self.caller = message_auth.Caller(waiting_messages.signing_keys(GUEST, machine.signing_key))
        serializer = secure_serializer.SecureSerializer(
            trove_serializer.TroveRequestContextSerializer(None), machine.rpc_key
        )
        target = messaging.Target(topic=waiting_messages.topic(GUEST))
        self._client = messaging.get_rpc_client(transport, target, serializer=serializer)

    def call(self, verb, arguments=None, address=None, timeout_sec=30):
        """Return the content of the answer."""
        message, request = self.caller.sign(verb, arguments or {}, timeout_sec, address)
        client = self._client.prepare(timeout=timeout_sec)
        reply = client.call(context.TroveContext(), str(verb), message=message)
        return self.caller.open_reply(reply, request)

    def ping(self):
        return self.call(waiting_messages.Verb.PING)

    def bind(self, arguments):
        address = message_auth.Address(**self.ping()['address'])
        return self.call(waiting_messages.Verb.BIND, arguments, address)
