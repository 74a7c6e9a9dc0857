# SPDX-License-Identifier: Apache-2.0
"""What distinguishes the profiles: kernel arguments, the disk, and the files."""

import struct
from pathlib import Path

from trove_ceph.imagebuild import disk, guest_config, profiles
from trove_ceph.tests.unit.imagebuild.case import ImagesTestCase

FILES = Path(profiles.__file__).parent / 'files'


class ProfilesTest(ImagesTestCase):
    def test_production_has_no_argument_of_emulation(self):
        emulated = profiles.EMULATED.kernel_arguments.split()
        production = profiles.KVM.kernel_arguments.split()
        self.assertEqual({'net.ifnames=0', 'panic=10'}, set(emulated) & set(production))
        for name in ('mitigations', 'apparmor', 'nokaslr', 'tsc', 'clearcpuid', 'audit'):
            self.assertEqual([], [one for one in production if one.startswith(name)])

    def test_emulation_keeps_its_arguments(self):
        arguments = profiles.EMULATED.kernel_arguments.split()
        for one in ('root=/dev/vda1', 'mitigations=off', 'apparmor=0', 'clearcpuid=cx16'):
            self.assertIn(one, arguments)
        self.assertEqual((1, 3071), (disk.BIOS.root_start_mib, disk.BIOS.disk_mib))

    def test_both_boot_loaders_start_the_same_kernel(self):
        arguments = profiles.KVM.kernel_arguments
        for text in (disk.extlinux_config(arguments), disk.grub_config(arguments)):
            self.assertIn(arguments, text)
            self.assertIn('/boot/vmlinuz', text)
            self.assertIn('/boot/initrd', text)

    def test_disk_fits_into_the_flavor_that_is_demanded(self):
        for profile in profiles.PROFILES.values():
            self.assertLessEqual(profile.layout.disk_mib, disk.MIN_DISK_GIB * 1024)

    def test_partitions_do_not_overlap(self):
        layout = disk.BIOS_AND_UEFI
        rows = [line for line in disk.partition_script(layout).splitlines() if 'start=' in line]
        fields = [dict(field.strip().split('=') for field in row.split(',')) for row in rows]
        (esp, esp_size), (root, size) = [(int(f['start']), int(f['size'])) for f in fields]
        self.assertEqual(root, esp + esp_size)
        # The copy of the table at the end takes 33 sectors.
        self.assertLessEqual(root + size + 33, layout.disk_mib * 2048)
        self.assertEqual('LegacyBIOSBootable', fields[1]['attrs'])
        self.assertEqual(disk.ROOT_PARTUUID, fields[1]['uuid'])

    def test_root_is_named_by_its_partition(self):
        """A tenant's volume cannot take the place of the root."""
        name = f'root={profiles.KVM.layout.root_device}'
        self.assertIn(name, profiles.KVM.kernel_arguments.split())

    def test_master_boot_record(self):
        record = disk.master_boot_record(b'code', 3070)
        self.assertEqual(512, len(record))
        self.assertEqual(b'\x55\xaa', record[510:])
        active, kind, start, sectors = struct.unpack('<B3xB3xII', record[446:462])
        self.assertEqual((0x80, 0x83, 2048, 3070 * 2048), (active, kind, start, sectors))
        self.assertRaises(ValueError, disk.master_boot_record, bytes(441), 1)

    def test_each_profile_has_its_files(self):
        for profile in profiles.PROFILES.values():
            for path in guest_config.recipe(profile):
                self.assertTrue(path.exists(), path)

    def test_units_of_production_are_not_masked(self):
        masked = (FILES / 'masked-units-kvm.txt').read_text().splitlines()
        wanted = {*profiles.KVM.units, 'systemd-fsck-root.service', 'systemd-random-seed.service'}
        self.assertEqual(set(), wanted & set(masked))
        # The agent trims the data volume itself.
        self.assertIn('fstrim.timer', masked)

    def test_stock_has_nothing_of_this_project(self):
        """Else a benchmark would measure trove_ceph against itself."""
        paths = [
            path
            for tree in guest_config.recipe(profiles.STOCK)
            for path in tree.rglob('*')
            if path.is_file()
        ]
        names = {path.name for path in paths}
        self.assertIn('guest-agent.service', names)
        # Those of docker and cloud-init make our guests start sooner.
        self.assertEqual(set(), names & {'docker.service', '90-trove-guest.cfg', 'daemon.json'})
        for path in paths:
            self.assertNotIn('trove-ceph', path.read_text(), path)

    def test_stock_shares_the_disk_of_production(self):
        self.assertEqual(profiles.KVM.base_kind, profiles.STOCK.base_kind)
        self.assertNotEqual(profiles.KVM.kind, profiles.STOCK.kind)
