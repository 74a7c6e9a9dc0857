# SPDX-License-Identifier: Apache-2.0
from oslo_config import cfg
from oslotest import base

from trove_ceph.conf import (
    failover,
    golden,
    guest,
    guests,
    metrics,
    opts,
    replacement,
    replication,
    storage,
    taskmanager,
    verification,
)
from trove_ceph.storage import golden as library
from trove_ceph.storage import throttle

_MODULES = (
    failover,
    golden,
    guest,
    guests,
    replacement,
    replication,
    storage,
    taskmanager,
    verification,
)


class OptsTestCase(base.BaseTestCase):
    def test_each_group_is_listed_for_its_sample(self):
        for listed, module, name in (
            (opts.list_opts(), guest, 'trove_ceph'),
            (opts.list_storage_opts(), storage, 'trove_ceph_storage'),
            (opts.list_taskmanager_opts(), taskmanager, 'trove_ceph_backup'),
            (opts.list_taskmanager_opts(), guests, 'trove_ceph_guests'),
            (opts.list_taskmanager_opts(), golden, 'trove_ceph_golden'),
            (opts.list_taskmanager_opts(), replacement, 'trove_ceph_replacement'),
            (opts.list_taskmanager_opts(), failover, 'trove_ceph_failover'),
            (opts.list_taskmanager_opts(), replication, 'trove_ceph_replication'),
            (opts.list_storage_opts(), verification, 'trove_ceph_verification'),
        ):
            groups = {group.name: found for group, found in listed}

            self.assertEqual([opt.name for opt in module.OPTS], [opt.name for opt in groups[name]])

    def test_both_services_list_metrics(self):
        for listed, expected in (
            (opts.list_storage_opts(), metrics.STORAGE_OPTS),
            (opts.list_taskmanager_opts(), metrics.TASKMANAGER_OPTS),
        ):
            groups = {group.name: found for group, found in listed}
            names = [opt.name for opt in groups['trove_ceph_metrics']]
            self.assertEqual([opt.name for opt in expected], names)

    def test_options_explain_themselves_and_are_bounded(self):
        of_metrics = [*metrics.TASKMANAGER_OPTS, *metrics.STORAGE_OPTS]
        for opt in [*of_metrics, *(opt for module in _MODULES for opt in module.OPTS)]:
            self.assertGreater(len(opt.help), 50, opt.name)
            if isinstance(opt, (cfg.IntOpt, cfg.FloatOpt)):
                self.assertIsNotNone(opt.type.min, opt.name)
                self.assertIsNotNone(opt.type.max, opt.name)

    def test_registering_twice(self):
        conf = cfg.ConfigOpts()
        for module in _MODULES:
            module.register(conf)
            module.register(conf)
        conf([])

        self.assertEqual(3000, conf.trove_ceph.volume_iops_floor)
        self.assertEqual(60, conf.trove_ceph_storage.lock_duration_sec)

    def test_the_default_of_copies_is_that_of_the_library(self):
        default = {opt.name: opt.default for opt in storage.OPTS}['copy_in_flight_mib']

        self.assertEqual(throttle.IN_FLIGHT_BYTES, default * 1024**2)

    def test_the_sizes_of_golden_volumes_are_those_of_the_library(self):
        (sizes,) = golden.OPTS
        self.assertEqual(library.MOST_GIB, sizes.type.item_type.max)

    def test_refuses_values_out_of_bounds(self):
        conf = cfg.ConfigOpts()
        guest.register(conf)
        conf([])

        self.assertRaises(ValueError, conf.set_override, 'volume_grow_timeout_sec', 0, 'trove_ceph')
