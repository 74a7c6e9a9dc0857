# SPDX-License-Identifier: Apache-2.0
"""The storage service's message bus in tests: options, keys, and a bus without transport."""

import json

import fixtures

from trove_ceph import message_auth
from trove_ceph.conf import storage as storage_conf
from trove_ceph.storage_service import message_keys, receiver

GROUP = storage_conf.GROUP.name
URL = 'fake:///trove-ceph'


class StorageTransport(fixtures.Fixture):
    """Configures a separate in-memory transport for the storage service, and a key file.

    :param conf: gets the options
    """

    def __init__(self, conf):
        self._conf = conf

    def _setUp(self):
        self.key_file = self.useFixture(fixtures.TempDir()).join('storage-keys.json')
        message_keys.create(self.key_file)
        storage_conf.register_transport(self._conf)
        self.set('transport_url', URL)
        self.set('key_file', self.key_file)

    def set(self, name, value):
        self._conf.set_override(name, value, GROUP)
        self.addCleanup(self._conf.clear_override, name, GROUP)


class Bus:
    """A client of oslo.messaging that calls the service in the same process.

    :param service: a copy of the service from :mod:`.service_world`
    :param keys: the key file of the service
    :param now: its clock
    :param tap: called with each request and each reply on the bus; returns the message to deliver
    """

    def __init__(self, service, keys, now, tap=lambda kind, message: message, skew_sec=30):
        self.verifier = message_auth.Verifier(keys, 'one', skew_sec, now)
        self.receiver = receiver.Receiver(service.endpoint, service.evidence, self.verifier)
        self._tap = tap

    def prepare(self, **_options):
        return self

    def call(self, context, method, message):
        request = self._tap('request', cross(message))
        return self._tap('reply', cross(getattr(self.receiver, method)(context, request)))


def cross(message):
    """Return a message as the other side of the bus receives it."""
    return json.loads(json.dumps(message))
