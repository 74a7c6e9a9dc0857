# SPDX-License-Identifier: Apache-2.0
"""Debian packages: on this machine through apt, in new root file systems through mmdebstrap."""

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from trove_ceph.imagebuild import commands
from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.imagebuild.progress import Progress

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
HOST_FILES = {
    "/usr/lib/syslinux/mbr/mbr.bin": "syslinux-common",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}
_ATTEMPTS = 3
_RETRY_PAUSE_SEC = 5

_NOT_WANTED = ("man/*", "doc/*", "info/*", "locale/*", "lintian/*", "bug/*", "mysql-test/*")


def ensure_host_packages(progress: Progress, log: Path) -> None:
    """Install the packages whose programs are missing on this machine; nothing if none is.

    :raises BuildError: when apt fails three times; a mirror that is being updated heals by then.
    """
    missing = {pkg for program, pkg in HOST_PROGRAMS.items() if not shutil.which(program)}
    missing |= {pkg for path, pkg in HOST_FILES.items() if not Path(path).exists()}
    if not missing:
        return
    with progress.stage(f"host: install {' '.join(sorted(missing))}"):
        apt = ["apt-get", "-o", "DPkg::Lock::Timeout=900", "-q"]
        install = [*apt, "install", "-y", "--no-install-recommends", *sorted(missing)]
        try:
            commands.run(install, log=log)
        except BuildError:
            # A fresh machine has no package lists yet.
            commands.run([*apt, "update"], log=log)
            retried(progress, lambda: commands.run(install, log=log))


def retried(progress: Progress, action) -> None:
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


def configured_mirror() -> str:
    """Return the Debian mirror that this machine's apt is configured for.

    :raises BuildError: when apt knows no Debian archive, as on Ubuntu.
    """
    form = "$(CREATED_BY)|$(ORIGIN)|$(LABEL)|$(REPO_URI)"
    argv = ["apt-get", "indextargets", "--format", form]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        created_by, origin, label, uri = line.split("|", 3)
        if (created_by, origin, label) == ("Packages", "Debian", "Debian"):
            return uri.rstrip("/")
    raise BuildError(
        "apt on this machine is not configured for a Debian mirror (or 'apt-get update' never "
        "ran); name one with --mirror URL"
    )


def bootstrap(
    root: Path,
    progress: Progress,
    *,
    suite: str,
    variant: str,
    packages: Sequence[str],
    mirror: str,
    log: Path,
) -> None:
    """Unpack and configure Debian with the given packages into a new directory.

    Documentation and translations are left out, as are recommended packages. A failed attempt is
    repeated from an empty directory.

    :raises BuildError: when mmdebstrap fails three times
    """
    argv = ["mmdebstrap", "--mode=root", f"--variant={variant}", "--components=main"]
    argv.append(f"--include={','.join(packages)}")
    argv.append("--aptopt=APT::Install-Recommends \"false\"")
    argv.append("--aptopt=Acquire::Languages \"none\"")
    argv.append("--aptopt=Acquire::Retries \"5\"")
    # Mirrors that serve a frozen copy of a rolling suite have Release files past their date.
    argv.append("--aptopt=Acquire::Check-Valid-Until \"false\"")
    argv += [f"--dpkgopt=path-exclude=/usr/share/{pattern}" for pattern in _NOT_WANTED]
    argv.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
    argv.append("--dpkgopt=force-unsafe-io")

    def attempt() -> None:
        shutil.rmtree(root, ignore_errors=True)
        commands.run([*argv, suite, str(root), mirror], log=log)

    retried(progress, attempt)


def installed_versions(root: Path) -> dict[str, str]:
    """Return name and version of every package installed in a root directory."""
    listing = commands.capture(["dpkg-query", "-W", "-f", "${Package} ${Version}\\n"], root=root)
    return dict(line.split(" ", 1) for line in listing.splitlines())
