# SPDX-License-Identifier: Apache-2.0
"""Inspections of hostile data by compromised servers, in each confinement.

The data is in files of this host; the tests do not need Ceph.
"""

import dataclasses
import os
import pathlib
import subprocess
import threading

import fixtures
import psutil

from trove_ceph import exceptions
from trove_ceph.host import control_group, qemu_machine, workspace
from trove_ceph.storage import image_types
from trove_ceph.tests.functional import base, local_disk, mysqld, virtual_machine
from trove_ceph.verification import isolation, on_host, report, vm_image, vm_probe
from trove_ceph.verification import virtual_machine as sandboxes

MIB = 1024**2
CLONE = image_types.ImageRef('volumes', 'clone')
TIMEOUT_SEC = 240
# Another user of this host, with the id that a tenant chose for its files.
TENANT_ID = 999

_made = {}


class ConfinedServerTestCase(base.FunctionalTestCase):
    isolation = ''
    memory_limits = ()

    def setUp(self):
        super().setUp()
        self.volume = self.directory / 'volume.img'
        self.inspections = self.directory / 'i'
        # All directories above the confined one are open to all users.
        self.directory.chmod(0o711)
        if 'database' not in _made:
            _made['database'] = workspace_file()
            local_disk.make_database(_made['database'], self.directory)
        local_disk.copy(_made['database'], self.volume)
        self.addCleanup(self.volume.unlink)

    def settings(self, root, **changes):
        return report.InspectionSettings(
            **{
                'roots': {'9.7': root},
                'directory': self.inspections,
                'memory_bytes': 640 * MIB,
                'bytes_per_sec': 0,
                'time_limit_sec': TIMEOUT_SEC,
                'deep': True,
                'sample_tables': 5,
                'sample_bytes': MIB,
                **changes,
            }
        )

    def make_sandbox(self, settings):
        raise NotImplementedError

    def open(self, root=None, **changes):
        sandbox = self.make_sandbox(self.settings(root or mysqld.rootfs(), **changes))
        self.addCleanup(self.assert_nothing_left)
        self.addCleanup(sandbox.close)
        sandbox.clear_killed()
        sandbox.open(CLONE)
        return sandbox

    def assert_nothing_left(self):
        self.assertEqual([], list(self.inspections.iterdir()))
        self.assertEqual([], workspace.members(self.inspections))
        self.assertEqual([], workspace.mounts(self.inspections))
        self.assertEqual([], workspace.loop_devices(self.inspections))
        groups = [*control_group.ROOT.rglob(f'{control_group.PREFIX}.{os.getpid()}.*')]
        self.assertEqual([], groups)

    def start_hostile(self, body, error=exceptions.ServerFailedError, **changes):
        """Start a compromised server, and return its output."""
        root = local_disk.hostile_root(self.directory, body)
        self.addCleanup(local_disk.remove, root)
        server = self.open(root, **changes).serve('9.7.4')
        return str(self.assertRaises(error, server.start, TIMEOUT_SEC))

    def change(self, how):
        with local_disk.mounted(self.volume, self.directory / 'changed') as volume:
            how(volume / 'data')

    def assert_found(self, verdict, reason):
        sandbox = self.open()
        found = self.assertRaises(report.NotSoundError, sandbox.serve, '9.7.4')
        self.assertEqual((verdict, reason), (found.verdict, found.reason))


