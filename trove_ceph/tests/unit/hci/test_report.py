# SPDX-License-Identifier: Apache-2.0
import json

from oslotest import base

from trove_ceph.hci import planning, report
from trove_ceph.tests.unit.hci import sample


def plan(inventory=None, **load):
    return planning.plan(inventory or sample.inventory(), sample.workload(**load), sample.CHOICES)


class ReportTest(base.BaseTestCase):
    def test_lists_of_cpus(self):
        for cpus, expected in (
            ((), '-'),
            ((3,), '3'),
            ((41, 0, 1, 2, 40), '0-2,40-41'),
            ((0, 2, 4), '0,2,4'),
        ):
            self.assertEqual(expected, report.cpu_list(cpus))

    def test_tables(self):
        text = report.plan_text(plan())
        self.assertIn('| hci-5 | 20     | 4    | 63900 MiB ', text)
        self.assertIn(
            '| hci-1 and 4 more | 1    | 20,60     | 21-26,61-66 | 27-39,67-79 | 10 ', text
        )
        self.assertIn('| /dev/nvme3n1 | 1    | 3.84 TB | 1    | /dev/pmem0n1 | 93.8 GB ', text)
        self.assertIn('| bond1     | 1    | 20-26,60-66 ', text)
        self.assertNotIn('WARNING', text)
        self.assertNotIn('source:', text)

    def test_without_db_devices_and_replicas(self):
        text = report.plan_text(plan(sample.inventory(db_devices=()), replicas=0))
        self.assertIn('| /dev/nvme3n1 | 1    | 3.84 TB | 1    | -         | -          |', text)
        self.assertIn('no replicas are planned; there are hosts for 4;', ' '.join(text.split()))

    def test_explanation(self):
        text = report.plan_text(plan(), explain=True)
        self.assertEqual(1, text.count('reserved_host_memory_mb = 63900 MiB'))
        self.assertIn('hci-1, hci-2, hci-3, hci-4, hci-5:\n', text)
        self.assertIn('= 10855 x 4 + 512 x 40\n', text)
        self.assertIn('= memory 40, CPUs 28, NUMA nodes 26, workload 20\n', text)
        self.assertIn('limit: bound by the workload\n', text)
        self.assertIn(
            'limit: bound by NUMA nodes',
            report.plan_text(plan(databases_per_host=None), explain=True),
        )

    def test_hosts_that_differ_are_explained_apart(self):
        odd = sample.host('odd', data_devices=sample.devices(2))
        inventory = sample.inventory(3)
        mixed = type(inventory)((*inventory.hosts, odd), 3)
        text = report.plan_text(plan(mixed), explain=True)
        self.assertIn('hci-1, hci-2, hci-3:\n', text)
        self.assertIn('\nodd:\n', text)

    def test_every_value_of_a_host_is_explained(self):
        made = plan()
        fields = {one.field for one in made.derivations if one.host == 'hci-1'}
        self.assertLessEqual(
            {
                'guests',
                'osds_per_device',
                'vcpus_per_osd',
                'memory_per_osd_mib',
                'reserved_host_memory_mb',
                'disk_allocation_ratio',
                'cpu_allocation_ratio',
                'cpu_shared_set_allocation_ratio',
                'osd_memory_target',
                'nodes.0.cpus',
                'nodes.1.huge_pages',
                'osds.db_bytes',
            },
            fields,
        )

    def test_equal_findings_are_one(self):
        text = report.findings_text(plan(sample.inventory(db_devices=())).findings)
        self.assertEqual(
            [
                'WARNING hosts.hci-1.db_devices (and 4 more like it): 0 devices',
                '    expected: 1 device or more (Intel 2018, table 2: Ceph storage system '
                'configurations)',
                '    advice: add a device of low latency for the DB and the WAL of the OSDs',
            ],
            text.splitlines(),
        )

    def test_summary(self):
        self.assertEqual('ok: 5 hosts meet every rule', report.summary(plan()))
        warned = plan(sample.inventory(3))
        self.assertEqual('warning: 0 errors, 2 warnings', report.summary(warned))
        refused = plan(replicas=9)
        self.assertEqual('error: 1 errors, 0 warnings', report.summary(refused))

    def test_document(self):
        made = plan(databases_per_host=30)
        document = report.document(made)
        self.assertEqual(document, json.loads(json.dumps(document)))
        [host, *_] = document['hosts']
        self.assertEqual([0, 20, 40, 60], host['host_cpus'])
        self.assertEqual({*range(80)}, {*host['host_cpus'], *host['osd_cpus'], *host['guest_cpus']})
        self.assertEqual({'trove_ceph_hci': 'true'}, document['aggregates'][0]['properties'])
        self.assertEqual('error', document['findings'][0]['level'])
        self.assertEqual('ceph', document['root_disk'])
        self.assertIs(str, type(document['root_disk']))
