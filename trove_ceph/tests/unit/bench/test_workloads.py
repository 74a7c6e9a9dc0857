# SPDX-License-Identifier: Apache-2.0
from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph_bench import dataset, workloads

MIB = units.Mi


class WorkloadsTest(base.BaseTestCase):
    def test_mixed_have_the_ratio_of_their_names(self):
        for name, reads, writes in (('mixed-70-30', 70, 30), ('mixed-75-25', 75, 25)):
            options = workloads.get(name).options
            changed = (
                options['index_updates']
                + options['non_index_updates']
                + 2 * options['delete_inserts']
            )
            self.assertEqual('off', options['range_selects'])
            self.assertEqual(reads * changed, writes * options['point_selects'])

    def test_seagate_is_as_published(self):
        seagate = workloads.get('seagate')
        self.assertEqual(('oltp_read_write', 100), (seagate.script, seagate.threads))
        self.assertEqual({'rand-type': 'special'}, seagate.options)

    def test_intels_are_those_of_the_printed_commands(self):
        found = {name: workloads.get(f'intel-{name}') for name in ('read', 'write', 'mixed')}
        self.assertEqual({8}, {each.threads for each in found.values()})
        self.assertEqual(
            ('oltp_read_only', 10, 'off'),
            (
                found['read'].script,
                found['read'].options['point_selects'],
                found['read'].options['range_selects'],
            ),
        )
        self.assertEqual(
            ('oltp_write_only', 100, 0, 1),
            (
                found['write'].script,
                *(
                    found['write'].options[name]
                    for name in ('index_updates', 'non_index_updates', 'delete_inserts')
                ),
            ),
        )
        self.assertEqual('oltp_read_write', found['mixed'].script)
        self.assertIn('10 reads and 4 writes', found['mixed'].description)

    def test_all_others_choose_rows_uniformly(self):
        for name in workloads.names():
            if name != 'seagate':
                self.assertEqual('uniform', workloads.get(name).options['rand-type'])

    def test_error_for_an_unknown_workload_lists_the_known_ones(self):
        error = self.assertRaises(exceptions.InvalidPlanError, workloads.get, 'wriet')
        for name in ('wriet', 'read', 'write', 'mixed-70-30', 'mixed-75-25', 'seagate'):
            self.assertIn(name, str(error))


class DatasetTest(base.BaseTestCase):
    def test_ratio_of_buffer_pool_to_data(self):
        for name, factor in (('1:4', 4), ('1:25', 25), ('1:1.5', 1.5), ('cached', 0.5)):
            found = dataset.for_name(name, 64 * MIB, 4)
            self.assertEqual((name, 4), (found.name, found.tables))
            self.assertAlmostEqual(
                factor, found.total_rows * dataset.BYTES_PER_ROW / (64 * MIB), places=4
            )

    def test_rows_of_each_table(self):
        found = dataset.for_name('14000000 rows', None, 30)
        self.assertEqual(('14000000 rows', 30, 14_000_000), (found.name, found.tables, found.rows))
        self.assertEqual(
            14_000_000 * 30 * dataset.BYTES_PER_ROW, dataset.size_bytes('14000000 rows', 30)
        )

    def test_bytes(self):
        for name, size in (('75GiB', 75 * units.Gi), ('75GB', 75 * 10**9)):
            found = dataset.for_name(name, None, 10)
            self.assertAlmostEqual(size, found.total_rows * dataset.BYTES_PER_ROW, delta=10_000)

    def test_a_ratio_of_the_hci_paper_is_1_to_15_and_not_1_to_25(self):
        absolute = dataset.for_name('75GiB', None, 10)
        self.assertEqual(dataset.for_name('1:15', 5 * units.Gi, 10).rows, absolute.rows)

    def test_scale_reduces_absolute_sizes_only(self):
        found = dataset.for_name('45000000 rows', None, 1, 0.001)
        self.assertEqual((45_000, 0.001), (found.rows, found.scale))
        self.assertEqual({'name', 'tables', 'rows', 'scale'}, set(found.facts()))
        relative = dataset.for_name('1:4', 64 * MIB, 4, 0.001)
        self.assertEqual(dataset.for_name('1:4', 64 * MIB, 4), relative)
        self.assertEqual({'name', 'tables', 'rows'}, set(relative.facts()))

    def test_scale_keeps_a_least_number_of_rows(self):
        self.assertEqual(1000, dataset.for_name('14000000 rows', None, 30, 1e-6).rows)
        self.assertEqual(500, dataset.for_name('500 rows', None, 1, 0.1).rows)

    def test_a_relative_size_needs_the_buffer_pool(self):
        self.assertTrue(dataset.is_relative('cached'))
        self.assertFalse(dataset.is_relative('75GiB'))
        self.assertRaises(exceptions.InvalidPlanError, dataset.for_name, '1:4', None, 1)

    def test_refuses_invalid_names(self):
        for name in ('4:1', '1:0', '1:', 'big', '', '0 rows', '75', 'GiB', '75 GiB', '-1GiB'):
            self.assertRaises(exceptions.InvalidPlanError, dataset.for_name, name, MIB, 1)

    def test_refuses_tables_without_rows(self):
        self.assertRaises(exceptions.InvalidPlanError, dataset.for_name, '1:4', MIB, 0)
        self.assertRaises(exceptions.InvalidPlanError, dataset.for_name, 'cached', 100, 1)
