# SPDX-License-Identifier: Apache-2.0
"""The command line: bad input ends in one message, and leaves nothing."""

import contextlib
import errno
import io
import json
import os
from unittest import mock

from trove_ceph.imagebuild import boot_check, cache, cli, guest_image
from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.tests.unit.imagebuild.case import ImagesTestCase

MIRRORS = ('--mirror=http://m/debian', '--security-mirror=http://m/security')
FIT = {
    'cmdline': 'root=PARTUUID=x ro panic=10',
    'firmware': 'uefi',
    'lsm': 'lockdown,capability,apparmor',
    'apparmor': 'active, 30 profiles',
    'mitigations': 'meltdown:Mitigation: PTI',
    'time': 'active',
    'resolver': 'active /run/systemd/resolve/stub-resolv.conf',
    'dad': '0',
    'agent': 'enabled',
    'docker': 'active mysql:9.7.4',
    'confinement': '[name=apparmor name=seccomp]',
}


class CommandTestCase(ImagesTestCase):
    def run_command(self, *arguments):
        """Run a command; return its status, its output and its messages."""
        output, messages = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(messages):
            try:
                status = cli.main(['--' if a is None else str(a) for a in arguments])
            except SystemExit as ended:
                status = ended.code
        return status, output.getvalue(), messages.getvalue()

    def guest(self, *arguments, root=True):
        with mock.patch.object(os, 'geteuid', return_value=0 if root else 1000):
            with mock.patch.object(cli.commands, 'enter_private_mounts'):
                return self.run_command(
                    'guest', f'--cache={self.directory / "cache"}', *MIRRORS, *arguments
                )

    def refused(self, *arguments, **keywords):
        status, output, messages = self.guest(*arguments, **keywords)
        self.assertNotEqual(0, status)
        self.assertEqual('', output)
        self.assertNotIn('Traceback', messages)
        kept = self.directory / 'cache'
        left = [path.name for path in kept.iterdir()] if kept.exists() else []
        self.assertLessEqual(set(left), {'lock', 'log', 'tmp'})
        if 'tmp' in left:
            self.assertEqual([], os.listdir(kept / 'tmp'))
        return messages


class RefusalsTest(CommandTestCase):
    def test_unknown_profile(self):
        message = self.refused('--profile=vmware')
        self.assertIn('vmware', message)
        self.assertIn("'emulated', 'kvm'", message)

    def test_not_root(self):
        self.assertIn('needs root', self.refused('--profile=kvm', root=False))

    def test_missing_files(self):
        missing = self.directory / 'missing'
        for option in ('--constraints', '--lock', '--message-bus-ca'):
            message = self.refused(f'{option}={missing}')
            self.assertIn(option, message)
            self.assertIn(str(missing), message)
        message = self.refused(f'--mysql-image={missing}', '--mysql-version=8.4.6')
        self.assertIn(str(missing), message)

    def test_archive_without_a_version(self):
        archive = self.make_file('mysql.tar', 'x')
        self.assertIn('--mysql-version', self.refused(f'--mysql-image={archive}'))

    def test_time_server(self):
        self.assertIn('neither a host name', self.refused('--time-server=a b'))
        message = self.refused('--profile=emulated', '--time-server=10.0.0.1')
        self.assertIn('--profile kvm', message)

    def test_snapshot(self):
        origin = ('guest', '--snapshot=yesterday', '--dry-run')
        status, _, messages = self.run_command(*origin)
        self.assertEqual(1, status)
        self.assertIn('20261101T000000Z', messages)

    def test_mirror_and_snapshot(self):
        self.assertIn('not allowed with', self.refused('--snapshot=20261101T000000Z'))

    def test_no_space(self):
        usage = mock.Mock(free=1 << 29)
        with mock.patch.object(cache.shutil, 'disk_usage', return_value=usage):
            message = self.refused('--profile=kvm')
        self.assertIn('0.5 GiB of free space', message)
        self.assertIn('--cache', message)

    def test_disk_full_in_the_middle(self):
        full = OSError(errno.ENOSPC, 'No space left on device', 'disk.raw')

        def build(store, progress, inputs):
            with store.create('guest', '0' * 16) as entry:
                (entry / 'half').write_text('made')
                raise full

        with (
            mock.patch.object(cli, '_mysql_image'),
            mock.patch.object(cli, '_wheel'),
            mock.patch.object(guest_image, 'ensure_guest_image', build),
        ):
            message = self.refused('--profile=kvm')
        self.assertIn('No space left on device', message)
        self.assertIn('--cache', message)

    def test_image_to_check_that_does_not_exist(self):
        status, _, messages = self.run_command('check', self.directory / 'missing.qcow2')
        self.assertEqual(1, status)
        self.assertIn('missing.qcow2: no such file', messages)

    def test_tools_of_the_check(self):
        image = self.make_file('image.qcow2', 'x')
        with mock.patch.object(boot_check.shutil, 'which', return_value=None):
            status, _, messages = self.run_command('check', image, '--firmware=uefi')
        self.assertEqual(1, status)
        self.assertIn('genisoimage qemu-system-x86', messages)


