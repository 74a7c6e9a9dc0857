# SPDX-License-Identifier: Apache-2.0
import copy
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph import exceptions, schema_problems, yaml_file
from trove_ceph.enums import DeviceClass
from trove_ceph.hci import hosts_file, planning, report
from trove_ceph.hci.inventory import Network
from trove_ceph.hci.workload import OsdChoices, RootDisk

SHIPPED = Path(__file__).parents[4] / 'etc' / 'trove-ceph' / 'hci.yaml'
_HOST = ('hosts', 'hci-1')


def content(*changes):
    """Return the shipped file with changes, each a path and its new value; None removes it."""
    found = copy.deepcopy(yaml_file.construct(yaml_file.compose(SHIPPED.read_text())))
    for path, value in changes:
        *parents, last = path
        target = found
        for step in parents:
            target = target[step]
        if value is None:
            del target[last]
        else:
            target[last] = value
    return found


class ShippedTest(base.BaseTestCase):
    def test_the_example_breaks_no_rule(self):
        given = hosts_file.load(str(SHIPPED))
        self.assertEqual((), planning.plan(*given).findings)

    def test_values(self):
        inventory, workload, choices = hosts_file.load(str(SHIPPED))
        self.assertEqual([f'hci-{at}' for at in range(1, 6)], [one.name for one in inventory.hosts])
        host = inventory.hosts[4]
        self.assertEqual((384 * 1024, 40, 80), (host.memory_mib, host.cores, len(host.cpus)))
        self.assertEqual((0, 40), host.numa_nodes[0].cores[0])
        self.assertEqual([0, 0, 1, 1], [one.numa_node for one in host.data_devices])
        self.assertIs(DeviceClass.NVME, host.data_devices[0].device_class)
        self.assertEqual(3_840_000_000_000, host.data_devices[0].size_bytes)
        self.assertEqual({Network.PUBLIC, Network.GUESTS}, host.nics[0].networks)
        self.assertEqual(25_000, host.nics[0].speed_mbit_per_sec)
        self.assertEqual((3, '192.0.2.0/24'), (inventory.copies, inventory.public_network))
        self.assertEqual(5 * 4 * 3_840_000_000_000, inventory.raw_bytes)
        self.assertEqual((8192, 4), (workload.guest_memory_mib, workload.guest_vcpus))
        self.assertEqual((50, 20), (workload.guest_cpu_percent, workload.databases_per_host))
        self.assertEqual(100 * 1024**3, workload.volume_bytes)
        self.assertIs(RootDisk.CEPH, workload.root_disk)
        self.assertEqual(OsdChoices(1, 6), choices)

    def test_defaults(self):
        changes = (
            (('networks',), None),
            (('osds',), None),
            (('workload', 'databases_per_host'), None),
            (('workload', 'replicas'), None),
            ((*_HOST, 'db_devices'), None),
            ((*_HOST, 'nics', 0, 'speed'), None),
            ((*_HOST, 'nics', 0, 'numa_node'), None),
        )
        inventory, workload, choices = hosts_file.parse(content(*changes))
        self.assertEqual((None, None), (inventory.public_network, inventory.cluster_network))
        self.assertEqual(OsdChoices(None, None), choices)
        self.assertEqual((None, 0), (workload.databases_per_host, workload.replicas))
        [host, *_] = inventory.hosts
        self.assertEqual((), host.db_devices)
        self.assertEqual((None, None), (host.nics[0].speed_mbit_per_sec, host.nics[0].numa_node))

    def test_cores(self):
        node = (*_HOST, 'numa', 0, 'cores')
        for given, expected in (
            (['0,40', 1], ((0, 40), (1,))),
            (['2-3', '0-1'], ((0, 1), (2, 3))),
            (['0-3'], ((0, 1, 2, 3),)),
        ):
            host = hosts_file.parse(content((node, given))).inventory.hosts[0]
            self.assertEqual(expected, host.numa_nodes[0].cores)

    def test_memory_of_nodes_is_that_of_the_host(self):
        """Linux shows less than the modules have, in KiB, and each node is rounded down."""
        nodes = [((*_HOST, 'numa', at, 'memory'), '201000001KiB') for at in (0, 1)]
        given = hosts_file.parse(content(*nodes, ((*_HOST, 'memory'), '402000002KiB')))
        self.assertEqual(2 * 196289, given.inventory.hosts[0].memory_mib)