class Contract:
    """What holds in each mode of isolation."""

    # Sound and damaged data.

    def test_inspects_with_a_real_server(self):
        sandbox = self.open()
        server = sandbox.serve('9.7.4')
        self.assertEqual('9.7.4', server.data_version)
        server.start(TIMEOUT_SEC)
        self.assertIn('9.7.4', server.version())
        position = server.gtid_executed()
        uuid, _, last = position.rpartition(':1-')
        self.assertEqual('3', last, position)
        self.assertEqual(('', f'{uuid}:3'), server.missing_and_extra(f'{uuid}:1-2', position))
        tables = {str(table): table for table in server.tables()}
        server.check(tables['shop.orders'])
        server.read_ends(tables['mysql.user'], MIB)
        self.assertEqual(self.isolation, sandbox.isolation)
        self.assertIn(sandbox.memory_limit, self.memory_limits)

    def test_refuses_an_index_larger_than_memory(self):
        def grow(data):
            (data / 'a.index').touch()
            os.truncate(data / 'a.index', 600 * MIB)

        self.change(grow)
        self.assert_found(report.CORRUPT, 'a.index is not a list of logs')

    def test_refuses_a_link_to_a_file_of_the_host(self):
        def link(data):
            (data / 'mysql.ibd').unlink()
            (data / 'mysql.ibd').symlink_to('/etc/shadow')

        self.change(link)
        self.assert_found(report.CORRUPT, 'mysql.ibd cannot be read: is not a regular file')

    def test_inspects_a_data_directory_of_root(self):
        self.change(lambda data: os.chown(data, 0, 0))
        self.assert_found(report.CORRUPT, 'data belongs to root')

    def test_server_does_not_run_as_the_user_that_the_tenant_chose(self):
        """With any id, the server owns the files and is another user on the host."""

        def give_away(data):
            for path in (data, *data.rglob('*')):
                os.chown(path, 12345, 54321, follow_symlinks=False)

        self.change(give_away)
        server = self.open().serve('9.7.4')
        server.start(TIMEOUT_SEC)
        self.assertIn('9.7.4', server.version())

    # Compromised servers.

    def test_nothing_of_the_host_is_visible(self):
        secret = self.directory / 'secret'
        secret.write_text('secret')
        secret.chmod(0o644)
        output = self.start_hostile(
            f"""
            say "processes $(ls -d /proc/[0-9]* | wc -l)"
            say "links $(grep -c : /proc/net/dev)"
            cat {secret} >/dev/null 2>&1 && say seen || say hidden
            touch /usr/x 2>/dev/null && say wrote || say cannot write
            say "places $(ls / | grep -cE '^(sys|work)$')"
            say "command line $(cat /proc/cmdline 2>/dev/null | wc -c)"
            """
        )
        for expected in ('links 1;', 'hidden', 'cannot write', 'places 0'):
            self.assertIn(expected, output)
        (processes,) = [part for part in output.split('; ') if 'processes ' in part]
        self.assertLess(int(processes.rpartition(' ')[2]), 60, output)

    def test_cannot_reach_other_processes(self):
        ids = (f'--reuid={TENANT_ID}', f'--regid={TENANT_ID}')
        neighbour = subprocess.Popen(['setpriv', *ids, '--clear-groups', 'sleep', '600'])
        self.addCleanup(neighbour.wait)
        self.addCleanup(neighbour.kill)
        output = self.start_hostile(
            f"""
            kill -9 {neighbour.pid} 2>/dev/null && say killed || say cannot kill
            ls /proc/{neighbour.pid}/root/etc >/dev/null 2>&1 && say seen || say cannot see
            """
        )
        self.assertIn('cannot kill', output)
        self.assertIn('cannot see', output)
        self.assertIsNone(neighbour.poll())

    def test_kill_of_all_processes_ends_only_the_server(self):
        """The processes of its sandbox end, and nothing else."""
        output = self.start_hostile('kill -9 -1; say killed all')
        is_over = 'the confined program ended' in output or 'killed all' in output
        self.assertTrue(is_over, output)

    def test_memory_is_limited(self):
        output = self.start_hostile(
            """
            for number in 1 2 3 4 5 6; do tail /dev/zero 2>/dev/null & done
            ended=0
            for number in 1 2 3 4 5 6; do wait %$number || ended=$((ended + 1)); done
            say "refused $ended"
            """
        )
        # Either each is refused, or their common limit ends the confinement.
        self.assertTrue('refused 6' in output or 'the confined program ended' in output, output)

    def test_written_bytes_are_limited(self):
        output = self.start_hostile(
            'dd if=/dev/zero of=/var/lib/mysql/data/bomb bs=1M conv=fsync 2>/dev/null\nsleep 600',
            exceptions.NotInspectableError,
            max_written_bytes=48 * MIB,
        )
        self.assertIn('up to 48 MiB are allowed', output)

    def test_temporary_files_are_limited(self):
        output = self.start_hostile(
            """
            dd if=/dev/zero of=/tmp/bomb bs=1M count=900 2>/dev/null
            say "tmp $(wc -c < /tmp/bomb)"
            dd if=/dev/zero of=/run/mysqld/bomb bs=1M count=900 2>/dev/null
            run=$(wc -c < /run/mysqld/bomb)
            rm /run/mysqld/bomb
            say "run $run"
            """
        )
        for word in ('tmp ', 'run '):
            self.assertLess(int(output.split(word)[1].split(';')[0]), 100 * MIB, output)

    def test_number_of_processes_is_limited(self):
        output = self.start_hostile(
            """
            number=0
            while [ $number -lt 5000 ]; do
                sleep 600 2>/dev/null &
                number=$((number + 1))
            done
            say "started $number"
            """,
            # On a busy machine the time limit of the start comes first.
            (exceptions.ServerFailedError, exceptions.InspectionFaultError),
        )
        self.assertNotIn('started 5000', output)

    def test_silent_server_is_stopped_at_the_time_limit(self):
        root = local_disk.hostile_root(self.directory, 'trap "" TERM; sleep 600 & wait; wait')
        self.addCleanup(local_disk.remove, root)
        server = self.open(root).serve('9.7.4')
        # As the watchdog of the time limit does, from a thread of its own.
        killer = threading.Timer(1, server.kill)
        killer.start()
        self.addCleanup(killer.join)
        error = self.assertRaises(exceptions.ServerFailedError, server.start, TIMEOUT_SEC)
        self.assertIn('the confined program ended', str(error))


