# SPDX-License-Identifier: Apache-2.0
from oslo_config import cfg
from oslotest import base

from trove_ceph.conf import guest, opts


class OptsTestCase(base.BaseTestCase):
    def test_each_group_is_listed_for_the_sample(self):
        ((group, listed),) = opts.list_opts()

        self.assertEqual('trove_ceph', group.name)
        self.assertEqual([opt.name for opt in guest.OPTS], [opt.name for opt in listed])

    def test_storage_service_lists_the_options_of_all_that_runs_in_it(self):
        listed = {group.name: options for group, options in opts.list_storage_opts()}
        self.assertEqual(['trove_ceph_storage', 'trove_ceph_qos'], list(listed))
        names = [opt.name for opt in listed['trove_ceph_qos']]
        self.assertIn('sweep_interval_sec', names)
        self.assertIn('auth_type', names)

    def test_options_explain_themselves_and_are_bounded(self):
        for opt in guest.OPTS:
            self.assertGreater(len(opt.help), 60, opt.name)
            self.assertIsNotNone(opt.type.min, opt.name)
            self.assertIsNotNone(opt.type.max, opt.name)

    def test_registering_twice(self):
        conf = cfg.ConfigOpts()
        guest.register(conf)
        guest.register(conf)
        conf([])

        self.assertEqual(3000, conf.trove_ceph.volume_iops_floor)

    def test_value_out_of_bounds_is_refused(self):
        conf = cfg.ConfigOpts()
        guest.register(conf)
        conf([])

        self.assertRaises(ValueError, conf.set_override, 'volume_grow_timeout_sec', 0, 'trove_ceph')
