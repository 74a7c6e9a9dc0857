# SPDX-License-Identifier: Apache-2.0
import itertools

from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.mysql import tuning

FLASH = tuning.Tier(iops_per_gib=30, iops_floor=3000, iops_cap=20000)
DISK = tuning.Tier(iops_per_gib=1, iops_floor=150, iops_cap=1000)
GIB = 1024

# fmt: off
# (RAM MiB, vCPUs, volume GiB, tier): pool, chunk, instances, log buffer, redo, io, io max,
# I/O threads, connections, table cache, temptable, tmp table, binlog budget, binlog file, days
GOLDEN = {
    (768, 1, 1, FLASH):
        (64, 16, 1, 16, 96, 1500, 3000, 4, 48, 400, 24, 16, 153, 19, 1),
    (1024, 1, 10, FLASH):
        (256, 16, 1, 16, 512, 1500, 3000, 4, 64, 512, 32, 16, 1536, 192, 1),
    (2048, 2, 10, DISK):
        (960, 16, 1, 32, 672, 100, 150, 4, 128, 1024, 64, 16, 1536, 192, 1),
    (4096, 2, 100, FLASH):
        (2304, 128, 1, 64, 1024, 1500, 3000, 4, 256, 2048, 128, 32, 15360, 1024, 7),
    (8192, 4, 100, FLASH):
        (5376, 128, 1, 64, 2048, 1500, 3000, 4, 512, 4096, 256, 64, 15360, 1024, 7),
    (16384, 8, 200, FLASH):
        (11520, 128, 2, 64, 4096, 3000, 6000, 4, 1024, 8192, 512, 128, 30720, 1024, 7),
    (32768, 8, 500, DISK):
        (23808, 128, 2, 64, 2336, 250, 500, 4, 2048, 16384, 1024, 128, 76800, 1024, 7),
    (65536, 16, 1024, FLASH):
        (48640, 128, 4, 64, 8192, 10000, 20000, 8, 4096, 16384, 2048, 128, 157286, 1024, 7),
    (131072, 32, 2048, FLASH):
        (98304, 128, 8, 64, 16384, 10000, 20000, 16, 5000, 16384, 4096, 128, 262144, 1024, 7),
    (262144, 48, 4096, FLASH):
        (196608, 128, 12, 64, 16384, 10000, 20000, 24, 5000, 16384, 4096, 128, 262144, 1024, 7),
    (524288, 64, 10240, FLASH):
        (393216, 128, 16, 64, 16384, 10000, 20000, 32, 5000, 16384, 4096, 128, 262144, 1024, 7),
}
# fmt: on

RAM_MIB = [
    768,
    769,
    800,
    1000,
    1024,
    1500,
    2047,
    2048,
    3000,
    4095,
    4096,
    6000,
    8192,
    16384,
    49152,
    65536,
    131072,
    200000,
    262144,
    524288,
]
VCPUS = [1, 2, 3, 4, 8, 16, 31, 64, 128]
VOLUME_MIB = [1000, 1024, 2048, 5000, 10240, 102400, 1048576, 16 * 1048576]


def machine(ram, vcpus, volume_gib, tier):
    return tuning.Machine(ram, vcpus, volume_gib * GIB, tier.volume_iops(volume_gib * GIB))


def every_machine():
    for ram, vcpus, volume, tier in itertools.product(RAM_MIB, VCPUS, VOLUME_MIB, (FLASH, DISK)):
        yield tuning.Machine(ram, vcpus, volume, tier.volume_iops(volume))


class TierTestCase(base.BaseTestCase):
    def test_rate_grows_with_the_volume_between_floor_and_cap(self):
        self.assertEqual(3000, FLASH.volume_iops(1 * GIB))
        self.assertEqual(3000, FLASH.volume_iops(100 * GIB))
        self.assertEqual(6000, FLASH.volume_iops(200 * GIB))
        self.assertEqual(20000, FLASH.volume_iops(10240 * GIB))

    def test_floor_wins_over_a_lower_cap(self):
        self.assertEqual(500, tuning.Tier(3, 500, 100).volume_iops(1024 * GIB))


