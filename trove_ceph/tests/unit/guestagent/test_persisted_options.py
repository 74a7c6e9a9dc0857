# SPDX-License-Identifier: Apache-2.0
import json

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.guestagent import persisted_options
from trove_ceph.tests.unit.guestagent import server_world

DATA = '/var/lib/mysql/data'
PATH = f'{DATA}/mysqld-auto.cnf'
NAMES = ('event_scheduler', 'server_id')
PERSISTED = {'Value': 'ON', 'Metadata': {'Timestamp': 1, 'User': 'root', 'Host': 'localhost'}}
#: As MySQL 9 writes it.
CONTENT = {
    'Version': 2,
    'mysql_dynamic_parse_early_variables': {'max_connections': PERSISTED},
    'mysql_dynamic_variables': {'event_scheduler': PERSISTED, 'sort_buffer_size': PERSISTED},
    'mysql_static_variables': {'server_id': PERSISTED},
}


class PersistedOptionsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.files = server_world.Files(self, [])
        self.app = server_world.App(self.files)

    def remove(self, text):
        self.files.contents[PATH] = text
        persisted_options.remove(self.app, DATA, NAMES)
        return self.files.contents[PATH]

    def test_only_the_named_options_are_removed(self):
        expected = CONTENT | {
            'mysql_dynamic_variables': {'sort_buffer_size': PERSISTED},
            'mysql_static_variables': {},
        }
        text = self.remove(json.dumps(CONTENT))
        self.assertEqual(expected, json.loads(text))
        self.assertEqual({PATH: (1001, 1001)}, self.files.owners)
        self.assertEqual({PATH: 0o640}, self.files.modes)
        self.assertEqual(text, self.remove(text))

    def test_file_without_them_is_not_written(self):
        text = '{ "Version" : 2 }'
        self.assertEqual(text, self.remove(text))
        self.assertEqual({}, self.files.owners)

    def test_server_without_persisted_options(self):
        persisted_options.remove(self.app, DATA, NAMES)
        self.assertEqual({}, self.files.contents)

    def test_damaged_file(self):
        error = self.assertRaises(exceptions.ServerFailedError, self.remove, '\0' * 100)
        self.assertIn(PATH, str(error))
