# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph.mysql import fixed_options, my_cnf
from trove_ceph.tests.unit import packaging

TEMPLATES = packaging.TREE / 'etc' / 'trove' / 'templates' / 'mysql'


class FixedOptionsTest(base.BaseTestCase):
    def test_settings_that_are_not_fixed_do_not_count(self):
        given = {'max_connections': 5, 'innodb_redo_log_capacity': '1G'}
        self.assertEqual([], fixed_options.find_differing(given, {}))

    def test_defaults_in_any_form(self):
        for given in (
            {'lower_case_table_names': 0},
            {'innodb_page_size': '16k'},
            {'innodb-page-size': 16384},
            {'default_table_encryption': False},
            {'default_table_encryption': 0},
            {'loose_innodb_redo_log_encrypt': 'off'},
            fixed_options.INITIAL,
        ):
            self.assertEqual([], fixed_options.find_differing(given), given)

    def test_other_values(self):
        given = {
            'lower_case_table_names': '1',
            'innodb_page_size': '8K',
            'innodb_undo_directory': '/undo',
            'innodb_data_file_path': 'ibdata1:12M:autoextend',
            'default_table_encryption': True,
        }
        self.assertEqual(sorted(given), fixed_options.find_differing(given))

    def test_later_settings_override_earlier_ones(self):
        one, zero = {'lower_case_table_names': 1}, {'lower-case-table-names': 0}
        self.assertEqual(['lower_case_table_names'], fixed_options.find_differing(zero, one))
        self.assertEqual([], fixed_options.find_differing(one, zero))

    def test_golden_volumes_fit_the_template_of_this_release(self):
        settings = my_cnf.server_options((TEMPLATES / '9' / 'config.template').read_text())
        self.assertEqual([], fixed_options.find_differing(settings))
        self.assertEqual(
            fixed_options.INITIAL, {name: settings[name] for name in fixed_options.INITIAL}
        )
