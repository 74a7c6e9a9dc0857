# SPDX-License-Identifier: Apache-2.0
"""What moves the databases of a host is made of the configuration of trove-taskmanager."""

import types
import uuid

import fixtures
from oslotest import base
from trove.common import cfg as trove_cfg

from trove_ceph import exceptions
from trove_ceph.strategies.failover import host_move
from trove_ceph.taskmanager import host_moves
from trove_ceph.tests.unit.taskmanager import trove_database

CONF = trove_cfg.CONF


class HostMovesTest(base.BaseTestCase):
    """The test case acts as the client of Nova."""

    def setUp(self):
        super().setUp()
        trove_database.path()
        self.addCleanup(CONF.reset)
        self.directory = self.useFixture(fixtures.TempDir())
        self.servers = self
        self.listed = []
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.taskmanager.guest_factory.connect_to_nova', lambda conf: self
            )
        )

    def list(self, **options):
        self.assertEqual({'host': 'compute-3', 'all_tenants': 1}, options['search_opts'])
        return self.listed

    def make(self, text=''):
        path = self.directory.join('trove.conf')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        return host_moves.make([path], 'compute-3', 'memory', 60, lambda _text: None)

    def test_finds_the_databases_of_the_host(self):
        instance = trove_database.add_instance(f'project-{uuid.uuid4()}', 'volume')
        instance.update(compute_instance_id=str(uuid.uuid4()))
        found = self.make('[DEFAULT]\nhost = controller\n')
        self.assertIsInstance(found, host_move.HostMove)
        self.assertEqual([], [one for one in found.list() if one.instance_id == instance.id])
        self.listed = [types.SimpleNamespace(id=instance.compute_instance_id)]
        (candidate,) = found.list()
        self.assertEqual((instance.id, None), (candidate.instance_id, candidate.refused))

    def test_reports_a_wrong_configuration(self):
        self.assertRaises(exceptions.InvalidConfigurationError, self.make, 'no section')
