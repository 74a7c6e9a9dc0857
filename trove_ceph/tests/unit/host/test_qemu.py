# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import confinement, control_group, qemu, qemu_machine

KEY = 'QVFBa2V5'
DRIVER = qemu_machine.rbd_driver('volumes', 'clone', '/ceph.conf', 'trove-ceph')
#: What brings a device to a machine, or a file of the host, and is not needed here.
STRANGE = ('-net', '-nic', '-netdev', '-usb', '-virtfs', '-fsdev', '-vnc', '-spice', '-serial')


def machine(accelerator=qemu_machine.TCG, **changes):
    return qemu_machine.Machine(
        **{
            'accelerator': accelerator,
            'memory_bytes': 1024**3,
            'cpus': 2,
            'kernel': '/kernel',
            'initrd': '/initrd',
            'arguments': 'console=ttyS0',
            'disks': (
                qemu_machine.Disk('volume', DRIVER),
                qemu_machine.Disk(
                    'root', qemu_machine.file_driver('/root.squashfs'), read_only=True
                ),
            ),
            'files': {'/kernel': pathlib.Path('/image/vmlinuz')},
            **changes,
        }
    )


class MachineTest(base.BaseTestCase):
    def words(self, **changes):
        return machine(**changes).words(3, 4, 5, 6)

    def values(self, option, **changes):
        words = self.words(**changes)
        return [words[at + 1] for at, word in enumerate(words) if word == option]

    def test_has_only_the_given_devices(self):
        words = self.words()
        for word in ('-nodefaults', '-no-user-config', '-no-reboot'):
            self.assertIn(word, words)
        for word in STRANGE:
            self.assertNotIn(word, words)
        kinds = [value.partition(',')[0] for value in self.values('-device')]
        self.assertEqual(
            [
                *('virtio-rng-pci', 'virtio-blk-pci', 'virtio-blk-pci', 'virtio-serial-pci'),
                *('virtserialport', 'isa-serial'),
            ],
            kinds,
        )

    def test_system_calls_are_filtered(self):
        self.assertEqual(
            ['on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
            self.values('-sandbox'),
        )

    def test_reads_the_key_from_an_inherited_file(self):
        self.assertIn(
            'secret,id=ceph-key,format=base64,file=/proc/self/fd/6', self.values('-object')
        )
        volume = json.loads(self.values('-blockdev')[0])
        self.assertEqual(
            {
                'driver': 'rbd',
                'pool': 'volumes',
                'image': 'clone',
                'conf': '/ceph.conf',
                'user': 'trove-ceph',
                'key-secret': 'ceph-key',
            },
            volume['file'],
        )

    def test_no_key_without_need(self):
        self.assertNotIn('secret', ' '.join(machine(disks=()).words(3, 4, 5)))

    def test_only_the_volume_is_writable(self):
        volume, root = map(json.loads, self.values('-blockdev'))
        # No format is probed: the content is the tenant's.
        self.assertEqual(('raw', False), (volume['driver'], volume['read-only']))
        self.assertEqual(('raw', True), (root['driver'], root['read-only']))

    def test_disk_errors_are_reported_to_the_guest(self):
        for value in self.values('-device')[1:3]:
            self.assertTrue(value.endswith('rerror=report,werror=report'), value)

    def test_accelerators(self):
        self.assertEqual(['kvm'], self.values('-accel', accelerator=qemu_machine.KVM))
        self.assertEqual(['tcg,tb-size=256'], self.values('-accel'))
        self.assertGreater(machine().host_memory_bytes, 1024**3)

    def test_sees_little_of_the_host(self):
        words = machine(
            files={'/kernel': pathlib.Path('/image/vmlinuz'), '/v': pathlib.Path('/v.img')},
            writable=('/v',),
        ).view()
        text = ' '.join(words)
        self.assertIn('--ro-bind /image/vmlinuz /kernel', text)
        self.assertIn('--bind /v.img /v', text)
        self.assertNotIn('/dev/kvm', text)
        self.assertIn('--dev-bind /dev/kvm /dev/kvm', ' '.join(machine(qemu_machine.KVM).view()))
        shown = [words[at + 1] for at, word in enumerate(words) if word.startswith('--ro-bind')]
        for path in shown:
            self.assertFalse(path.startswith(('/etc/ceph', '/var', '/root', '/home')), path)
        self.assertEqual(['--remount-ro', '/'], words[-2:])


class VirtualMachineTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.errors = self.directory / 'errors'

    def start(self, key=None):
        limits = confinement.Confinement(5, 5, 2**30, 60, 2**20)
        group = control_group.ControlGroup('test', 2**30, 10)
        return qemu.VirtualMachine(machine(), limits, group, {}, self.errors, key)

    def test_refuses_a_host_without_qemu(self):
        self.useFixture(fixtures.EnvironmentVariable('PATH', '/nowhere'))
        error = self.assertRaises(exceptions.NotInspectableError, self.start)
        self.assertIn('qemu-system-x86_64 is not installed', str(error))

    def test_passes_the_key_in_memory(self):
        """It is in no argument and no variable, and the descriptor is given back."""
        started = []
        self.useFixture(fixtures.MockPatchObject(qemu.shutil, 'which', lambda name: name))
        contents = []

        def spawn(words, environment, passed, stderr):
            contents.append(os.pread(passed[-1], 100, 0).decode())
            started.append((words, dict(environment), passed))

        self.useFixture(fixtures.MockPatchObject(qemu, '_spawn', spawn))
        running = self.start(KEY)
        words, environment, passed = started[0]
        self.assertEqual([KEY], contents)
        self.assertNotIn(KEY, ' '.join(words))
        self.assertEqual({}, environment)
        self.assertRaises(OSError, os.fstat, passed[-1])
        running._close_ends()

    def test_finds_the_last_error_of_qemu(self):
        self.useFixture(fixtures.MockPatchObject(qemu.shutil, 'which', lambda name: name))
        self.useFixture(fixtures.MockPatchObject(qemu, '_spawn', lambda *_: None))
        running = self.start()
        self.addCleanup(running._close_ends)
        self.assertEqual('', running.find_error())
        self.errors.write_text('bwrap: no\nqemu-system-x86_64: error connecting\nguest text\n')
        self.assertEqual('qemu-system-x86_64: error connecting', running.find_error())
