# SPDX-License-Identifier: Apache-2.0
"""Selects the kernel modules a database guest uses and makes its small initrd.

Distribution initrds carry drivers for any machine and take many seconds to unpack in an
emulated guest.  Ours loads eight modules and mounts the root disk.
"""

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from trove_ceph.imagebuild import commands
from trove_ceph.imagebuild.errors import BuildError

_BOOT_FILES = Path(__file__).resolve().parent / "files" / "guest-boot"

# Modules and directories of modules below kernel/; what they depend on is added.
WANTED = (
    # disks and file systems
    *("drivers/block/virtio_blk", "drivers/block/loop", "drivers/scsi/virtio_scsi"),
    *("drivers/scsi/sd_mod", "drivers/scsi/sr_mod", "drivers/scsi/sg", "drivers/nvme/host"),
    *("fs/xfs", "fs/overlayfs", "fs/isofs", "fs/fuse", "fs/ext4", "fs/fat", "fs/nls", "fs/jbd2"),
    # network of the guest and of its containers
    *("drivers/net/virtio_net", "drivers/net/veth", "drivers/net/macvlan", "drivers/net/dummy"),
    *("drivers/net/tun", "drivers/net/ipvlan", "net/bridge", "net/netfilter", "net/802"),
    *("net/ipv4/netfilter", "net/ipv6/netfilter", "net/8021q", "net/packet", "net/unix"),
    # the virtual machine
    *("drivers/virtio", "drivers/char/virtio_console", "drivers/char/hw_random"),
    *("drivers/watchdog/i6300esb", "drivers/rtc", "drivers/acpi/button"),
    *("crypto", "lib", "arch/x86/crypto/crc32c-intel", "arch/x86/lib"),
)
# Loaded by the initrd, in this order, before the root is mounted.  Without the last ones
# cloud-init looks for its configuration before the CD-ROM that holds it is there.
BOOT_MODULES = ("virtio_blk", "virtio_scsi", "sr_mod", "isofs")


def trim(root: Path, *, log: Path) -> None:
    """Trim ``/lib/modules`` below a root and write ``/boot/vmlinuz`` and ``/boot/initrd``."""
    release = _release(root)
    modules = root / "lib/modules" / release
    dependencies = parse_dependencies((modules / "modules.dep").read_text())
    keep = with_dependencies(selected(dependencies, WANTED), dependencies)
    boot = load_order(BOOT_MODULES, dependencies, builtin=_builtin_names(modules))
    _remove_others(modules, keep)
    _unpack(modules, log)
    commands.run(["depmod", release], root=root, log=log)
    _write_initrd(root, modules, [uncompressed(path) for path in boot], log)
    (root / f"boot/vmlinuz-{release}").rename(root / "boot/vmlinuz")


def keep(root: Path) -> None:
    """Keep the distribution's kernel, modules and initrd, as ``/boot/vmlinuz`` and ``initrd``.

    :raises BuildError: the kernel's package made no initrd
    """
    release = _release(root)
    for name, found in (("vmlinuz", f"vmlinuz-{release}"), ("initrd", f"initrd.img-{release}")):
        path = root / "boot" / found
        if not path.is_file():
            raise BuildError(f"the installation of the kernel left no /boot/{found}")
        path.rename(root / "boot" / name)


def _release(root: Path) -> str:
    releases = sorted(path.name for path in (root / "lib/modules").iterdir())
    if len(releases) != 1:
        raise BuildError(f"expected one kernel in {root}/lib/modules, found {releases}")
    return releases[0]


def parse_dependencies(text: str) -> dict[str, list[str]]:
    """Return each module's path with the paths it needs, from the text of ``modules.dep``."""
    rows = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {module: needed.split() for module, needed in rows}


def selected(modules: Iterable[str], wanted: Iterable[str]) -> set[str]:
    """Return the modules that are named, or lie in a directory that is named."""
    prefixes = [f"kernel/{name}" for name in wanted]
    return {
        module
        for module in modules
        if any(module.startswith((f"{prefix}/", f"{prefix}.ko")) for prefix in prefixes)
    }


def with_dependencies(modules: set[str], dependencies: dict[str, list[str]]) -> set[str]:
    """Return the modules and all they need; ``modules.dep`` lists needs of needs already."""
    return modules.union(*(dependencies[module] for module in modules))


def module_name(path: str) -> str:
    """Return the name of the module in a file: sr_mod for kernel/drivers/scsi/sr_mod.ko.xz."""
    return path.rsplit("/", 1)[-1].split(".ko", 1)[0].replace("-", "_")


def uncompressed(path: str) -> str:
    """Return the name of a module file after decompression."""
    return path.split(".ko", 1)[0] + ".ko"


def load_order(
    names: Iterable[str], dependencies: dict[str, list[str]], *, builtin: set[str]
) -> list[str]:
    """Return module files in an order in which each comes after what it needs.

    :raises BuildError: when a module is neither a file nor built into the kernel.
    """
    by_name = {module_name(path): path for path in dependencies}
    order: list[str] = []
    for name in names:
        if name in builtin:
            continue
        if name not in by_name:
            raise BuildError(f"the guest's kernel has no module {name}")
        path = by_name[name]
        # modules.dep lists needs in the order opposite to loading.
        order += [p for p in (*reversed(dependencies[path]), path) if p not in order]
    return order


def _builtin_names(modules: Path) -> set[str]:
    return {module_name(line) for line in (modules / "modules.builtin").read_text().splitlines()}


def _remove_others(modules: Path, keep: set[str]) -> None:
    for path in (modules / "kernel").rglob("*.ko*"):
        if str(path.relative_to(modules)) not in keep:
            path.unlink()
    for directory, _, _ in os.walk(modules / "kernel", topdown=False):
        if not os.listdir(directory):
            os.rmdir(directory)


def _unpack(modules: Path, log: Path) -> None:
    """Decompress the modules: xz costs more under emulation than the disk space is worth."""
    packed = [str(path) for path in (modules / "kernel").rglob("*.ko.xz")]
    if packed:
        commands.run(["xz", "--decompress", "--threads=0", *packed], log=log)
    files = [str(path) for path in (modules / "kernel").rglob("*.ko")]
    commands.run(["strip", "--strip-debug", *files], log=log)


def _write_initrd(root: Path, modules: Path, boot: list[str], log: Path) -> None:
    tree = root / "tmp/initrd"
    for name in ("bin", "dev", "proc", "sys", "root", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copyfile(root / "usr/bin/busybox", tree / "bin/busybox")
    (tree / "bin/busybox").chmod(0o755)
    (tree / "bin/sh").symlink_to("busybox")
    shutil.copyfile(_BOOT_FILES / "init", tree / "init")
    (tree / "init").chmod(0o755)
    for name, (major, minor) in {"console": (5, 1), "null": (1, 3)}.items():
        os.mknod(tree / "dev" / name, 0o600 | stat.S_IFCHR, os.makedev(major, minor))
    for path in boot:
        shutil.copyfile(modules / path, tree / "modules" / Path(path).name)
    names = "".join(f"{Path(path).name}\n" for path in boot)
    (tree / "modules/order").write_text(names)
    pack = f"cd {tree} && find . | cpio --create --format=newc --quiet >{root}/boot/initrd"
    commands.run(["sh", "-c", pack], log=log)
    shutil.rmtree(tree)
