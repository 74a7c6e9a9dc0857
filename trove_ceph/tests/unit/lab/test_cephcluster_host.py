# SPDX-License-Identifier: Apache-2.0
"""Settings, configuration, processes and loop devices of a cluster, without a real cluster."""

import base64
import configparser
import io
import os
import signal
from pathlib import Path
from unittest import mock

import fixtures
from oslotest import base

from cephcluster import cli, conf, create, daemons, kernel, keys, layout, loop
from cephcluster.errors import ClusterError, UsageError


def settings(root, **changes):
    fields = {
        'fsid': 'f',
        'mon_addr': '127.0.0.1',
        'mon_port_v2': 3300,
        'mon_port_v1': 6789,
        'osd_classes': ('nvme', 'hdd'),
        'osd_gib': 3,
        'conf_dir': f'{root}/etc',
        'log_dir': f'{root}/log',
    }
    return layout.Settings(**fields | changes)


class HostTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.root = Path(self.useFixture(fixtures.TempDir()).path) / 'c'
        self.paths = layout.Layout(self.root)
        self.settings = settings(self.root)


class LayoutTest(HostTestCase):
    def test_saved_settings_can_be_read_back(self):
        self.assertIsNone(self.paths.find())
        self.paths.save(self.settings)
        self.assertEqual(self.settings, self.paths.find())

    def test_refuses_an_incomplete_cluster(self):
        self.assertIn('run create first', str(self.assertRaises(UsageError, self.paths.get)))
        self.paths.save(self.settings)
        self.assertIn('run create again', str(self.assertRaises(UsageError, self.paths.get)))
        self.paths.mark_complete()
        self.assertEqual(self.settings, self.paths.get())

    def test_differences_ignore_the_fsid(self):
        other = settings(self.root, fsid='g', osd_gib=4)
        self.assertEqual(['osd_gib'], self.settings.differences(other))

    def test_remove_data_keeps_foreign_files(self):
        self.paths.save(self.settings)
        etc = Path(self.settings.conf_dir)
        etc.mkdir()
        for name in ('ceph.conf', 'ceph.client.admin.keyring', 'other.conf'):
            (etc / name).touch()
        self.paths.remove_data(self.settings)
        self.assertEqual(['etc', 'etc/other.conf'], self._files())

    def _files(self):
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob('*'))

    def test_refuses_a_root_too_long_for_a_socket(self):
        self.assertRaises(UsageError, layout.Layout('/' + 'x' * 100).check)
        self.assertIsNone(layout.Layout('/srv/ceph').check())


class ConfTest(HostTestCase):
    def _render(self, release=16):
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_file(io.StringIO(conf.render(self.settings, self.paths, release)))
        return parser

    def test_all_paths_are_below_the_root(self):
        rendered = self._render()
        for section in ('mon', 'mgr', 'osd'):
            for option in ('run_dir', 'pid_file', 'admin_socket', 'log_file', 'crash_dir'):
                self.assertTrue(rendered[section][option].startswith(str(self.root)), option)
            self.assertIn(f'{section}_data', rendered[section])

    def test_snapshots_do_not_wait_for_the_monitor(self):
        rendered = self._render()
        self.assertEqual('0.05', rendered['mon']['paxos_propose_interval'])
        self.assertEqual('2', rendered['global']['rbd_default_clone_format'])
        self.assertEqual(str(3 * 1024**3), rendered['osd']['bluestore_block_size'])

    def test_blocklist_entries_last_a_week(self):
        rendered = self._render()
        self.assertEqual('604800', rendered['mon']['mon_osd_blocklist_default_expire'])
        for section in rendered.sections():
            self.assertNotIn('rbd_blocklist_expire_seconds', rendered[section])

    def test_discard_option_of_each_release(self):
        expected = {16: (True, False), 18: (True, True), 19: (False, True)}
        for release, present in expected.items():
            options = self._render(release)['osd']
            found = tuple(
                name in options for name in ('bdev_async_discard', 'bdev_async_discard_threads')
            )
            self.assertEqual(present, found, release)


class KernelTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.limit = Path(self.useFixture(fixtures.TempDir()).path) / 'aio-max-nr'

    def test_raises_the_default_of_the_kernel(self):
        self.limit.write_text('65536\n')
        self.assertTrue(kernel.allow_aio(self.limit))
        self.assertEqual('1048576\n', self.limit.read_text())
        self.assertFalse(kernel.allow_aio(self.limit))

    def test_keeps_a_higher_limit(self):
        self.limit.write_text('2097152\n')
        self.assertFalse(kernel.allow_aio(self.limit))
        self.assertEqual('2097152\n', self.limit.read_text())


class KeysTest(base.BaseTestCase):
    def test_key_has_the_layout_of_ceph(self):
        first, second = keys.generate(), keys.generate()
        self.assertNotEqual(first, second)
        raw = base64.b64decode(first)
        self.assertEqual(12 + 16, len(raw))
        self.assertEqual(b'\x01\x00', raw[:2])
        self.assertEqual(b'\x10\x00', raw[10:12])

    def test_keyring_section(self):
        self.assertEqual(
            '[client.x]\n\tkey = k\n\tcaps mon = "allow r"\n',
            keys.section('client.x', 'k', {'mon': 'allow r'}),
        )


class DaemonsTest(HostTestCase):
    def setUp(self):
        super().setUp()
        self.proc = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch('cephcluster.daemons.PROC', self.proc))
        self.conf = str(layout.conf_file(self.settings))

    def _process(self, pid, *arguments):
        (self.proc / str(pid)).mkdir()
        (self.proc / str(pid) / 'cmdline').write_text('\0'.join(arguments) + '\0')

    def test_finds_only_daemons_with_this_configuration(self):
        self._process(10, '/usr/bin/ceph-osd', '-i', '1', '-c', self.conf, '-f')
        self._process(11, 'ceph-mon', '-i', 'a', '-c', self.conf)
        self._process(12, 'ceph-osd', '-i', '1', '-c', '/etc/ceph/ceph.conf')
        self._process(13, 'sleep', '-i', '1', '-c', self.conf)
        self._process(14, 'ceph-osd', '-i', '0', '-c', self.conf, '--mkfs')
        self._process(15, 'ceph-osd', '-c')
        (self.proc / '16').mkdir()
        (self.proc / 'self').mkdir()
        found = {process.pid: process.name for process in daemons.find(self.settings)}
        self.assertEqual({10: 'osd.1', 11: 'mon.a', 14: 'osd.0'}, found)
        self.assertEqual([daemons.Process(10, 'osd.1')], daemons.find(self.settings, 'osd.1'))

    def test_does_not_signal_a_process_with_a_reused_pid(self):
        dead = daemons.Process(os.getpid(), 'osd.0')
        with mock.patch('signal.pidfd_send_signal') as send:
            left = daemons._signal_and_wait(self.settings, [dead], 15, timeout_sec=1)
        self.assertEqual([], left)
        send.assert_not_called()

    def test_waits_for_a_killed_daemon_that_waits_for_its_disk(self):
        self._process(10, 'ceph-osd', '-i', '1', '-c', self.conf)
        osd = daemons.Process(10, 'osd.1')
        waits = []

        def wait(settings, processes, number, timeout_sec):
            waits.append((processes, number, timeout_sec))
            return processes if number == signal.SIGTERM else []

        with mock.patch('cephcluster.daemons._signal_and_wait', wait):
            daemons.stop(self.settings, ['osd.1'], grace_sec=5)
        self.assertEqual(
            [([osd], signal.SIGTERM, 5), ([osd], signal.SIGKILL, daemons.KILL_TIMEOUT_SEC)],
            [each for each in waits if each[0]],
        )

    def test_refuses_an_unknown_daemon(self):
        error = self.assertRaises(UsageError, daemons.execute, self.settings, self.paths, 'osd.2')
        self.assertIn('it has mon.a, mgr.x, osd.0, osd.1', str(error))

    def _execute(self, name, **options):
        with (
            mock.patch('os.execvpe') as exec_,
            mock.patch('os.chdir') as chdir,
            mock.patch('cephcluster.throttle.limit') as limit,
            mock.patch('cephcluster.loop.ensure_attached', return_value='/dev/loop9'),
        ):
            self.paths.daemon_dir(name).mkdir(parents=True)
            daemons.execute(self.settings, self.paths, name, **options)
        self.arguments = exec_.call_args.args[1]
        self.assertEqual(['-i', name.partition('.')[2]], self.arguments[1:3])
        chdir.assert_called_once_with('/')
        return limit

    def test_an_osd_is_limited_before_it_runs(self):
        limit = self._execute('osd.1', device_iops=150)
        block = self.paths.daemon_dir('osd.1') / 'block'
        limit.assert_called_once_with(self.settings, 'osd.1', block, 150)

    def test_no_limit_by_default(self):
        self._execute('osd.0').assert_not_called()

    def test_refuses_to_limit_a_daemon_without_a_device(self):
        error = self.assertRaises(UsageError, self._execute, 'mon.a', device_iops=150)
        self.assertIn('mon.a has no device', str(error))

    def test_an_osd_with_cpus_and_memory_of_its_own(self):
        with mock.patch('os.sched_setaffinity') as set_cpus:
            self._execute('osd.1', cpus={1, 2}, memory_target_mib=1024)
        set_cpus.assert_called_once_with(0, {1, 2})
        expected = ['-f', '--bluestore_cache_autotune=true', '--osd_memory_target=1073741824']
        self.assertEqual(expected, self.arguments[-3:])

    def test_by_default_all_cpus_and_a_small_cache(self):
        with mock.patch('os.sched_setaffinity') as set_cpus:
            self._execute('osd.1')
        set_cpus.assert_not_called()
        self.assertEqual('-f', self.arguments[-1])

    def test_refuses_cpus_and_memory_that_a_daemon_cannot_have(self):
        error = self.assertRaises(UsageError, self._execute, 'osd.1', cpus={8000})
        self.assertIn('osd.1 cannot run on the CPUs 8000', str(error))
        error = self.assertRaises(UsageError, self._execute, 'mon.a', memory_target_mib=1024)
        self.assertIn('mon.a has no caches', str(error))

    def test_query_of_a_silent_admin_socket_returns_none(self):
        self.assertIsNone(daemons.query(self.paths, 'osd.0', 'status'))


