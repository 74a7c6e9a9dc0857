# SPDX-License-Identifier: Apache-2.0
"""The doctor on a real cluster that is broken step by step, and on a real RabbitMQ."""

import json
import os
import signal
import subprocess
import sys

import yaml

from trove_ceph.doctor import bus, measurement
from trove_ceph.storage import fencing
from trove_ceph.storage_service import message_keys
from trove_ceph.tests.functional import base, ceph, rabbitmq, workspace

CONTENT = {
    'tiers': {
        'data': ceph.tier('data', 'ssd', 'data', 3, 16, min_size=2),
        'replica': ceph.tier('replica', 'ssd', 'replica', 1, 8),
    },
    'users': {'client.cinder': {'role': 'cinder', 'exclusive': True}},
}
#: The checks that ask nothing but Ceph.
CHECKS = (
    *('health', 'monitors', 'monitor-clocks', 'ceph-version', 'clone-format', 'redundancy'),
    *('fill', 'blocklist', 'blocklist-expiry', 'healing', 'failure-domains', 'device-classes'),
    *('placement-groups', 'pools', 'caps'),
)
TIMEOUT_SEC = 300


class DoctorTestCase(base.FunctionalTestCase):
    def examine(self, conf, *checks, content=CONTENT):
        """Return the exit status, and the findings that are not ok, by check and object."""
        file = self.directory / 'doctor.yaml'
        file.write_text(yaml.safe_dump(content))
        command = [sys.executable, '-W', 'ignore', '-c', ceph.MANAGE, 'doctor', '-f', 'json']
        command += ['--file', file, '--ceph-conf', conf]
        for name in checks or CHECKS:
            command += ['--check', name]
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SEC, check=False
        )
        self.assertEqual('', result.stderr)
        rows = json.loads(result.stdout)
        self.assertEqual(set(checks or CHECKS), {row['check'] for row in rows})
        # The worst findings come first, and the worst of an object counts here.
        bad = [row for row in reversed(rows) if row['level'] != 'ok']
        found = {(row['check'], row['object']): row for row in bad}
        return result.returncode, found


class UnreachableCephTest(DoctorTestCase):
    def test_unreachable_cluster(self):
        conf = self.directory / 'nowhere.conf'
        conf.write_text('[global]\nmon_host = 127.0.0.1:1\nkeyring = /dev/null\n')
        status, found = self.examine(conf, 'health', 'fill')
        self.assertEqual(3, status)
        self.assertEqual({('health', 'Ceph'), ('fill', 'Ceph')}, found.keys())


class CephTestCase(DoctorTestCase):
    """Tests on a cluster of their own, which the tests of a class share."""

    cluster = None

    def setUp(self):
        super().setUp()
        if self.cluster is None:
            type(self).cluster = self._create()

    def _create(self):
        cluster = ceph.Cluster(workspace.shared() / type(self).__name__, {'ssd': 3}, osd_gib=3)
        self.addClassCleanup(cluster.try_tool, 'destroy')
        cluster.create()
        cluster.start()
        cluster.apply(CONTENT)
        cluster.mon_command('osd set-require-min-compat-client', version='mimic')
        return cluster

    def _examine(self, *checks, **options):
        return self.examine(self.cluster.conf, *checks, **options)


