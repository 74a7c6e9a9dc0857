# SPDX-License-Identifier: Apache-2.0
"""Makes bootable disks: a partition table, one ext4 root partition, and the boot loaders.

extlinux starts the kernel from the BIOS. A disk for UEFI has a GUID partition table, and before the
root an EFI system partition with Debian's signed shim and GRUB; both boot loaders start the same
kernel.
"""

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trove_ceph.imagebuild import commands
from trove_ceph.imagebuild.errors import BuildError

MIN_DISK_GIB = 3
ROOT_PARTUUID = "5b2c1f60-7d0e-4a39-9e4c-3f6a8d1e7042"
ROOT_UUID = "c4f0d1a7-28b3-4e65-8f1d-90ab6c57e318"

_DISK_UUID = "0e8d6b9a-41c2-4f7e-b3a5-d27c96f0a158"
_ESP_PARTUUID = "a91e3c58-6f04-4b2d-8c7a-15e0f2d4b683"
_ESP_SERIAL = "54524f56"
_HASH_SEED = "2d7f4e81-b90c-4a65-9c13-70e5f8a2d6b4"
_SYSLINUX = Path("/usr/lib/syslinux/mbr")
_MIB = 1 << 20
_SECTOR = 512
_SECTORS_PER_MIB = _MIB // _SECTOR
_LINUX = 0x83
_ACTIVE = 0x80
# The boot loaders read neither of these.
_EXT4_FEATURES = "^64bit,^metadata_csum,^orphan_file"
# systemd's discoverable partitions: the root of an x86_64 system.
_LINUX_ROOT = "4f68bce3-e8cd-4db1-96e7-fbcaf984b709"


@dataclass(frozen=True)
class Layout:
    """Where the partitions of a disk are, in MiB from its start.

    :param esp_mib: size of the EFI system partition, which starts at 1 MiB; 0: the disk has none,
        and its table is an MBR.
    :param root_mib: size of the root partition, which follows.
    """

    esp_mib: int
    root_mib: int

    @property
    def root_start_mib(self) -> int:
        """Return the start of the root partition."""
        return 1 + self.esp_mib

    @property
    def disk_mib(self) -> int:
        """Return the size of the disk; a GUID partition table has a copy at the end."""
        return self.root_start_mib + self.root_mib + (1 if self.esp_mib else 0)

    @property
    def root_device(self) -> str:
        """Return the name of the root for the kernel and for fstab."""
        return f"PARTUUID={ROOT_PARTUUID}" if self.esp_mib else "/dev/vda1"


BIOS = Layout(esp_mib=0, root_mib=3070)
BIOS_AND_UEFI = Layout(esp_mib=64, root_mib=3006)


def write_bootable(
    root: Path,
    target: Path,
    *,
    layout: Layout,
    kernel_arguments: str,
    efi: Path | None,
    log: Path,
) -> None:
    """Write a root directory into a new raw disk that boots from it.

    ``/boot/vmlinuz`` and ``/boot/initrd`` must exist below the root.

    :param efi: directory with the UEFI boot loaders; needed if the layout has a partition for them.
    :raises BuildError: a program fails, most likely because the disk is full
    """
    loader = root / "boot/extlinux"
    loader.mkdir(exist_ok=True)
    (loader / "extlinux.conf").write_text(extlinux_config(kernel_arguments))
    with open(target, "wb") as disk:
        disk.truncate(layout.disk_mib * _MIB)
    offset = layout.root_start_mib * _MIB
    make = ["mke2fs", "-q", "-F", "-t", "ext4", "-L", "root", "-m", "1", "-O", _EXT4_FEATURES]
    make += ["-U", ROOT_UUID, "-J", "size=16"]
    make += ["-E", f"offset={offset},lazy_itable_init=0,nodiscard,hash_seed={_HASH_SEED}"]
    commands.run([*make, "-d", str(root), str(target), f"{layout.root_mib}M"], log=log)
    if layout.esp_mib:
        assert efi is not None
        _write_gpt(target, layout, log=log)
        _write_esp(target, layout, efi, kernel_arguments, log=log)
    else:
        with open(target, "r+b") as disk:
            code = (_SYSLINUX / "mbr.bin").read_bytes()
            disk.write(master_boot_record(code, layout.root_mib))
    with mounted(target, layout, log=log) as mountpoint:
        _fill_holes(mountpoint / "boot/vmlinuz", mountpoint / "boot/initrd")
        commands.run(["extlinux", "--install", str(mountpoint / "boot/extlinux")], log=log)


def extlinux_config(kernel_arguments: str) -> str:
    """Return the configuration of the BIOS boot loader."""
    return (
        "DEFAULT guest\nPROMPT 0\nTIMEOUT 0\nSERIAL 0 115200\nLABEL guest\n"
        f"  LINUX /boot/vmlinuz\n  INITRD /boot/initrd\n  APPEND {kernel_arguments}\n"
    )


def grub_config(kernel_arguments: str) -> str:
    """Return the configuration of the UEFI boot loader.

    The hint is the first disk: a tenant's volume with the same identifier is not searched.
    """
    return (
        "set timeout=0\n"
        f"search --no-floppy --set=root --hint=hd0,gpt2 --fs-uuid {ROOT_UUID}\n"
        f"linux /boot/vmlinuz {kernel_arguments}\ninitrd /boot/initrd\nboot\n"
    )


