# SPDX-License-Identifier: Apache-2.0
"""Builds the root file system of the MySQL container: Debian's MySQL and our entrypoint."""

import os
import re
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from trove_ceph.imagebuild import cache, commands, components, debian
from trove_ceph.imagebuild.cache import Cache
from trove_ceph.imagebuild.components import Component
from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.imagebuild.progress import Progress
from trove_ceph.imagebuild.sources import Sources

KIND = "mysql-rootfs"
SUITE = "sid"
PACKAGES = ("mysql-server-core", "mysql-client", "openssl", "sysbench", "tini", "tzdata")
MYSQL_UID = 999
_NEEDED_GIB = 2

_FILES = Path(__file__).resolve().parent / "files" / "mysql"
_TEMPLATE = "usr/share/mysql-template"
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9)}
_DIRECTORIES = {
    "proc": 0o755,
    "sys": 0o755,
    "dev": 0o755,
    "tmp": 0o1777,
    "docker-entrypoint-initdb.d": 0o755,
    "etc/mysql/conf.d": 0o755,
    "run/mysqld": 0o1777,
    "var/lib/mysql": 0o1777,
    _TEMPLATE: 0o755,
}


@dataclass(frozen=True)
class MysqlRootfs:
    """A directory one can chroot into, holding one version of MySQL."""

    path: Path
    hash: str
    mysql_version: str
    components: list[Component]
    cached: bool


def recipe_hash(sources: Sources) -> str:
    """Return the hash of everything that decides what the root file system holds."""
    here = Path(__file__).resolve()
    return cache.content_hash(
        SUITE,
        PACKAGES,
        cache.tree_hashes([here, here.with_name("debian.py"), _FILES]),
        *sources.key(),
    )


def ensure_mysql_rootfs(store: Cache, progress: Progress, *, sources: Sources) -> MysqlRootfs:
    """Return the MySQL root file system, building it if the cache has none of this recipe.

    :param sources: where packages come from.
    """
    key = recipe_hash(sources)
    entry = store.find(KIND, key)
    if entry:
        manifest = cache.read_manifest(entry)
        version, found = manifest["mysql_version"], manifest["components"]
        return MysqlRootfs(entry / "rootfs", key, version, found, cached=True)
    store.need_space(_NEEDED_GIB)
    log = store.log(KIND)
    debian.ensure_host_packages(progress, log)
    with store.create(KIND, key) as entry:
        root = entry / "rootfs"
        with progress.stage(f"{KIND}: install {', '.join(PACKAGES)} from Debian {SUITE}"):
            debian.bootstrap(
                root,
                progress,
                suite=SUITE,
                variant="essential",
                packages=PACKAGES,
                sources=sources,
                lock=sources.locked("mysql"),
                log=log,
            )
        found = components.debian(root)
        versions = components.versions(found)
        with progress.stage(f"{KIND}: entrypoint, users, directories"):
            _configure(root)
        with progress.stage(f"{KIND}: initialise the data directory template"):
            _make_template(root, log)
        version = upstream_version(versions["mysql-server-core"])
        cache.write_manifest(entry, {"mysql_version": version, "components": found})
    return MysqlRootfs(store.root / entry.name / "rootfs", key, version, found, cached=False)


def upstream_version(package_version: str) -> str:
    """Return the MySQL version in a package version: 9.7.4 for 9.7.4-1 or 1:9.7.4+ds-2."""
    match = re.match(r"(?:\d+:)?(\d+\.\d+\.\d+)", package_version)
    if not match:
        raise BuildError(f"package version {package_version!r} does not begin like 9.7.4")
    return match.group(1)


def _configure(root: Path) -> None:
    # /var/run and /etc/mysql/my.cnf are symbolic links to absolute places: nothing is written
    # through them from outside the root.
    shutil.rmtree(root / "etc/mysql", ignore_errors=True)
    for name, mode in _DIRECTORIES.items():
        path = root / name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
    for name, (major, minor) in _DEVICES.items():
        path = root / "dev" / name
        if not path.exists():
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
        path.chmod(0o666)
    _ensure_mysql_user(root)
    for name in ("run/mysqld", "var/lib/mysql"):
        os.chown(root / name, MYSQL_UID, MYSQL_UID)
    shutil.copyfile(_FILES / "my.cnf", root / "etc/mysql/my.cnf")
    shutil.copyfile(_FILES / "template.options", root / _TEMPLATE / "options")
    entrypoint = root / "usr/local/bin/docker-entrypoint.sh"
    shutil.copyfile(_FILES / "docker-entrypoint.sh", entrypoint)
    entrypoint.chmod(0o755)
    for name in ("entrypoint.sh", "docker-entrypoint.sh"):
        (root / name).symlink_to("usr/local/bin/docker-entrypoint.sh")


def _ensure_mysql_user(root: Path) -> None:
    line = f"mysql:x:{MYSQL_UID}:{MYSQL_UID}:MySQL Server:/var/lib/mysql:/usr/sbin/nologin\n"
    for name, text in (("etc/passwd", line), ("etc/group", f"mysql:x:{MYSQL_UID}:\n")):
        path = root / name
        others = [row for row in path.read_text().splitlines(True) if not row.startswith("mysql:")]
        path.write_text("".join(others) + text)


def _make_template(root: Path, log: Path) -> None:
    """Initialise a data directory inside the root and keep it as a tar file with holes."""
    work = root / "tmp/template"
    work.mkdir()
    os.chown(work, MYSQL_UID, MYSQL_UID)
    shutil.copyfile(_FILES / "template.cnf", work / "template.cnf")
    user = [f"--reuid={MYSQL_UID}", f"--regid={MYSQL_UID}", "--clear-groups"]
    initialize = ["mysqld", "--defaults-file=/tmp/template/template.cnf"]
    initialize += ["--initialize-insecure", "--datadir=/tmp/template/data"]
    commands.run(["setpriv", *user, *initialize], root=root, log=log)
    # The server's identity and keys are made by each instance for itself.
    data = work / "data"
    for path in [data / "auto.cnf", *data.glob("*.pem")]:
        path.unlink(missing_ok=True)
    pack = ["tar", "--create", "--sparse", "--hole-detection=raw", "--sort=name"]
    pack += ["--numeric-owner", "--mtime=@0"]
    archive = root / _TEMPLATE / "data.tar"
    commands.run([*pack, f"--directory={data}", f"--file={archive}", "."], log=log)
    archive.chmod(0o644)
    shutil.rmtree(work)