class LoopTest(HostTestCase):
    def setUp(self):
        super().setUp()
        self.sysfs = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch('cephcluster.loop.SYSFS', self.sysfs))
        self.useFixture(fixtures.MonkeyPatch('cephcluster.loop.LOCK', self.sysfs / 'lock'))

    def _device(self, name, backing_file):
        directory = self.sysfs / name / 'loop'
        directory.mkdir(parents=True)
        (directory / 'backing_file').write_text(f'{backing_file}\n')

    def test_reuses_an_attached_device(self):
        self._device('loop3', '/x/block.img')
        self._device('loop4', '/x/block.img2')
        with mock.patch('subprocess.run') as run:
            self.assertEqual('/dev/loop3', loop.ensure_attached('/x/block.img'))
        run.assert_not_called()

    def test_finds_a_device_over_an_unlinked_file(self):
        self._device('loop5', '/x/block.img (deleted)')
        self.assertEqual(['/dev/loop5'], loop.find_all('/x/block.img'))

    def test_refuses_two_devices_over_one_file(self):
        self._device('loop3', '/x/block.img')
        self._device('loop4', '/x/block.img')
        error = self.assertRaises(ClusterError, loop.ensure_attached, '/x/block.img')
        self.assertIn('/dev/loop3, /dev/loop4', str(error))

    def test_retries_to_attach(self):
        busy = mock.Mock(returncode=1, stdout='', stderr='Device or resource busy')
        good = mock.Mock(returncode=0, stdout='/dev/loop7\n')
        with mock.patch('time.sleep'), mock.patch('subprocess.run', side_effect=[busy, good]):
            self.assertEqual('/dev/loop7', loop.ensure_attached('/x/block.img'))