class InvalidTest(base.BaseTestCase):
    """Each message names the field and the form that is expected."""

    def refusal(self, path, value):
        problem = self.assertRaises(yaml_file.Problem, hosts_file.parse, content((path, value)))
        return schema_problems.path_text(problem.path), str(problem)

    def assert_refused(self, path, value, *parts, at=None):
        where, problem = self.refusal(path, value)
        self.assertEqual(schema_problems.path_text(path) if at is None else at, where, problem)
        for part in parts:
            self.assertIn(part, problem)

    def test_missing_values(self):
        for key in ('copies', 'workload', 'hosts'):
            self.assert_refused((key,), None, f'lacks {key}', at='')
        for key in ('memory', 'numa', 'data_devices', 'nics'):
            self.assert_refused((*_HOST, key), None, f'lacks {key}', at='hosts.hci-1')
        for key in ('guest_memory', 'guest_vcpus', 'guest_cpu_percent', 'volume', 'root_disk'):
            self.assert_refused(('workload', key), None, f'lacks {key}', at='workload')
        for key in ('data_devices', 'numa', 'nics'):
            self.assert_refused((*_HOST, key), [], 'must not be empty')
        self.assert_refused(('hosts',), {}, 'must not be empty')

    def test_unknown_keys(self):
        self.assert_refused((*_HOST, 'memroy'), '1GiB', 'did you mean memory?')

    def test_sizes_without_unit(self):
        expected = 'must be a size with'
        for path in (
            ('workload', 'guest_memory'),
            ('workload', 'volume'),
            ('workload', 'root_disk', 'size'),
            (*_HOST, 'memory'),
            (*_HOST, 'local_disk'),
            (*_HOST, 'numa', 1, 'memory'),
            (*_HOST, 'data_devices', 0, 'size'),
            (*_HOST, 'db_devices', 0, 'size'),
        ):
            for value in (384, '384', -1, '-1GiB', '384G', 1e300, '1e3GiB', True, []):
                self.assert_refused(path, value, expected, 'not ')
        self.assert_refused((*_HOST, 'nics', 0, 'speed'), 25, 'such as 25Gbit')

    def test_memory_in_decimal_units(self):
        self.assert_refused((*_HOST, 'memory'), '384GB', 'is 357.6 GiB', 'write 384GiB')
        self.assert_refused(('workload', 'guest_memory'), '8GB', 'is 7.5 GiB', 'write 8GiB')

    def test_absurd_sizes(self):
        self.assert_refused((*_HOST, 'memory'), '384TiB', 'from 1024 MiB to 65536 GiB')
        self.assert_refused((*_HOST, 'memory'), '384MiB', 'from 1024 MiB')
        self.assert_refused((*_HOST, 'data_devices', 1, 'size'), '4MB', 'from 1 GB to 1000 TB')
        self.assert_refused((*_HOST, 'data_devices', 1, 'size'), '4PB', 'from 1 GB to 1000 TB')
        self.assert_refused(('workload', 'volume'), '100MiB', 'from 1.074 GB')
        self.assert_refused(('workload', 'guest_memory'), '100MiB', 'from 512 MiB')
        self.assert_refused(('workload', 'guest_memory'), '1025MiB', 'not a multiple of 2 MiB')
        for speed in ('0Gbit', '25Tbit'):
            path = (*_HOST, 'nics', 0, 'speed')
            self.assert_refused(path, speed, 'must be from 10 Mbit to 10 Tbit; check its unit')
        huge = '9' * 15 + 'PiB'
        self.assert_refused((*_HOST, 'memory'), huge, 'must be from')

    def test_absurd_numbers(self):
        for path, value, expected in (
            (('copies',), 0, 'the least is 1'),
            (('copies',), 11, 'the most is 10'),
            (('workload', 'guest_vcpus'), 0, 'the least is 1'),
            (('workload', 'guest_vcpus'), 2.5, 'must be a whole number of vCPUs'),
            (('workload', 'guest_vcpus'), 10**10, 'the most is 512'),
            (('workload', 'guest_vcpus'), 10**4000, 'must be a whole number of vCPUs, not 1000'),
            (('workload', 'guest_cpu_percent'), 0.5, 'the least is 1'),
            (('workload', 'guest_cpu_percent'), 101, 'the most is 100'),
            (('workload', 'guest_cpu_percent'), '50%', 'must be a percentage from 1 to 100'),
            (('workload', 'databases_per_host'), -3, 'the least is 1'),
            (('workload', 'replicas'), -1, 'the least is 0'),
            (('osds', 'per_device'), 9, 'the most is 8'),
            (('osds', 'vcpus'), 0, 'the least is 0.5'),
        ):
            self.assert_refused(path, value, expected)

    def test_cores(self):
        core = (*_HOST, 'numa', 0, 'cores', 3)
        for value in ('', 'a', '0;40', '40-3', '1-2-3', -1, '0,0', '100-120', 9000):
            where, _ = self.refusal(core, value)
            self.assertEqual('hosts.hci-1.numa[0].cores[3]', where, value)
        self.assert_refused(core, '2,42', 'CPU 2 is in hosts.hci-1.numa[0].cores[2] already')

    def test_nodes(self):
        self.assert_refused((*_HOST, 'numa', 1, 'node'), 0, 'node 0 is given twice')
        for key in ('data_devices', 'db_devices', 'nics'):
            path = (*_HOST, key, 0, 'numa_node')
            self.assert_refused(path, 2, '2 is not a node of the host, which has 0, 1')

    def test_memory_that_does_not_add_up(self):
        self.assert_refused(
            (*_HOST, 'memory'), '256GiB', 'is 262144 MiB, but the NUMA nodes have 393216 MiB'
        )

    def test_the_same_twice(self):
        path = (*_HOST, 'data_devices', 1, 'path')
        self.assert_refused(path, '/dev/nvme0n1', '/dev/nvme0n1 is given twice')
        path = (*_HOST, 'db_devices', 0, 'path')
        self.assert_refused(path, '/dev/nvme0n1', 'is given twice')
        self.assert_refused((*_HOST, 'nics', 1, 'name'), 'bond0', 'bond0 is given twice')

    def test_hosts_that_crush_takes_for_one(self):
        host = content()['hosts']['hci-1']
        path = ('hosts', 'hci-2.example.org')
        self.assert_refused(path, host, 'hci-2 in CRUSH, as hci-2 is')

    def test_devices(self):
        self.assert_refused((*_HOST, 'data_devices', 0, 'class'), 'nvne', 'did you mean nvme?')
        self.assert_refused((*_HOST, 'db_devices', 0, 'class'), 'hdd', 'choose nvme, ssd')
        for path in (
            *('nvme0n1', '/dev/', '/dev/nvme0n1/', '/dev//nvme0n1', '/dev/./nvme0n1'),
            *('/dev/../etc/passwd', '/dev/nvme*', '/dev/a"b', '/dev/a b', '/dev/nvme0n1\n'),
        ):
            self.assert_refused((*_HOST, 'data_devices', 0, 'path'), path, 'path of a device')
        for path in ('/dev/disk/by-path/pci-0000:3b:00.0-nvme-1', '/dev/mapper/mpatha'):
            given = hosts_file.parse(content(((*_HOST, 'data_devices', 0, 'path'), path)))
            self.assertEqual(path, given.inventory.hosts[0].data_devices[0].path)

    def test_networks(self):
        for value in ('192.0.2.1/24', 'public', '192.0.2.0/33'):
            self.assert_refused(('networks', 'public'), value, 'a network such as 192.0.2.0/24')
        self.assert_refused((*_HOST, 'nics', 0, 'networks', 0), 'pubic', 'did you mean public?')


