# SPDX-License-Identifier: Apache-2.0
"""Copies of the service and a caller on a bus in memory, for the tests of both."""

import time
import uuid

import fixtures
from oslo_config import cfg
from oslo_messaging import conffixture
from oslotest import base

from trove_ceph.conf import storage as storage_conf
from trove_ceph.storage import names
from trove_ceph.storage.fake import backend, lock_store
from trove_ceph.storage_service import message_keys, rpcapi, server
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.storage_service import service_world

TIMEOUT_SEC = 60
#: Managed names, on which each verb may be used.
IMAGE = names.image_name('restore', str(uuid.uuid4()))
VAULT = names.image_name('vault', str(uuid.uuid4()))


class BusTestCase(base.BaseTestCase):
    """With a cluster that uses the real clock."""

    url = 'fake://'

    def setUp(self):
        super().setUp()
        self.world = service_world.World(IMAGE, VAULT)
        self.world.cluster.clock = time.monotonic
        self.key_file = self.useFixture(fixtures.TempDir()).join('keys.json')
        message_keys.create(self.key_file)
        self.conf = cfg.ConfigOpts()
        self.useFixture(conffixture.ConfFixture(self.conf))
        storage_conf.register(self.conf)
        self.conf([])
        self.conf.set_override('transport_url', self.url, 'trove_ceph_storage')
        self.conf.set_override('key_file', self.key_file, 'trove_ceph_storage')
        # The whole process shares one fake bus.
        exchange = f'test-{uuid.uuid4().hex}'
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.storage_service.rpcapi.EXCHANGE', exchange)
        )
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.storage_service.server._HEARTBEAT_SEC', 0.05)
        )
        self.connection = self.connect()
        self.api = rpcapi.StorageAPI(self.connection, timeout_sec=TIMEOUT_SEC)
        self.image, self.vault = self.world.image, self.world.vault

    def connect(self):
        """Connect to the bus, until the end of the test.

        With the driver of RabbitMQ, a thread waits for replies. On the bus in memory it does so
        without a pause, and would slow down all later tests of the process.
        """
        connection = rpcapi.connect(self.conf)
        self.addCleanup(connection.transport.cleanup)
        return connection

    def serve(self, name, builder=None):
        """Start a copy of the service.

        :param builder: of golden volumes
        """
        service = server.Service(
            backend.FakeBackend(self.world.cluster),
            lock_store.FakeLockStore(self.world.cluster),
            service_world.POOLS,
            self.conf.trove_ceph_storage,
            name,
            builder=builder,
        )
        served = server.Server(service, self.connect())
        served.start()
        self.addCleanup(served.stop)
        return served


class CommandTestCase(BusTestCase):
    """With the configuration file of a command that is run in this process."""

    words: tuple[str, ...] = ()

    def setUp(self):
        super().setUp()
        self.addCleanup(cfg.CONF.reset)
        self.config = self.useFixture(fixtures.TempDir()).join('storage.conf')
        with open(self.config, 'w') as config:
            config.write('[trove_ceph_storage]\ntransport_url = fake://\n')
            config.write(f'key_file = {self.key_file}\n')

    def command(self, *arguments):
        """Run the command of the class; return exit status and output."""
        result = command.run(*self.words, *arguments, '--config-file', self.config)
        self.err = result.err
        return result.status, result.out