class DryRunTest(CommandTestCase):
    def test_shows_the_plan_without_root(self):
        status, output, _ = self.guest('--profile=kvm', '--dry-run', root=False)
        self.assertEqual(0, status)
        plan = json.loads(output)
        self.assertEqual('kvm', plan['profile'])
        self.assertIn('systemd-timesyncd', plan['packages'])
        self.assertIn('deb http://m/security trixie-security main', plan['sources'])
        self.assertFalse((self.directory / 'cache').exists())

    def test_emulated_guests_have_none_of_production(self):
        plan = json.loads(self.guest('--dry-run')[1])
        self.assertEqual('emulated', plan['profile'])
        self.assertNotIn('systemd-timesyncd', plan['packages'])
        self.assertEqual(['deb http://m/debian trixie main'], plan['sources'])


class BootCheckTest(ImagesTestCase):
    def test_facts_of_a_console(self):
        console = (
            '[  3.1] systemd[1]: x\r\n[  9.9] noise trove-ceph-check: time=active \r\n'
            'trove-ceph-check: cmdline=root=x ro\r\ntrove-ceph-check: end=yes\r\n'
        )
        self.assertEqual(
            {'time': 'active', 'cmdline': 'root=x ro', 'end': 'yes'}, boot_check.facts(console)
        )

    def test_fit_guest(self):
        self.assertEqual([], boot_check.problems(FIT, 'uefi'))

    def test_each_problem(self):
        for name, value, shown in (
            ('firmware', 'bios', 'not uefi'),
            ('cmdline', 'ro mitigations=off', 'mitigations=off'),
            ('lsm', 'capability', 'AppArmor'),
            ('apparmor', 'failed, 0 profiles', 'AppArmor is failed'),
            ('mitigations', 'meltdown:Vulnerable', 'vulnerable'),
            ('time', 'inactive', 'timesyncd is inactive'),
            ('resolver', 'inactive /etc/resolv.conf', 'resolver'),
            ('dad', '0 1', 'duplicates of IPv6 addresses: 0 1'),
            ('agent', 'masked', 'agent is masked'),
            ('docker', 'active', 'docker is active'),
            ('confinement', '[name=seccomp]', 'confined by'),
        ):
            [problem] = boot_check.problems(FIT | {name: value}, 'uefi')
            self.assertIn(shown, problem)

    def test_facts_that_the_script_prints(self):
        """Each fact that is examined is one that the script prints."""
        script = boot_check._SCRIPT.read_text()
        for name in FIT:
            self.assertIn(f'say {name} ', script)

    def test_guest_that_ends(self):
        log = self.make_file('qemu.log', 'cannot open')
        serial = self.make_file('serial.log', 'last line\r\n')
        guest = mock.Mock()
        guest.poll.return_value = 1
        error = self.assertRaises(BuildError, boot_check._wait, guest, serial, log)
        self.assertIn('cannot open', str(error))
        self.assertIn('last line', str(error))
