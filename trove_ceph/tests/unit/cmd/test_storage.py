# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-storage`` as a process, without Ceph, which it needs no sooner than it serves."""

import os
import re
import signal
import subprocess
import sys
import urllib.request

import fixtures
from oslotest import base

from trove_ceph.storage_service import message_keys

RUN = 'import sys; from trove_ceph.cmd import storage; sys.exit(storage.main())'
#: Serves on a cluster in memory.
RUN_ON_FAKE = (
    """
import sys
import types
from trove_ceph.storage.fake import backend, cluster, lock_store
from trove_ceph.storage_service import server

def make(options, verification):
    pools = server.find_pools(options)
    made = cluster.Cluster(dict.fromkeys(pools.images, 2**30))
    return server.Service(backend.FakeBackend(made), lock_store.FakeLockStore(made), pools, options)

def storage(options):
    pools = server.find_pools(options)
    return backend.FakeBackend(cluster.Cluster(dict.fromkeys(pools.images, 2**30)))

sys.modules['trove_ceph.storage_service.factory'] = types.SimpleNamespace(
    make=make, storage=storage
)
import trove_ceph.storage_service
trove_ceph.storage_service.factory = sys.modules['trove_ceph.storage_service.factory']
"""
    + RUN
)
TIMEOUT_SEC = 60


class StorageCommandTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir())
        self.config = self.directory.join('storage.conf')

        self.key_file = self.directory.join('keys.json')
        message_keys.create(self.key_file)

    def configure(self, *lines, url='fake:///storage', guests='rabbit://g:s@controller/trove'):
        """Write the configuration file.

        :param guests: [DEFAULT] transport_url
        """
        sections = ['[DEFAULT]', f'transport_url = {guests}', '[trove_ceph_storage]']
        options = [f'transport_url = {url}', f'key_file = {self.key_file}', *lines, '']
        with open(self.config, 'w') as config:
            config.write('\n'.join([*sections, *options]))

    def refusal(self):
        """Start the service, and return what it says before it ends with status 1."""
        process = self.start(RUN_ON_FAKE, '--config-file', self.config)
        text, _ = process.communicate(timeout=TIMEOUT_SEC)
        self.assertEqual(1, process.returncode, text)
        self.assertIn('Cannot serve', text)
        return text

    def start(self, code, *arguments):
        process = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-c', code, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {'COLUMNS': '100'},
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_help_teaches(self):
        process = self.start(RUN, '--help')
        text, _ = process.communicate(timeout=TIMEOUT_SEC)
        self.assertEqual(0, process.returncode)
        words = ' '.join(text.split())
        for taught in (
            'usage: trove-ceph-storage',
            'only process of trove_ceph that holds a Ceph key',
            '/etc/trove-ceph/trove-ceph-storage.conf',
            'transport_url',
            'storage keys create',
            'SIGTERM ends it gracefully',
        ):
            self.assertIn(taught, words)

    def test_a_wrong_tiers_file_is_told(self):
        self.configure(f'tiers_file = {self.directory.join("none")}')
        self.assertIn('cannot be read', self.refusal())

    def test_it_does_not_serve_where_guests_can_ask(self):
        guests = 'rabbit://g:s@controller/trove'
        self.configure('pools = volumes,vault', url=guests)
        self.assertIn('has the same virtual host trove on controller', self.refusal())
        self.configure('pools = volumes,vault', url='')
        self.assertIn('transport_url: is not set', self.refusal())

    def test_it_does_not_serve_without_keys(self):
        self.configure('pools = volumes,vault')
        os.chmod(self.key_file, 0o640)
        reason = 'has mode 0640; only its owner may have access'
        self.assertIn(f'{self.key_file}: {reason}', self.refusal())
        os.unlink(self.key_file)
        self.assertIn(f'{self.key_file}: cannot be read', self.refusal())

    def test_it_serves_until_it_is_told_to_end(self):
        self.configure('pools = volumes,vault')
        for number in (signal.SIGTERM, signal.SIGINT):
            process, text = self.signal(number)
            self.assertEqual(0, process.returncode, text)
            self.assertIn('has stopped', text)

    def test_an_abort_shows_what_each_thread_did(self):
        self.configure('pools = volumes,vault')
        process, text = self.signal(signal.SIGABRT)
        self.assertEqual(-signal.SIGABRT, process.returncode, text)
        self.assertIn('Fatal Python error: Aborted', text)
        self.assertIn('cmd/storage.py', text)

    def signal(self, number):
        """Send a signal to a serving process; return the process, which has ended, and its text."""
        process = self.start(RUN_ON_FAKE, '--config-file', self.config)
        lines = []
        for line in process.stdout:
            lines.append(line)
            if 'answers on topic trove-ceph-storage' in line:
                break
        process.send_signal(number)
        lines.append(process.communicate(timeout=TIMEOUT_SEC)[0])
        return process, ''.join(lines)

    def test_it_exports_metrics(self):
        section = ('[trove_ceph_metrics]', 'enabled = true', 'port = 0')
        self.configure('pools = volumes,vault', *section)
        process = self.start(RUN_ON_FAKE, '--config-file', self.config)
        exported = None
        for line in process.stdout:
            exported = re.search(r'exported on 127\.0\.0\.1 port (\d+)', line)
            if exported:
                break
        self.assertIsNotNone(exported)
        url = f'http://127.0.0.1:{exported[1]}/metrics'
        with urllib.request.urlopen(url, timeout=TIMEOUT_SEC) as answer:
            text = answer.read().decode()
        self.assertIn('trove_ceph_operations_running{operation="storage.copy"} 0.0', text)
        self.assertIn('trove_ceph_figures_up{source="cluster"}', text)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_SEC)
        self.assertEqual(0, process.returncode)
