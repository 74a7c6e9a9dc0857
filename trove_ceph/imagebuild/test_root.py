# SPDX-License-Identifier: Apache-2.0
"""Builds a root file system of another Debian, in which the tests run with its Ceph."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trove_ceph.imagebuild import cache, commands, debian
from trove_ceph.imagebuild.cache import Cache
from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.imagebuild.progress import Progress
from trove_ceph.imagebuild.sources import Sources

KIND = "test-root"
# The major version of Ceph -> the distribution that has it.
SUITES = {16: "bookworm", 18: "trixie", 20: "sid"}

# Where tools/in-root puts what it takes from the machine.
_FILES = ("etc/resolv.conf", "etc/hosts", "etc/pip.conf")
_DIRECTORIES = ("etc/ssl/certs", "run/lock")


@dataclass(frozen=True)
class TestRoot:
    """A directory with a Debian, for tools/in-root."""

    path: Path
    hash: str
    ceph_version: str
    cached: bool


def host_codename(release: Path = Path("/etc/os-release")) -> str:
    """Return the name of this machine's distribution, such as bookworm; empty if it has none."""
    match = re.search(r"^VERSION_CODENAME=\"?(\w+)", release.read_text(), re.MULTILINE)
    return match.group(1) if match else ""


def suite_of(ceph: int) -> str:
    """Return the distribution that has a major version of Ceph.

    :raises BuildError: no distribution is known for it
    """
    if ceph not in SUITES:
        known = ", ".join(map(str, SUITES))
        raise BuildError(f"no Debian is known that has Ceph {ceph}; choose one of {known}")
    return SUITES[ceph]


def ensure_test_root(
    store: Cache, progress: Progress, *, ceph: int, packages: Sequence[str], sources: Sources
) -> TestRoot:
    """Return the root file system, building it if the cache has none of this recipe.

    :param ceph: the major version of Ceph.
    :param packages: Debian packages to install.
    :param sources: where packages come from.
    :raises BuildError: no distribution has this Ceph, or a package cannot be installed
    """
    suite = suite_of(ceph)
    kind = f"{KIND}-{suite}"
    here = Path(__file__).resolve()
    recipe = cache.tree_hashes([here, here.with_name("debian.py")])
    key = cache.content_hash(suite, sorted(packages), recipe, *sources.key())
    entry = store.find(kind, key)
    if entry:
        version = cache.read_manifest(entry)["ceph_version"]
        return TestRoot(entry / "rootfs", key, version, cached=True)
    log = store.log(kind)
    debian.ensure_host_packages(progress, log)
    with store.create(kind, key) as entry:
        root = entry / "rootfs"
        with progress.stage(f"{kind}: install {len(packages)} packages from Debian {suite}"):
            debian.bootstrap(
                root,
                progress,
                suite=suite,
                variant="essential",
                packages=packages,
                sources=sources,
                log=log,
            )
        _configure(root)
        version = _ceph_version(root, ceph)
        versions = debian.installed_versions(root)
        cache.write_manifest(entry, {"ceph_version": version, "packages": versions})
    return TestRoot(store.root / entry.name / "rootfs", key, version, cached=False)


def _configure(root: Path) -> None:
    for name in _DIRECTORIES:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        # A link would lead to a file of the machine that builds.
        (root / name).unlink(missing_ok=True)
        (root / name).touch()


def _ceph_version(root: Path, expected: int) -> str:
    text = commands.capture(["ceph-mon", "--version"], root=root)
    match = re.search(r"ceph version ((\d+)\.\S+)", text)
    if not match or int(match.group(2)) != expected:
        raise BuildError(f"expected Ceph {expected}, the distribution has {text.strip()!r}")
    return match.group(1)
