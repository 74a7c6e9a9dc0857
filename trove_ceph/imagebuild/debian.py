# SPDX-License-Identifier: Apache-2.0
"""Debian packages: on this machine through apt, in new root file systems through mmdebstrap."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trove_ceph.imagebuild import commands
from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.imagebuild.progress import Progress
from trove_ceph.imagebuild.sources import Sources

# Program needed -> Debian package that brings it.
HOST_PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "extlinux": "extlinux",
    "cpio": "cpio",
    "depmod": "kmod",
    "unshare": "util-linux",
    "xz": "xz-utils",
    "strip": "binutils",
    "tar": "tar",
}
UEFI_PROGRAMS = {"mformat": "mtools", "sfdisk": "fdisk"}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
HOST_FILES = {
    "/usr/lib/syslinux/mbr/mbr.bin": "syslinux-common",
    KEYRING: "debian-archive-keyring",
}
_ATTEMPTS = 3
_RETRY_PAUSE_SEC = 5
_PREFERENCES = "etc/apt/preferences.d"
_PINS = f"{_PREFERENCES}/trove-ceph-lock"

_NOT_WANTED = ("man/*", "doc/*", "info/*", "locale/*", "lintian/*", "bug/*", "mysql-test/*")


def missing_tools(*, uefi: bool = False) -> dict[str, str]:
    """Return the programs and files that a build needs and this machine lacks, with their packages.

    :param uefi: also those for a disk that UEFI boots.
    """
    programs = HOST_PROGRAMS | UEFI_PROGRAMS if uefi else HOST_PROGRAMS
    missing = {program: pkg for program, pkg in programs.items() if not shutil.which(program)}
    return missing | {path: pkg for path, pkg in HOST_FILES.items() if not Path(path).exists()}


def ensure_host_packages(progress: Progress, log: Path, *, uefi: bool = False) -> None:
    """Install the packages whose programs are missing on this machine; nothing if none is.

    :param uefi: also those for a disk that UEFI boots.
    :raises BuildError: this machine has no apt, or apt fails three times; a mirror that is being
        updated heals by then. The message names the packages.
    """
    missing = missing_tools(uefi=uefi)
    if not missing:
        return
    packages = sorted(set(missing.values()))
    remedy = (
        f"missing: {', '.join(sorted(missing))}; install the Debian packages {' '.join(packages)}, "
        "or what brings these programs on your distribution"
    )
    if not shutil.which("apt-get"):
        raise BuildError(remedy)
    with progress.stage(f"host: install {' '.join(packages)}"):
        apt = ["apt-get", "-o", "DPkg::Lock::Timeout=900", "-q"]
        install = [*apt, "install", "-y", "--no-install-recommends", *packages]
        try:
            commands.run(install, log=log)
        except BuildError:
            # A fresh machine has no package lists yet.
            try:
                commands.run([*apt, "update"], log=log)
                retried(progress, lambda: commands.run(install, log=log))
            except BuildError as error:
                raise BuildError(f"{error}; {remedy}", log=log) from error


def retried(progress: Progress, action: Callable[[], object]) -> None:
    """Call the action until it does not raise BuildError, at most three times."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            action()
            return
        except BuildError as error:
            if attempt == _ATTEMPTS:
                raise
            progress.note(f"attempt {attempt} of {_ATTEMPTS} failed ({error}); trying again")
            time.sleep(_RETRY_PAUSE_SEC)


def bootstrap(
    root: Path,
    progress: Progress,
    *,
    suite: str,
    variant: str,
    packages: Sequence[str],
    sources: Sources,
    log: Path,
    updates: bool = False,
    lock: Mapping[str, str] | None = None,
    downloads: Sequence[str] = (),
    download_to: Path | None = None,
) -> None:
    """Unpack and configure Debian with the given packages into a new directory.

    Documentation and translations are left out, as are recommended packages. A failed attempt is
    repeated from an empty directory.

    :param updates: take updates of the suite and its security archive, too.
    :param lock: the versions that must be installed, and no other package.
    :param downloads: packages to download without installing them.
    :param download_to: directory for these.
    :raises BuildError: the mirror cannot be read, has other versions than the lock, or mmdebstrap
        fails three times
    """
    lines = sources.lines(suite, updates=updates)
    sources.check(suite, updates=updates, log=log)
    argv = ["mmdebstrap", "--mode=root", f"--variant={variant}"]
    argv += [f"--keyring={KEYRING}", f"--include={','.join(packages)}"]
    argv.append("--aptopt=APT::Install-Recommends \"false\"")
    argv.append("--aptopt=Acquire::Languages \"none\"")
    argv.append("--aptopt=Acquire::Retries \"5\"")
    # Mirrors that serve a frozen copy of a rolling suite have Release files past their date.
    argv.append("--aptopt=Acquire::Check-Valid-Until \"false\"")
    argv += [f"--dpkgopt=path-exclude=/usr/share/{pattern}" for pattern in _NOT_WANTED]
    argv.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
    argv.append("--dpkgopt=force-unsafe-io")
    if lock is not None:
        pins = root.with_name(f"{root.name}.pins")
        pins.write_text(preferences(lock))
        # While nothing is unpacked yet, the directory belongs to no package.
        argv.append(f'--setup-hook=mkdir -p "$1/{_PREFERENCES}" && cp {pins} "$1/{_PINS}"')
        argv.append(f'--customize-hook=rm "$1/{_PINS}"')
    if downloads:
        fetch = "apt-get -q -o APT::Sandbox::User=root download"
        argv.append(
            f'--customize-hook=cd {download_to} && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" {fetch} '
            f"{' '.join(downloads)}"
        )

    def attempt() -> None:
        shutil.rmtree(root, ignore_errors=True)
        commands.run([*argv, suite, str(root), *lines], log=log)

    retried(progress, attempt)
    if lock is not None:
        sources.check_versions(lock, installed_versions(root))


def preferences(lock: Mapping[str, str]) -> str:
    """Return preferences of apt under which it installs these versions."""
    return "\n".join(
        f"Package: {name}\nPin: version {version}\nPin-Priority: 1001\n"
        for name, version in sorted(lock.items())
    )


def installed_versions(root: Path) -> dict[str, str]:
    """Return name and version of every package installed in a root directory."""
    listing = commands.capture(["dpkg-query", "-W", "-f", "${Package} ${Version}\\n"], root=root)
    return dict(line.split(" ", 1) for line in listing.splitlines())
