# SPDX-License-Identifier: Apache-2.0
"""Makes bootable disks: an MBR with one ext4 partition, started by extlinux from the BIOS."""

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trove_ceph.imagebuild import commands

ROOT_MIB = 3070
MIN_DISK_GIB = 3

_BOOT_FILES = Path(__file__).resolve().parent / "files" / "guest-boot"
_MBR_CODE = Path("/usr/lib/syslinux/mbr/mbr.bin")
_MIB = 1 << 20
_SECTOR = 512
_PARTITION_START = _MIB
_LINUX = 0x83
_ACTIVE = 0x80
# The boot loader reads neither of these.
_EXT4_FEATURES = "^64bit,^metadata_csum,^orphan_file"


def write_bootable(root: Path, target: Path, *, log: Path) -> None:
    """Write a root directory into a new raw disk that boots from it.

    ``/boot/vmlinuz`` and ``/boot/initrd`` must exist below the root.
    """
    loader = root / "boot/extlinux"
    loader.mkdir(exist_ok=True)
    shutil.copyfile(_BOOT_FILES / "extlinux.conf", loader / "extlinux.conf")
    size_mib = ROOT_MIB
    with open(target, "wb") as disk:
        disk.truncate(_PARTITION_START + size_mib * _MIB)
    make = ["mke2fs", "-q", "-F", "-t", "ext4", "-L", "root", "-m", "1", "-O", _EXT4_FEATURES]
    make += ["-J", "size=16", "-E", f"offset={_PARTITION_START},lazy_itable_init=0,nodiscard"]
    commands.run([*make, "-d", str(root), str(target), f"{size_mib}M"], log=log)
    with open(target, "r+b") as disk:
        disk.write(master_boot_record(_MBR_CODE.read_bytes(), size_mib))
    with mounted(target, log=log) as mountpoint:
        _fill_holes(mountpoint / "boot/vmlinuz", mountpoint / "boot/initrd")
        commands.run(["extlinux", "--install", str(mountpoint / "boot/extlinux")], log=log)


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
    sectors = size_mib * _MIB // _SECTOR
    # Addresses by cylinder and head are out of use; this value says "see the sector number".
    chs = b"\xfe\xff\xff"
    start = _PARTITION_START // _SECTOR
    partition = struct.pack("<B3sB3sII", _ACTIVE, chs, _LINUX, chs, start, sectors)
    identity = struct.pack("<IH", 0x54524F56, 0)
    return code.ljust(440, b"\0") + identity + partition + bytes(48) + b"\x55\xaa"


@contextmanager
def mounted(disk: Path, *, log: Path) -> Iterator[Path]:
    """Mount the partition of a raw disk during the block, in the build's private namespace.

    The loop device is freed by the kernel with the last mount, also when the build is killed.
    """
    mountpoint = disk.with_name(f"{disk.name}.mnt")
    mountpoint.mkdir()
    options = f"loop,offset={_PARTITION_START},sizelimit={ROOT_MIB * _MIB}"
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