class CreateTest(HostTestCase):
    def test_refuses_a_root_with_other_files(self):
        self.root.mkdir()
        (self.root / 'precious').touch()
        with mock.patch('os.geteuid', return_value=0), mock.patch('shutil.which'):
            error = self.assertRaises(
                UsageError, create.ensure_created, self.paths, self.settings, mock.Mock()
            )
        self.assertIn('contains other files: precious', str(error))
        self.assertTrue((self.root / 'precious').exists())

    def test_refuses_to_run_without_root(self):
        self.root.mkdir()
        with mock.patch('os.geteuid', return_value=1000):
            error = self.assertRaises(
                UsageError, create.ensure_created, self.paths, self.settings, mock.Mock()
            )
        self.assertIn('root is needed', str(error))

    def test_error_names_missing_programs_and_their_packages(self):
        self.root.mkdir()
        with (
            mock.patch('os.geteuid', return_value=0),
            mock.patch(
                'shutil.which', side_effect=lambda name: None if name == 'ceph-osd' else name
            ),
        ):
            error = self.assertRaises(
                UsageError, create.ensure_created, self.paths, self.settings, mock.Mock()
            )
        self.assertIn('not installed: ceph-osd (packages', str(error))

    def test_lock_survives_the_removal_of_the_directory(self):
        with create.locked(self.paths):
            self.assertTrue(self.root.is_dir())
        self.assertFalse(self.root.exists())
        with create.locked(self.paths):
            (self.root / 'kept').touch()
        self.assertTrue(self.root.exists())


class CommandLineTest(HostTestCase):
    def test_osd_groups_keep_their_order(self):
        arguments = cli.build_parser().parse_args(
            ['--root', '/r', 'create', '--osd', 'nvme=2', '--osd', 'hdd=1']
        )
        self.assertEqual([('nvme', 'nvme'), ('hdd',)], arguments.osd)
        self.assertEqual((3300, 6789), arguments.mon_ports)

    def test_limit_of_a_device(self):
        parser = cli.build_parser()
        run = ['--root', '/r', 'run', 'osd.3']
        self.assertEqual(0, parser.parse_args(run).device_iops)
        self.assertEqual(150, parser.parse_args([*run, '--device-iops', '150']).device_iops)

    def test_cpus_and_memory(self):
        parser = cli.build_parser()
        run = ['--root', '/r', 'run', 'osd.3']
        found = parser.parse_args([*run, '--cpus', '0,2', '--memory-target-mib', '896'])
        self.assertEqual(({0, 2}, 896), (found.cpus, found.memory_target_mib))
        found = parser.parse_args(run)
        self.assertEqual((set(), 0), (found.cpus, found.memory_target_mib))
        for words in (['--cpus', '0-1'], ['--cpus', ''], ['--memory-target-mib', '895']):
            with mock.patch('sys.stderr', new=io.StringIO()):
                self.assertRaises(SystemExit, parser.parse_args, [*run, *words])

    def test_status_without_a_cluster_fails(self):
        with mock.patch('sys.stderr', new=io.StringIO()) as stderr:
            self.assertEqual(2, cli.main(['--root', str(self.root), 'status']))
        self.assertIn('run create first', stderr.getvalue())

    def test_destroy_without_a_cluster_succeeds(self):
        with mock.patch('sys.stderr', new=io.StringIO()):
            self.assertEqual(0, cli.main(['--root', str(self.root), 'destroy']))
        self.assertFalse(self.root.exists())