def workspace_file():
    """Return a file that exists as long as this process's tests."""
    return pathlib.Path(base.workspace.shared()) / 'database.img'


class LocalHostSandbox(on_host.HostSandbox):
    def __init__(self, file, settings):
        super().__init__('/nowhere/ceph.conf', 'client.nobody', settings)
        self._file = file

    def disk(self, clone, place):
        return local_disk.LocalDisk(self._file)


class NamespaceTest(Contract, ConfinedServerTestCase):
    isolation = 'namespace'
    memory_limits = ('cgroup', 'process')

    def make_sandbox(self, settings):
        return LocalHostSandbox(self.volume, settings)


class LocalVmSandbox(sandboxes.VmSandbox):
    def __init__(self, file, settings, image):
        super().__init__(
            '/nowhere/ceph.conf',
            'client.nobody',
            settings,
            image,
            virtual_machine.ACCELERATOR,
            find_key=lambda conf, user: '',
        )
        self._file = file

    def attach(self, clone, directory, uid):
        os.chown(self._file, uid, uid)
        name = '/volume.img'
        return sandboxes.Attachment(
            qemu_machine.file_driver(name),
            {name: self._file},
            (name,),
            file_bytes=local_disk.VOLUME_BYTES,
        )


class VirtualMachineTestCase(ConfinedServerTestCase):
    isolation = 'vm (tcg)'
    memory_limits = ('vm',)

    def make_sandbox(self, settings):
        (root,) = settings.roots.values()
        image = virtual_machine.build(self.directory / 'image', root)
        return LocalVmSandbox(self.volume, settings, image)


class VirtualMachineTest(VirtualMachineTestCase):
    """The part of the contract that each run of the tests has time for, and what comes before."""

    test_refuses_a_link_to_a_file_of_the_host = Contract.test_refuses_a_link_to_a_file_of_the_host

    def find_obstacle(self, image, accelerator=virtual_machine.ACCELERATOR):
        self.addCleanup(self.assert_nothing_left)
        settings = self.settings(mysqld.rootfs())
        return vm_probe.find_obstacle(image, accelerator, self.inspections, settings.first_uid)

    def test_starts_a_kernel(self):
        image = vm_image.load(virtual_machine.directory())
        self.assertIsNone(self.find_obstacle(image))

    def test_reports_a_kernel_that_does_not_start(self):
        image = vm_image.load(virtual_machine.directory())
        kernel = self.directory / 'kernel'
        kernel.write_bytes(b'no kernel')
        obstacle = self.find_obstacle(dataclasses.replace(image, kernel=kernel))
        self.assertIn('a virtual machine with tcg did not start: qemu', obstacle)

    def test_reports_a_machine_that_hangs(self):
        self.useFixture(fixtures.MockPatchObject(sandboxes, 'BOOT_SEC', 1.0))
        sandbox = self.open()
        error = self.assertRaises(exceptions.InspectionFaultError, sandbox.serve, '9.7.4')
        self.assertIn('did not start within 1 s, 2 times', str(error))

    def test_chooses_and_logs_the_isolation(self):
        """It holds whether KVM is missing, works or hangs on this host."""
        self.addCleanup(self.assert_nothing_left)
        settings = self.settings(
            mysqld.rootfs(),
            isolation=report.AUTO,
            vm_image_directory=virtual_machine.directory(),
        )
        log = self.useFixture(fixtures.FakeLogger())
        sandbox = isolation.Sandboxes('/nowhere', 'client.nobody', settings, lambda *_: '')()
        chosen = {'vm (kvm)': 'in virtual machines with kvm', 'namespace': 'in namespaces of this'}
        self.assertIn(f'Inspections run {chosen[sandbox.isolation]}', log.output)


@base.long
class VirtualMachineContractTest(Contract, VirtualMachineTestCase):
    def test_qemu_has_no_rights(self):
        sandbox = self.open()
        sandbox.serve('9.7.4')
        found = [
            psutil.Process(pid)
            for pid, name in workspace.members(self.inspections)
            if name.startswith('qemu-system')
        ]
        self.assertEqual(1, len(found))
        status = pathlib.Path(f'/proc/{found[0].pid}/status').read_text()
        self.assertGreater(found[0].uids().real, report.FIRST_UID)
        for line in ('NoNewPrivs:\t1', 'Seccomp:\t2', 'CapEff:\t0000000000000000'):
            self.assertIn(line, status)
        # It sees no process but its own, and no file of the host but programs.
        self.assertNotEqual(
            os.readlink('/proc/self/ns/pid'), os.readlink(f'/proc/{found[0].pid}/ns/pid')
        )
        root = pathlib.Path(f'/proc/{found[0].pid}/root')
        self.assertEqual(
            [], [name for name in ('etc/ceph', 'home', 'root', 'var') if (root / name).exists()]
        )
