# SPDX-License-Identifier: Apache-2.0
import datetime

import fixtures
from oslotest import base
from trove.common import cfg as trove_cfg

from trove_ceph import exceptions
from trove_ceph.gc import factory
from trove_ceph.tests.unit.taskmanager import trove_database

CONF = trove_cfg.CONF
TIERS = """
tiers:
  fast:
    purpose: data
    device_class: nvme
    pool: volumes
    copies: 3
    placement_groups: {count: 32}
    volume_type: {name: fast, backend: fast}
  vault:
    purpose: vault
    device_class: hdd
    pool: vault
    copies: 3
    placement_groups: {count: 32}
  images:
    purpose: images
    device_class: hdd
    pool: images
    copies: 3
    placement_groups: {count: 32}
"""


class FactoryTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        trove_database.path()
        self.directory = self.useFixture(fixtures.TempDir())
        self.addCleanup(CONF.reset)
        self.deps = object()
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.taskmanager.factory.make_dependencies', lambda conf, context: self.deps
            )
        )
        # It connects the clients of this process.
        self.servers = object()
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.taskmanager.guest_factory.make_servers', lambda conf: self.servers
            )
        )

    def write(self, name, text):
        path = self.directory.join(name)
        with open(path, 'w') as file:
            file.write(text)
        return path

    def test_examines_the_pools_of_volumes_and_copies(self):
        tiers = self.write('tiers.yaml', TIERS)
        one = self.write('trove.conf', '[DEFAULT]\ntiers_file = of another section\n')
        other = self.write('more.conf', f'[trove_ceph_backup]\ntiers_file = {tiers}\n')
        collector = factory.make_collector([one, other], datetime.timedelta(hours=1))
        self.assertEqual((['volumes', 'vault'], self.deps), (collector._pools, collector._deps))
        self.assertIs(self.servers, collector._guests._cloud)
        age = datetime.datetime.now(datetime.UTC) - collector._before
        self.assertLess(abs(age - datetime.timedelta(hours=1)), datetime.timedelta(minutes=5))

    def test_refuses_an_unreadable_file(self):
        error = self.assertRaises(
            exceptions.InvalidConfigurationError,
            factory.make_collector,
            ['/nowhere.conf'],
            datetime.timedelta(0),
        )
        self.assertIn('/nowhere.conf', str(error))
