# SPDX-License-Identifier: Apache-2.0
"""Builds the guest's slow layer: packages, Trove's guest agent and the MySQL container image.

The layer is a bootable raw disk.  What changes often, trove_ceph and the guest's configuration,
is written into a copy of it by :mod:`trove_ceph.imagebuild.guest_image`.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from trove_ceph.imagebuild import (
    cache,
    commands,
    components,
    debian,
    disk,
    docker_preload,
    guest_kernel,
    uefi,
)
from trove_ceph.imagebuild.cache import Cache
from trove_ceph.imagebuild.components import Component
from trove_ceph.imagebuild.docker_archive import MysqlImage
from trove_ceph.imagebuild.profiles import Profile
from trove_ceph.imagebuild.progress import Progress
from trove_ceph.imagebuild.sources import Sources

SUITE = "trixie"
VENV = "/opt/guest-agent-venv"
# The root directory, the raw disk, and a copy of it for the image.
_NEEDED_GIB = 6
# Beside a trimmed disk, for whoever wants to boot the kernel alone.
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
    *("var/cache/ldconfig/aux-cache", "var/lib/dbus/machine-id", "etc/ssh/ssh_host_*"),
    *("boot/System.map-*", "initrd.img*", "vmlinuz*"),
    "opt/guest-agent-venv/lib/python3*/site-packages/trove/tests",
    # Name servers of the machine that builds the image.
    "etc/.resolv.conf.systemd-resolved.bak",
)
_NOT_KEPT_IF_TRIMMED = (
    *("boot/initrd.img-*", "usr/lib/udev/hwdb.d", "usr/lib/udev/hwdb.bin"),
    "usr/lib/x86_64-linux-gnu/gconv",
)


@dataclass(frozen=True)
class GuestBase:
    """A raw disk that boots, without trove_ceph and without configuration."""

    disk: Path
    hash: str
    components: list[Component]


def base_hash(image: MysqlImage, constraints: Path, *, profile: Profile, sources: Sources) -> str:
    """Return the hash of everything that decides what the base holds."""
    here = Path(__file__).resolve().parent
    return cache.content_hash(
        SUITE,
        PACKAGES,
        profile.base_kind,
        profile.packages,
        profile.kernel_arguments,
        image.tag,
        image.hash,
        pinned(constraints),
        cache.tree_hashes([here / name for name in _RECIPE_MODULES]),
        cache.tree_hashes([here / "files" / "guest-boot"]),
        *sources.key(),
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
    profile: Profile,
    sources: Sources,
) -> GuestBase:
    """Return the base disk, building it if the cache has none of this recipe.

    :param constraints: pip constraints of the guest agent's environment.
    :param sources: where Debian's packages come from.
    """
    kind = profile.base_kind
    key = base_hash(image, constraints, profile=profile, sources=sources)
    entry = store.find(kind, key)
    if entry:
        return GuestBase(entry / "disk.raw", key, cache.read_manifest(entry)["components"])
    store.need_space(_NEEDED_GIB)
    log = store.log(kind)
    boots_by_uefi = bool(profile.layout.esp_mib)
    debian.ensure_host_packages(progress, log, uefi=boots_by_uefi)
    with store.create(kind, key) as entry:
        root, efi = entry / "rootfs", entry / "efi"
        efi.mkdir()
        with progress.stage(f"{kind}: install Debian {SUITE}, kernel, docker, cloud-init"):
            debian.bootstrap(
                root,
                progress,
                suite=SUITE,
                variant="minbase",
                packages=(*PACKAGES, *profile.packages),
                sources=sources,
                updates=profile.security_updates,
                lock=sources.locked("guest"),
                downloads=uefi.PACKAGES if boots_by_uefi else (),
                download_to=efi,
                log=log,
            )
        found = components.debian(root)
        if boots_by_uefi:
            loaders = uefi.unpack(efi, log=log)
            _check_loaders(sources, loaders)
            found += loaders
        with progress.stage(f"{kind}: install Trove's guest agent"):
            _install_guest_agent(root, progress, constraints=constraints, log=log)
        with progress.stage(f"{kind}: load {image.tag} into docker"):
            docker_preload.load_image(root, image.path, image.tag, log=log)
        _remove_what_nobody_reads(root, trimmed=profile.trimmed)
        if profile.trimmed:
            with progress.stage(f"{kind}: select kernel modules, make the initrd"):
                guest_kernel.trim(root, log=log)
        else:
            guest_kernel.keep(root)
        with progress.stage(f"{kind}: write the disk"):
            disk.write_bootable(
                root,
                entry / "disk.raw",
                layout=profile.layout,
                kernel_arguments=profile.kernel_arguments,
                efi=efi,
                log=log,
            )
        if profile.trimmed:
            for name in (KERNEL, INITRD):
                shutil.move(root / "boot" / name, entry / name)
        shutil.rmtree(root)
        shutil.rmtree(efi)
        cache.write_manifest(entry, {"components": found, "mysql_image": image.tag})
    return GuestBase(store.root / entry.name / "disk.raw", key, found)


def _check_loaders(sources: Sources, loaders: list[Component]) -> None:
    lock = sources.locked("loaders")
    if lock is not None:
        sources.check_versions(lock, components.versions(loaders))


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
    # All of them, also those that a program compiled before with the time of its source.
    argv = [python, "-m", "compileall", "-q", "-f", "-j0", "--invalidation-mode", "unchecked-hash"]
    # Packages carry templates of Python files that are not meant to compile.
    places = f"{VENV}/lib/python3*/site-packages/{package}"
    commands.run(["sh", "-c", f"{' '.join(argv)} {places} || true"], root=root, log=log)


def _remove_what_nobody_reads(root: Path, *, trimmed: bool) -> None:
    for pattern in (*_NOT_KEPT, *(_NOT_KEPT_IF_TRIMMED if trimmed else ())):
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
