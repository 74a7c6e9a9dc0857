# SPDX-License-Identifier: Apache-2.0
"""Unpacks Debian's kernel for clouds, without installing it, for virtual machines of inspections.

A container has no boot loader, and the package's scripts would look for one.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from trove_ceph.imagebuild import cache, commands, debian
from trove_ceph.imagebuild.cache import Cache
from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.imagebuild.progress import Progress

KIND = "inspection-kernel"
METAPACKAGE = "linux-image-cloud-amd64"


@dataclass(frozen=True)
class Kernel:
    """A kernel and its modules, below one directory as below ``/``."""

    path: Path
    hash: str
    release: str
    cached: bool


def ensure_kernel(store: Cache, progress: Progress) -> Kernel:
    """Return the kernel, downloading it by this machine's apt if the cache has none.

    :raises BuildError: when apt does not know it, or cannot download it.
    """
    key = cache.content_hash(METAPACKAGE, cache.file_hash(Path(__file__)))
    entry = store.find(KIND, key)
    if entry:
        release = cache.read_manifest(entry)["release"]
        return Kernel(entry / "kernel", key, release, cached=True)
    log = store.log(KIND)
    debian.ensure_host_packages(progress, log)
    with store.create(KIND, key) as entry:
        with progress.stage(f"{KIND}: download and unpack {METAPACKAGE}"):
            release = _unpack(entry, log, progress)
        cache.write_manifest(entry, {"release": release})
    return Kernel(store.root / entry.name / "kernel", key, release, cached=False)


def release_of(depends: str) -> str:
    """Return the kernel's release, from what ``apt-cache depends`` says of the metapackage."""
    match = re.search(r"Depends: linux-image-(\d\S*)", depends)
    if not match:
        raise BuildError(f"apt does not say which kernel {METAPACKAGE} needs: {depends!r}")
    return match.group(1)


def _unpack(entry: Path, log: Path, progress: Progress) -> str:
    releases = []

    def download() -> None:
        try:
            releases.append(_download(entry, log))
        except BuildError:
            # The lists are missing, or older than the mirror.
            commands.run(["apt-get", "-o", "DPkg::Lock::Timeout=900", "-q", "update"], log=log)
            releases.append(_download(entry, log))

    debian.retried(progress, download)
    release = releases[-1]
    root = entry / "kernel"
    for package in entry.glob("*.deb"):
        commands.run(["dpkg-deb", "--extract", str(package), str(root)], log=log)
        package.unlink()
    commands.run(["depmod", "--basedir", str(root), release], log=log)
    return release


def _download(entry: Path, log: Path) -> str:
    release = release_of(commands.capture(["apt-cache", "depends", METAPACKAGE]))
    script = 'cd "$1" && rm -f ./*.deb && apt-get -q -o APT::Sandbox::User=root download "$2"'
    argv = ["sh", "-c", script, "sh", str(entry), f"linux-image-{release}"]
    commands.run(argv, log=log)
    return release
