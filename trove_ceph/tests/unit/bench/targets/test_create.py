# SPDX-License-Identifier: Apache-2.0
import jsonschema
from oslotest import base

from trove_ceph import exceptions
from trove_ceph_bench import targets

LOCAL = {'mysqld': {'rootfs': 'auto'}, 'on': {'local': '/srv'}}
RBD = {'pool': 'volumes', 'size_gib': 2}
VALID = (
    {'instance': 'shop'},
    {'instance': 'shop', 'address': '10.0.0.1:3307', 'ceph': {'pool': 'volumes'}},
    {'dsn': 'mysql://u@h', 'image': 'volumes/data'},
    {'server': LOCAL},
    {'server': LOCAL | {'on': {'path': '/mnt'}, 'mysqld': {'binary': '/usr/sbin/mysqld'}}},
    {
        'server': LOCAL
        | {
            'profile': 'stock',
            'flavor': {'ram_mib': 1024, 'vcpus': 1},
            'volume': {'size_gib': 10, 'iops': 3000},
            'options': {'sync_binlog': 1, 'innodb_doublewrite': False, 'log_bin': 'b'},
            'on': {'rbd': RBD | {'keep': True, 'image_options': {'rbd_cache': False}}},
        }
    },
)
FLEET = {'name': 'bench-fleet', 'like': 'shop', 'volume_gib': 100}
SIZE = {'ram_mib': 8192, 'vcpus': 4}
VALID += (
    {'server': LOCAL, 'number': 2},
    {'create': FLEET | {'flavor': SIZE}, 'number': 10},
    {
        'create': FLEET | {'flavor': {'name': 'db.large'}, 'volume_type': 'nvme', 'zone': 'b'},
        'ceph': {'pool': 'volumes'},
    },
)
INVALID = (
    ({'create': FLEET | {'flavor': SIZE, 'name': 'shop'}}, 'create.name'),
    ({'create': FLEET}, 'flavor'),
    ({'create': FLEET | {'flavor': {'vcpus': 4}}}, 'create.flavor'),
    ({'server': LOCAL, 'number': 0}, 'number'),
    ({}, 'expected exactly one of'),
    ({'instance': 'a', 'dsn': 'mysql://u@h'}, 'instance and dsn'),
    ({'instance': 'a', 'password_env': 'P'}, 'password_env'),
    ({'dsn': 'postgres://u@h'}, 'postgres'),
    ({'instance': 'a', 'image': 'no-pool'}, 'no-pool'),
    ({'server': {'mysqld': {'rootfs': 'auto'}}}, "'on' is a required property"),
    ({'server': LOCAL | {'mysqld': {}}}, 'server.mysqld'),
    ({'server': LOCAL | {'on': {'rbd': {'pool': 'p'}}}}, 'size_gib'),
    ({'server': LOCAL | {'on': {'rbd': RBD | {'size_gib': 0}}}}, 'size_gib'),
    ({'server': LOCAL | {'profile': 'fast'}}, 'fast'),
    ({'server': LOCAL | {'profile': 'stock'}}, 'needs a flavor'),
    ({'server': LOCAL | {'flavor': {'ram_mib': 0, 'vcpus': 1}}}, 'ram_mib'),
)


class CreateTest(base.BaseTestCase):
    def create(self, spec):
        return targets.create('t', spec, targets.Settings(environment={}))

    def test_schema_is_valid(self):
        jsonschema.Draft202012Validator.check_schema(targets.SCHEMA)

    def test_creates_targets_of_valid_specifications(self):
        for spec in VALID:
            self.assertEqual('t', self.create(spec).name)

    def test_refuses_invalid_specifications_with_the_reason(self):
        for spec, reason in INVALID:
            error = self.assertRaises(exceptions.InvalidPlanError, self.create, spec)

            self.assertIn(reason, str(error), spec)
            self.assertIn('target t', str(error))

    def test_cache_of_root_file_systems(self):
        self.assertEqual('/x', str(targets.Settings({'TROVE_CEPH_CACHE': '/x'}).cache))
        self.assertEqual('/var/cache/trove-ceph', str(targets.Settings({}).cache))
