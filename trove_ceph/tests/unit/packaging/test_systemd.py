# SPDX-License-Identifier: Apache-2.0
"""The files for systemd and logrotate, read by these tools themselves."""

import configparser
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph.cmd import storage
from trove_ceph.conf import storage as storage_conf
from trove_ceph.tests.unit.packaging import ETC

UNIT = 'trove-ceph-storage.service'
DROP_IN = f'{UNIT}.d/verification.conf'
_PASSWD = 'root:x:0:0::/root:/bin/sh\ntrove-ceph:x:990:990::/:/bin/false\n'
_GROUP = 'root:x:0:\ntrove-ceph:x:990:\n'


def run(*words):
    """Return a finished command with all that it said."""
    # logrotate is not in the path of users other than root.
    environ = dict(os.environ, PATH=f'{os.environ["PATH"]}:/usr/sbin:/sbin', LC_ALL='C')
    return subprocess.run(
        words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ
    )


class ServiceTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.unit = self.directory / UNIT
        # The only thing that is different: the program is one that exists on every host.
        self.text = (ETC / 'systemd' / UNIT).read_text()
        self.unit.write_text(
            self.text.replace('/opt/trove-ceph/bin/trove-ceph-storage', '/bin/true')
        )

    def add_drop_in(self):
        target = self.directory / DROP_IN
        target.parent.mkdir()
        shutil.copy(ETC / 'systemd' / DROP_IN, target)

    def verify(self):
        result = run('systemd-analyze', 'verify', '--man=no', str(self.unit))
        self.assertEqual((0, ''), (result.returncode, result.stdout))

    def findings(self):
        """Return whether the service is safe in each respect that systemd knows."""
        words = ('security', '--offline=yes', '--no-pager', '--json=short')
        result = run('systemd-analyze', *words, str(self.unit))
        self.assertEqual(0, result.returncode, result.stdout)
        return {one['json_field']: one['set'] for one in json.loads(result.stdout)}

    def test_unit(self):
        self.verify()

    def test_unit_with_verification(self):
        self.add_drop_in()
        self.verify()

    def test_mistakes_are_found(self):
        self.unit.write_text(self.unit.read_text().replace('KillMode=mixed', 'KillMode=both'))
        result = run('systemd-analyze', 'verify', '--man=no', str(self.unit))
        self.assertIn('kill mode', result.stdout)

    def test_exposure(self):
        words = ('security', '--offline=yes', '--no-pager', '--threshold=20')
        result = run('systemd-analyze', *words, str(self.unit))
        self.assertEqual(0, result.returncode, result.stdout)

    def test_capabilities(self):
        self.assertTrue(self.findings()['CapabilityBoundingSet_CAP_SYS_ADMIN'])

    def test_capabilities_with_verification(self):
        self.add_drop_in()
        found = self.findings()
        # For mounts; for the owner of a tenant's files; for processes of other users.
        for needed in ('SYS_ADMIN', 'CHOWN_FSETID_SETFCAP', 'SET_UID_GID_PCAP', 'SYS_PTRACE'):
            self.assertFalse(found[f'CapabilityBoundingSet_CAP_{needed}'], needed)
        for refused in ('SYS_MODULE', 'SYS_BOOT', 'SYS_RAWIO', 'SYS_TIME', 'BPF', 'AUDIT', 'MAC'):
            self.assertTrue(found[f'CapabilityBoundingSet_CAP_{refused}'], refused)
        # A filter of the service would be one of each sandbox in it, too.
        self.assertFalse(found['RestrictNamespaces_user'])
        self.assertFalse(found['SystemCallFilter_mount'])

    def test_command(self):
        [line] = [line for line in self.text.splitlines() if line.startswith('ExecStart=')]
        program, *words = line.removeprefix('ExecStart=').split()
        self.assertEqual(storage.PROG, Path(program).name)
        start = 'import sys; from trove_ceph.cmd import storage; sys.exit(storage.main())'
        result = run(sys.executable, '-W', 'ignore', '-c', start, words[0], f'{self.unit}.conf')
        # The parser took the option, and missed the file.
        self.assertIn(f'{self.unit}.conf', result.stdout)
        self.assertIn(words[1], storage._EPILOG)

    def test_stops_within_its_time(self):
        [default] = [one.default for one in storage_conf.OPTS if one.name == 'stop_timeout_sec']
        unit = configparser.ConfigParser(strict=False)
        unit.optionxform = str
        unit.read_string(self.text)
        self.assertGreater(unit.getint('Service', 'TimeoutStopSec'), default)


class ConfigurationTest(base.BaseTestCase):
    """Files for systemd-sysusers, systemd-tmpfiles and logrotate."""

    def setUp(self):
        super().setUp()
        self.root = Path(self.useFixture(fixtures.TempDir()).path)
        (self.root / 'etc').mkdir()

    def test_user(self):
        source = ETC / 'sysusers.d' / 'trove-ceph.conf'
        result = run('systemd-sysusers', '--dry-run', f'--root={self.root}', str(source))
        self.assertEqual(0, result.returncode, result.stdout)
        self.assertIn("Creating user 'trove-ceph'", result.stdout)
        [line] = [line for line in source.read_text().splitlines() if line.startswith('u ')]
        self.assertIn(f'\nUser={line.split()[1]}\n', (ETC / 'systemd' / UNIT).read_text())

    def create(self, text):
        (self.root / 'etc' / 'passwd').write_text(_PASSWD)
        (self.root / 'etc' / 'group').write_text(_GROUP)
        source = self.root / 'trove-ceph.conf'
        source.write_text(text)
        # All lines are parsed, with their users. Nothing of them has an age, so nothing is done:
        # other users than root cannot give files away.
        return run('systemd-tmpfiles', '--clean', f'--root={self.root}', str(source))

    def test_files(self):
        text = (ETC / 'tmpfiles.d' / 'trove-ceph.conf').read_text()
        result = self.create(text)
        self.assertEqual((0, ''), (result.returncode, result.stdout))
        paths = [line.split()[1] for line in text.splitlines() if not line.startswith('#')]
        defaults = [one.default for one in storage_conf.OPTS if one.name == 'key_file']
        # The service would refuse it with the mode of the others.
        self.assertNotIn(defaults[0], paths)

    def test_mistakes_in_files_are_found(self):
        text = (ETC / 'tmpfiles.d' / 'trove-ceph.conf').read_text()
        result = self.create(text.replace(' trove-ceph -', ' nobody-has-this -'))
        self.assertNotEqual(0, result.returncode, result.stdout)

    def rotate(self, text):
        source = self.root / 'trove-ceph'
        source.write_text(text)
        source.chmod(0o644)
        log = self.root / 'trove-ceph-storage.log'
        log.write_text('started\n')
        words = ('--debug', '--force', f'--state={self.root}/state', str(source))
        return run('logrotate', *words)

    def test_logs(self):
        text = (ETC / 'logrotate.d' / 'trove-ceph').read_text()
        result = self.rotate(text.replace('/var/log/trove-ceph', str(self.root)))
        self.assertEqual(0, result.returncode, result.stdout)
        self.assertIn(f'copying {self.root}/trove-ceph-storage.log to', result.stdout)
        self.assertNotIn('error', result.stdout)

    def test_mistakes_in_logs_are_found(self):
        text = (ETC / 'logrotate.d' / 'trove-ceph').read_text()
        result = self.rotate(text.replace('copytruncate', 'copytruncated'))
        self.assertIn('unknown option', result.stdout)
