# SPDX-License-Identifier: Apache-2.0
"""Disks of guest images: their partitions, and a boot from BIOS and from UEFI."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import fixtures

from trove_ceph.imagebuild import boot_check, cache, disk, profiles
from trove_ceph.imagebuild.progress import Progress
from trove_ceph.tests.functional import base

_PROGRAMS = ('mke2fs', 'extlinux', 'sfdisk', 'mformat', 'debugfs')
# A guest that is emulated on a busy machine starts all of a distribution's units.
_BOOT_LIMIT_SEC = 1500
_WRITE = """
import sys
from pathlib import Path
from trove_ceph.imagebuild import commands, disk
commands.enter_private_mounts()
work = Path(sys.argv[1])
disk.write_bootable(
    work / 'root', work / 'disk.raw', layout=disk.Layout(esp_mib=int(sys.argv[2]), root_mib=64),
    kernel_arguments='quiet', efi=work / 'efi', log=work / 'build.log',
)
"""


def _newest_image():
    """Return the newest image of the profile kvm in the cache of builds; None: there is none."""
    root = Path(os.environ.get('TROVE_CEPH_CACHE', cache.DEFAULT_ROOT))
    found = root.glob(f'{profiles.KVM.kind}-*/*.qcow2')
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


class DiskTestCase(base.FunctionalTestCase):
    """A disk that is written without the kernel's knowledge of partitions."""

    layout: disk.Layout

    def setUp(self):
        super().setUp()
        missing = [name for name in _PROGRAMS if not shutil.which(name)]
        self.assertEqual([], missing, 'see bindep.txt')
        for name in ('root/boot/vmlinuz', 'root/boot/initrd', 'efi/shimx64.efi', 'efi/grubx64.efi'):
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        self.disk = self.directory / 'disk.raw'
        # A process of its own, because it enters a mount namespace.
        layout = self.layout
        self.run_program('/usr/bin/python3', '-c', _WRITE, str(self.directory), str(layout.esp_mib))

    def run_program(self, *argv):
        environ = os.environ | {'PYTHONPATH': str(base.CHECKOUT)}
        done = subprocess.run(argv, env=environ, text=True, capture_output=True)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return done.stdout

    def assert_bios_boots(self):
        """The boot sector has code, and the root has the loader that it starts."""
        sector = self.disk.read_bytes()[:512]
        self.assertNotEqual(bytes(440), sector[:440])
        self.assertEqual(b'\x55\xaa', sector[510:])
        offset = self.layout.root_start_mib << 20
        files = self.run_program(
            'debugfs', '-R', 'ls -p /boot/extlinux', f'{self.disk}?offset={offset}'
        )
        self.assertIn('/ldlinux.sys/', files)
        self.assertIn('/extlinux.conf/', files)


class BiosTest(DiskTestCase):
    """The disk of the profile emulated, with a smaller root."""

    layout = disk.Layout(esp_mib=0, root_mib=64)

    def test_partition(self):
        table = json.loads(self.run_program('sfdisk', '--json', str(self.disk)))['partitiontable']
        [root] = table['partitions']
        self.assertEqual(('dos', 2048, 64 * 2048), (table['label'], root['start'], root['size']))
        self.assertTrue(root['bootable'])
        self.assert_bios_boots()


class BiosAndUefiTest(DiskTestCase):
    """The disk of the profile kvm, with a smaller root."""

    layout = disk.Layout(esp_mib=64, root_mib=64)

    def test_partitions(self):
        self.assertIn('No errors', self.run_program('sfdisk', '--verify', str(self.disk)))
        table = json.loads(self.run_program('sfdisk', '--json', str(self.disk)))['partitiontable']
        esp, root = table['partitions']
        self.assertEqual(('gpt', 'esp', 'root'), (table['label'], esp['name'], root['name']))
        self.assertEqual(disk.ROOT_PARTUUID, root['uuid'].lower())
        self.assertEqual('LegacyBIOSBootable', root['attrs'])
        self.assertEqual(self.layout.root_start_mib * 2048, root['start'])
        self.assert_bios_boots()

    def test_loaders_for_uefi(self):
        volume = ('-i', f'{self.disk}@@1M')
        for name, expected in (
            ('BOOT/BOOTX64.EFI', 'efi/shimx64.efi'),
            ('BOOT/grubx64.efi', 'efi/grubx64.efi'),
            ('debian/grub.cfg', disk.grub_config('quiet')),
        ):
            self.assertEqual(expected, self.run_program('mtype', *volume, f'::/EFI/{name}'))


@base.long
class BootTest(base.FunctionalTestCase):
    """The newest image of the profile kvm, which ``trove-ceph-image guest`` built, is fit."""

    def setUp(self):
        super().setUp()
        self.image = _newest_image()
        if self.image is None:
            self.skipTest('no image: lab/images/build guest --profile kvm')
        self.useFixture(fixtures.Timeout(_BOOT_LIMIT_SEC, gentle=True))

    def boot(self, firmware):
        work = self.directory / firmware
        work.mkdir()
        found = boot_check.boot(self.image, firmware, Progress(quiet=True), work=work)
        self.assertEqual([], boot_check.problems(found, firmware), found)

    def test_bios(self):
        self.boot(boot_check.BIOS)

    def test_uefi(self):
        self.boot(boot_check.UEFI)