class GoldenTestCase(base.BaseTestCase):
    def test_golden_values(self):
        for given, expected in GOLDEN.items():
            result = tuning.tune(machine(*given))
            self.assertEqual(
                expected,
                (
                    result.buffer_pool_mib,
                    result.buffer_pool_chunk_mib,
                    result.buffer_pool_instances,
                    result.log_buffer_mib,
                    result.redo_log_mib,
                    result.io_capacity,
                    result.io_capacity_max,
                    result.read_io_threads,
                    result.max_connections,
                    result.table_open_cache,
                    result.temptable_mib,
                    result.tmp_table_mib,
                    result.binlog_budget_mib,
                    result.binlog_file_mib,
                    result.binlog_expire_sec // 86400,
                ),
                given,
            )

    def test_options_are_in_bytes(self):
        options = tuning.tune(machine(4096, 2, 100, FLASH)).mysqld_options()

        self.assertEqual(2304 * 1024 * 1024, options['innodb_buffer_pool_size'])
        self.assertEqual(1024 * 1024 * 1024, options['innodb_redo_log_capacity'])
        self.assertEqual(7 * 86400, options['binlog_expire_logs_seconds'])
        self.assertNotIn('performance_schema_accounts_size', options)

    def test_small_machine_is_lean_but_keeps_the_performance_schema(self):
        options = tuning.tune(machine(768, 1, 1, FLASH)).mysqld_options()

        self.assertEqual(0, options['performance_schema_accounts_size'])
        self.assertNotIn('performance_schema', options)

    def test_volume_options_are_among_the_options(self):
        options = tuning.tune(machine(768, 1, 1, FLASH)).mysqld_options()

        self.assertEqual(set(), set(tuning.VOLUME_OPTIONS) - set(options))
        order = tuning.VOLUME_OPTIONS
        capacity = [name for name in order if 'io_capacity' in name]
        most = 'innodb_io_capacity_max'
        self.assertEqual([most, 'innodb_io_capacity', most], capacity)


class PropertyTestCase(base.BaseTestCase):
    def test_only_volume_options_depend_on_the_volume(self):
        """A server whose volume is extended need not be restarted."""
        by_rest = {}
        for given in every_machine():
            options = tuning.tune(given).mysqld_options()
            for name in tuning.VOLUME_OPTIONS:
                options.pop(name, None)
            key = given.ram_mib, given.vcpus
            self.assertEqual(by_rest.setdefault(key, options), options, given)

    def test_memory_fits_in_the_flavor(self):
        for given in every_machine():
            self.assertLessEqual(tuning.memory_mib(given, tuning.tune(given)), given.ram_mib, given)

    def test_logs_leave_half_of_the_volume_to_data(self):
        for given in every_machine():
            result = tuning.tune(given)
            # Binary logs exceed their budget by the file that is being written.
            binlog = result.binlog_budget_mib + result.binlog_file_mib
            self.assertLessEqual(result.redo_log_mib + binlog, given.volume_mib / 2, given)

    def test_server_does_not_round_the_buffer_pool(self):
        for given in every_machine():
            result = tuning.tune(given)
            step = result.buffer_pool_chunk_mib * result.buffer_pool_instances
            self.assertEqual(0, result.buffer_pool_mib % step, given)
            self.assertGreaterEqual(result.buffer_pool_mib, tuning.MIN_BUFFER_POOL_MIB, given)
            # The server lowers the number of instances of a pool below 1 GiB to one.
            if result.buffer_pool_mib < GIB:
                self.assertEqual(1, result.buffer_pool_instances, given)

    def test_io_never_exceeds_the_tier(self):
        for given in every_machine():
            result = tuning.tune(given)
            self.assertLessEqual(result.io_capacity, result.io_capacity_max, given)
            self.assertEqual(given.volume_iops, result.io_capacity_max, given)

    def test_more_memory_never_gives_a_smaller_pool(self):
        previous = 0
        for ram in range(768, 20000, 16):
            pool = tuning.tune(tuning.Machine(ram, 4, 102400, 3000)).buffer_pool_mib
            # Rounding to chunks of 128 instead of 16 MiB may cost one chunk.
            self.assertGreaterEqual(pool, previous - 128, ram)
            previous = max(pool, previous)

    def test_crash_recovery_is_bounded(self):
        for given in every_machine():
            result = tuning.tune(given)
            seconds = result.redo_log_mib * 1024 / 16 / given.volume_iops
            self.assertTrue(seconds <= 300 or result.redo_log_mib == 64, given)

    def test_binlog_files_are_multiples_of_the_servers_unit(self):
        for given in every_machine():
            result = tuning.tune(given)
            self.assertEqual(0, result.binlog_file_mib * units.Mi % 4096, given)
            self.assertLessEqual(result.binlog_file_mib, 1024, given)


class RefusalTestCase(base.BaseTestCase):
    def test_flavor_too_small(self):
        error = self.assertRaises(
            exceptions.FlavorTooSmallError, tuning.tune, machine(512, 1, 1, FLASH)
        )

        self.assertIn('has 512 MiB of memory', str(error))
        self.assertIn('needs at least 768 MiB', str(error))
        # Trove stores 255 characters of a fault.
        self.assertLess(len(str(error)), 255)

    def test_message_names_the_smallest_flavor(self):
        smallest = tuning.smallest_ram_mib()

        tuning.tune(machine(smallest, 1, 1, FLASH))
        self.assertRaises(
            exceptions.FlavorTooSmallError, tuning.tune, machine(smallest - 32, 1, 1, FLASH)
        )

    def test_volume_too_small(self):
        error = self.assertRaises(
            exceptions.VolumeTooSmallError,
            tuning.tune,
            tuning.Machine(2048, 1, 512, 3000),
        )

        self.assertIn('512 MiB', str(error))