class CephTest(CephTestCase):
    def test_cluster_as_described_and_not(self):
        # The placement groups have just been created; the time limit of a test bounds the wait.
        while self._examine('redundancy')[1]:
            pass
        # A cluster of a test has one monitor, three OSDs for three copies, and few groups.
        status, found = self._examine()
        expected = {
            ('monitors', 'monitors'),
            ('healing', 'pool data'),
            ('placement-groups', 'device class ssd'),
        }
        # What the doctor says of it must be what Ceph says.
        if self.cluster.lacks_manager_modules():
            expected |= {('health', 'MGR_MODULE_DEPENDENCY')}
        self.assertEqual((1, expected), (status, found.keys()))

        other = json.loads(json.dumps(CONTENT))
        other['tiers']['data']['min_size'] = 1
        other['tiers']['more'] = ceph.tier('vault', 'ssd', 'more', 2, 8)
        other['users']['client.ours'] = {'role': 'storage'}
        status, found = self._examine('pools', 'caps', content=other)
        self.assertEqual(2, status)
        self.assertEqual(
            {
                ('pools', 'pool data'): 'warning',
                ('pools', 'pool more'): 'error',
                # Its role applies to the new tier, too.
                ('caps', 'cephx user client.cinder'): 'error',
                ('caps', 'cephx user client.ours'): 'error',
            },
            {key: row['level'] for key, row in found.items()},
        )

        self.cluster.mon_command('osd pool set', pool='data', var='min_size', val='1')
        self.cluster.mon_command(
            'auth caps', entity='client.cinder', caps=['mon', 'profile rbd', 'osd', 'allow *']
        )
        status, found = self._examine('redundancy', 'caps')
        self.assertEqual('min_size 1 of 3 copies', found['redundancy', 'pool data']['observed'])
        self.assertIn('lacks caps', found['caps', 'cephx user client.cinder']['observed'])

    def test_entries_of_librbd_that_end_before_those_of_a_fence(self):
        self._set_expiry(3600)
        self.addCleanup(self._set_expiry, fencing.EXPIRE_SEC)
        status, found = self._examine('blocklist-expiry')
        ((_name, monitor),) = found
        self.assertEqual((2, 'error'), (status, found['blocklist-expiry', monitor]['level']))
        self.assertIn('3600', found['blocklist-expiry', monitor]['observed'])
        self._set_expiry(fencing.EXPIRE_SEC)
        self.assertEqual((0, {}), self._examine('blocklist-expiry'))

    def _set_expiry(self, seconds):
        option = ('config', 'set', 'mon_osd_blocklist_default_expire', str(seconds))
        subprocess.run(
            ['ceph', '--conf', self.cluster.conf, 'tell', 'mon.*', *option],
            check=True,
            capture_output=True,
        )

    def test_measures_and_removes_its_image(self):
        target = measurement.Target(str(self.cluster.conf), 'admin', 'data')
        found = measurement.measure(target, 3, seconds=2, size_mib=64)
        self.assertGreater(min(found.read_iops, found.write_iops), 0)
        with self.cluster.pool('data') as context:
            names = [item.key for item in context.list_objects()]
        self.assertEqual([], [name for name in names if name.startswith(('rbd_id', 'rbd_data'))])


@base.long
class LostOsdTest(CephTestCase):
    def test_lost_osd(self):
        osd = next(name for name in self.cluster.pids() if name.startswith('osd.'))
        os.kill(self.cluster.pids()[osd], signal.SIGKILL)
        found, redundancy = {}, ''
        # The time limit of a test bounds the wait. At first the placement groups are "stale".
        while ('health', 'OSD_DOWN') not in found or 'undersized' not in redundancy:
            _, found = self._examine()
            redundancy = found.get(('redundancy', 'pool data'), {}).get('observed', '')
        self.assertEqual('warning', found['health', 'OSD_DOWN']['level'])


class MessageBusTest(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        self.rabbit = self.useFixture(rabbitmq.RabbitMQ(self.directory))
        message_keys.create(str(self.directory / 'keys.json'))
        self.guest = self.directory / 'guest.conf'
        self.guest.write_text(f'[DEFAULT]\ntransport_url = {self.rabbit.url("guest")}\n')

    def _read(self, own):
        file = self.directory / 'trove.conf'
        file.write_text(
            f'[DEFAULT]\ntransport_url = {self.rabbit.url("trove")}\nguest_config = {self.guest}\n'
            f'[trove_ceph_storage]\ntransport_url = {own}\n'
            f'key_file = {self.directory / "keys.json"}\n'
        )
        return bus.read([str(file)])

    def test_guests_are_kept_out(self):
        found = self._read(self.rabbit.url('caller'))
        self.assertEqual(bus.BusFacts(None, str(self.guest), True, False), found)

    def test_virtual_host_that_guests_enter(self):
        """The doctor asks the broker, and does not believe a separate user."""
        self.guest.write_text(f'[DEFAULT]\ntransport_url = {self.rabbit.url("storage")}\n')
        self.assertIs(True, self._read(self.rabbit.url('caller')).enters)