def _fill_holes(*files: Path) -> None:
    """Write files anew: mke2fs leaves blocks of zeros out, and the boot loader stops at a hole."""
    for path in files:
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)


def master_boot_record(code: bytes, size_mib: int) -> bytes:
    """Return a boot sector with one active Linux partition that starts at 1 MiB.

    :param code: the boot code, at most 440 bytes.
    """
    if len(code) > 440:
        raise ValueError(f"boot code of {len(code)} bytes; 440 fit before the partition table")
    sectors = size_mib * _SECTORS_PER_MIB
    # Addresses by cylinder and head are out of use; this value says "see the sector number".
    chs = b"\xfe\xff\xff"
    partition = struct.pack("<B3sB3sII", _ACTIVE, chs, _LINUX, chs, _SECTORS_PER_MIB, sectors)
    identity = struct.pack("<IH", 0x54524F56, 0)
    return code.ljust(440, b"\0") + identity + partition + bytes(48) + b"\x55\xaa"


def partition_script(layout: Layout) -> str:
    """Return the script for sfdisk: an EFI system partition, and a root that the BIOS boots."""
    esp = layout.esp_mib * _SECTORS_PER_MIB
    start, size = (layout.root_start_mib * _SECTORS_PER_MIB, layout.root_mib * _SECTORS_PER_MIB)
    return (
        f"label: gpt\nlabel-id: {_DISK_UUID}\n"
        f"start={_SECTORS_PER_MIB}, size={esp}, type=uefi, uuid={_ESP_PARTUUID}, name=esp\n"
        f"start={start}, size={size}, type={_LINUX_ROOT}, uuid={ROOT_PARTUUID}, name=root, "
        "attrs=LegacyBIOSBootable\n"
    )


def _write_gpt(disk: Path, layout: Layout, *, log: Path) -> None:
    script = disk.with_name("partitions.sfdisk")
    script.write_text(partition_script(layout))
    commands.run(["sfdisk", "--quiet", "--no-reread", str(disk)], stdin=script, log=log)
    script.unlink()
    code = (_SYSLINUX / "gptmbr.bin").read_bytes()
    if len(code) > 440:
        raise BuildError(f"{_SYSLINUX}/gptmbr.bin has {len(code)} bytes; 440 fit")
    with open(disk, "r+b") as stream:
        stream.write(code)


def _write_esp(disk: Path, layout: Layout, efi: Path, arguments: str, *, log: Path) -> None:
    """Write the EFI system partition, without mounting it: not each kernel knows FAT."""
    image = disk.with_name("esp.img")
    with open(image, "wb") as stream:
        stream.truncate(layout.esp_mib * _MIB)
    config = disk.with_name("grub.cfg")
    config.write_text(grub_config(arguments))
    option = ["-i", str(image)]
    commands.run(["mformat", *option, "-F", "-v", "ESP", "-N", _ESP_SERIAL, "::"], log=log)
    commands.run(["mmd", *option, "::/EFI", "::/EFI/BOOT", "::/EFI/debian"], log=log)
    # The names under which firmware looks for a loader if it knows no other, and shim for GRUB.
    for source, name in (
        (efi / "shimx64.efi", "BOOT/BOOTX64.EFI"),
        (efi / "grubx64.efi", "BOOT/grubx64.efi"),
        (config, "debian/grub.cfg"),
    ):
        commands.run(["mcopy", *option, str(source), f"::/EFI/{name}"], log=log)
    with open(disk, "r+b") as stream, open(image, "rb") as written:
        stream.seek(_MIB)
        shutil.copyfileobj(written, stream, _MIB)
    image.unlink()
    config.unlink()


@contextmanager
def mounted(disk: Path, layout: Layout, *, log: Path) -> Iterator[Path]:
    """Mount the root partition of a raw disk during the block, in the build's private namespace.

    The loop device is freed by the kernel with the last mount, also when the build is killed.
    """
    mountpoint = disk.with_name(f"{disk.name}.mnt")
    mountpoint.mkdir()
    offset, size = layout.root_start_mib * _MIB, layout.root_mib * _MIB
    options = f"loop,offset={offset},sizelimit={size}"
    commands.mount(["-t", "ext4", "-o", options, str(disk), str(mountpoint)], log=log)
    try:
        yield mountpoint
    finally:
        commands.unmount_all(mountpoint, log=log)
        os.rmdir(mountpoint)


def copy_sparse(source: Path, target: Path, *, log: Path) -> None:
    """Copy a disk; holes stay holes."""
    argv = ["cp", "--sparse=always", "--reflink=auto", str(source), str(target)]
    commands.run(argv, log=log)


def give_back_free_space(mountpoint: Path, *, log: Path) -> None:
    """Punch holes where deleted files were, so that they take no room in the image."""
    commands.run(["fstrim", str(mountpoint)], log=log)


def convert_to_qcow2(raw: Path, target: Path, *, log: Path) -> None:
    """Write a raw disk as a compressed qcow2 image."""
    argv = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-m", "4", "-W"]
    argv += ["-c", "-o", "compression_type=zstd"]
    commands.run([*argv, str(raw), str(target)], log=log)
