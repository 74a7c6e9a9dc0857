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
FAULTY = (
    ({}, 'exactly one of'),
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


class MakeTest(base.BaseTestCase):
    def make(self, spec):
        return targets.make('t', spec, targets.Settings(environment={}))

    def test_schema_is_one(self):
        jsonschema.Draft202012Validator.check_schema(targets.SCHEMA)

    def test_valid_ones_are_made_without_asking_anything(self):
        for spec in VALID:
            self.assertEqual('t', self.make(spec).name)

    def test_faulty_ones_are_refused_with_the_reason(self):
        for spec, reason in FAULTY:
            error = self.assertRaises(exceptions.InvalidPlanError, self.make, spec)

            self.assertIn(reason, str(error), spec)
            self.assertIn('target t', str(error))

    def test_cache_of_root_file_systems(self):
        self.assertEqual('/x', str(targets.Settings({'TROVE_CEPH_CACHE': '/x'}).cache))
        self.assertEqual('/var/cache/trove-ceph', str(targets.Settings({}).cache))
