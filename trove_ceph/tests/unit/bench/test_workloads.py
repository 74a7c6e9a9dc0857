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
            found = dataset.for_ratio(name, 64 * MIB, 4)
            self.assertEqual((name, 4), (found.name, found.tables))
            self.assertAlmostEqual(
                factor, found.total_rows * dataset.BYTES_PER_ROW / (64 * MIB), places=4
            )

    def test_refuses_invalid_names(self):
        for name in ('4:1', '1:0', '1:', 'big', ''):
            self.assertRaises(exceptions.InvalidPlanError, dataset.for_ratio, name, MIB, 1)

    def test_refuses_tables_without_rows(self):
        self.assertRaises(exceptions.InvalidPlanError, dataset.for_ratio, '1:4', MIB, 0)
        self.assertRaises(exceptions.InvalidPlanError, dataset.for_ratio, 'cached', 100, 1)