class LoadTest(base.BaseTestCase):
    def refusal(self, text):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'hci.yaml'
        path.write_text(text)
        error = self.assertRaises(exceptions.InvalidHostsError, hosts_file.load, str(path))
        return str(error).removeprefix(str(path))

    def test_line_and_key(self):
        text = SHIPPED.read_text().replace('guest_memory: 8GiB', 'guest_memory: 8')
        line = text.splitlines().index('  guest_memory: 8') + 1
        self.assertEqual(
            f', line {line}: workload.guest_memory: must be a size with a unit of powers of 1024, '
            'such as 256GiB, not 8',
            self.refusal(text),
        )

    def test_what_is_no_description(self):
        self.assertIn('must have the keys copies, workload and hosts', self.refusal(''))
        self.assertIn('is not YAML', self.refusal('a: [b'))
        error = self.assertRaises(exceptions.InvalidHostsError, hosts_file.load, '/no/such')
        self.assertIn('/no/such: cannot be read', str(error))


class AnyValueTest(base.BaseTestCase):
    """Each value of the file replaced by odd ones: it is refused by name, or it is planned."""

    ODD = (
        *(None, True, 0, -1, 2.5, 10**30, '', 'x', [], {}, [1], {'a': 1}),
        *('1GiB', '1GB', '0GiB', '64TiB', '1000TB', '0Mbit', '0-7', 'hdd', 'local', '::/0', 16),
    )

    def setUp(self):
        super().setUp()
        self.content = content()
        hosts = self.content['hosts']
        self.content['hosts'] = {name: copy.deepcopy(hosts[name]) for name in ('hci-1', 'hci-2')}
        for node in hosts['hci-1']['numa']:
            del node['cores'][6:]

    def test_refused_or_planned(self):
        planned = refused = 0
        for path in self.paths(self.content):
            for value in self.ODD:
                try:
                    given = hosts_file.parse(self.replaced(path, value))
                except yaml_file.Problem as problem:
                    # The key that is wrong, the mapping around it, or one that must agree with it.
                    self.assertEqual(path[:1], problem.path[:1] or path[:1], (path, value))
                    refused += 1
                else:
                    made = planning.plan(*given)
                    self.assertIn('hci-1', report.plan_text(made, explain=True))
                    planned += 1
        self.assertGreater(refused, 500)
        self.assertGreater(planned, 50)

    def paths(self, value, path=()):
        """Yield the paths of all values; of a list those of two items."""
        if path:
            yield path
        steps = list(value) if isinstance(value, dict) else range(2)
        if isinstance(value, dict | list) and path[:2] != ('hosts', 'hci-2'):
            for step in steps:
                if isinstance(value, dict) or step < len(value):
                    yield from self.paths(value[step], (*path, step))

    def replaced(self, path, value):
        found = copy.deepcopy(self.content)
        *parents, last = path
        target = found
        for step in parents:
            target = target[step]
        target[last] = value
        return found
