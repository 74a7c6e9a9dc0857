# SPDX-License-Identifier: Apache-2.0
"""Builds the guest's slow layer: packages, Trove's guest agent and the MySQL container image.

The layer is a bootable raw disk.  What changes often, trove_ceph and the guest's configuration,
is written into a copy of it by :mod:`trove_ceph.imagebuild.guest_image`.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from trove_ceph.imagebuild import cache, commands, debian, disk, docker_preload, guest_kernel
from trove_ceph.imagebuild.cache import Cache
from trove_ceph.imagebuild.docker_archive import MysqlImage
from trove_ceph.imagebuild.progress import Progress

KIND = "guest-base"
SUITE = "trixie"
VENV = "/opt/guest-agent-venv"
# Beside the disk, for whoever wants to boot the kernel alone.
KERNEL = "vmlinuz"
INITRD = "initrd"

PACKAGES = (
    # system
    *("systemd-sysv", "udev", "dbus", "kmod", "libpam-systemd", "libnss-myhostname", "netbase"),
    *("linux-image-cloud-amd64", "busybox-static", "ca-certificates", "fdisk"),
    *("e2fsprogs", "xfsprogs", "diffutils", "iproute2", "iputils-ping", "iptables", "sudo"),
    *("procps", "less"),
    # what the cloud and the guest agent ask for
    *("cloud-init", "qemu-guest-agent", "openssh-server", "docker.io", "docker-cli"),
    *("python3", "python3-venv"),
)
_RECIPE_MODULES = (
    "guest_base.py",
    "guest_kernel.py",
    "docker_preload.py",
    "disk.py",
    "debian.py",
)
# Read by nobody in a guest, or made again at each boot.
_NOT_KEPT = (
    *("var/lib/apt/lists/*", "var/cache/apt/*", "var/cache/debconf/*-old", "var/log/*", "tmp/*"),
    *("etc/ssh/ssh_host_*", "usr/lib/udev/hwdb.d", "usr/lib/udev/hwdb.bin", "initrd.img*"),
    *("boot/initrd.img-*", "boot/System.map-*", "usr/lib/x86_64-linux-gnu/gconv"),
    *("opt/guest-agent-venv/lib/python3*/site-packages/trove/tests", "var/lib/dbus/machine-id"),
)


@dataclass(frozen=True)
class GuestBase:
    """A raw disk that boots, without trove_ceph and without configuration."""

    disk: Path
    hash: str
    packages: dict[str, str]


def base_hash(image: MysqlImage, constraints: Path) -> str:
    """Return the hash of everything that decides what the base holds."""
    here = Path(__file__).resolve().parent
    return cache.content_hash(
        SUITE,
        PACKAGES,
        image.tag,
        image.hash,
        pinned(constraints),
        cache.tree_hashes([here / name for name in _RECIPE_MODULES]),
        cache.tree_hashes([here / "files" / "guest-boot"]),
    )


def pinned(constraints: Path) -> list[str]:
    """Return the pins of a constraints file, without comments and in order."""
    rows = (line.split("#", 1)[0].strip() for line in constraints.read_text().splitlines())
    return sorted(row for row in rows if row)


def ensure_guest_base(
    store: Cache,
    progress: Progress,
    *,
    image: MysqlImage,
    constraints: Path,
    mirror: str | None,
) -> GuestBase:
    """Return the base disk, building it if the cache has none of this recipe.

    :param constraints: pip constraints of the guest agent's environment.
    """
    key = base_hash(image, constraints)
    entry = store.find(KIND, key)
    if entry:
        return GuestBase(entry / "disk.raw", key, cache.read_manifest(entry)["packages"])
    log = store.log(KIND)
    debian.ensure_host_packages(progress, log)
    with store.create(KIND, key) as entry:
        root = entry / "rootfs"
        with progress.stage(f"{KIND}: install Debian {SUITE}, kernel, docker, cloud-init"):
            debian.bootstrap(
                root,
                progress,
                suite=SUITE,
                variant="minbase",
                packages=PACKAGES,
                mirror=mirror or debian.configured_mirror(),
                log=log,
            )
        with progress.stage(f"{KIND}: install Trove's guest agent"):
            _install_guest_agent(root, progress, constraints=constraints, log=log)
        with progress.stage(f"{KIND}: load {image.tag} into docker"):
            docker_preload.load_image(root, image.path, image.tag, log=log)
        with progress.stage(f"{KIND}: select kernel modules, make the initrd"):
            packages = debian.installed_versions(root)
            _remove_what_nobody_reads(root)
            guest_kernel.prepare(root, log=log)
        with progress.stage(f"{KIND}: write the disk"):
            disk.write_bootable(root, entry / "disk.raw", log=log)
        for name in (KERNEL, INITRD):
            shutil.move(root / "boot" / name, entry / name)
        shutil.rmtree(root)
        cache.write_manifest(entry, {"packages": packages, "mysql_image": image.tag})
    return GuestBase(store.root / entry.name / "disk.raw", key, packages)


def _install_guest_agent(root: Path, progress: Progress, *, constraints: Path, log: Path) -> None:
    shutil.copyfile(constraints, root / "tmp/constraints.txt")
    commands.run(["python3", "-m", "venv", VENV], root=root, log=log)
    install = ["--no-compile", "--constraint", "/tmp/constraints.txt", "trove"]
    debian.retried(progress, lambda: pip_install(root, install, log=log))
    compile_all(root, ".", log=log)


def pip_install(root: Path, arguments: list[str], *, log: Path) -> None:
    """Install into the guest agent's environment with the machine's network and pip settings."""
    with commands.host_network_files(root) as environment:
        pip = [f"{VENV}/bin/python", "-m", "pip", "--no-cache-dir", "install"]
        commands.run([*pip, *arguments], root=root, log=log, env=environment)


def compile_all(root: Path, package: str, *, log: Path) -> None:
    """Compile modules of the environment, for compiling at start is slow in an emulated guest.

    :param package: a directory in the environment's site-packages, ``.`` for all.
    """
    python = f"{VENV}/bin/python"
    argv = [python, "-m", "compileall", "-q", "-j0", "--invalidation-mode", "unchecked-hash"]
    # Packages carry templates of Python files that are not meant to compile.
    places = f"{VENV}/lib/python3*/site-packages/{package}"
    commands.run(["sh", "-c", f"{' '.join(argv)} {places} || true"], root=root, log=log)


def _remove_what_nobody_reads(root: Path) -> None:
    for pattern in _NOT_KEPT:
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
