# SPDX-License-Identifier: Apache-2.0
"""The trove_ceph wheel for a guest: given, or built from a checkout."""

import configparser
import re
import zipfile
from pathlib import Path

from trove_ceph.imagebuild import cache, commands
from trove_ceph.imagebuild.cache import Cache
from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.imagebuild.progress import Progress

KIND = "wheel"
_PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt", "README.rst")
_PROJECT_TREES = ("trove_ceph", "etc", "tempest_plugin")
# A change in these alone needs no new guest image: guests do not import them.
_NOT_FOR_GUESTS = ("trove_ceph/tests/", "trove_ceph/imagebuild/", "trove_ceph_bench/", "trove_ceph_tempest_plugin/")
_VERSIONED = re.compile(r"^trove_ceph-[^/]*\.(dist-info|data)/")


def contents_hash(wheel: Path) -> str:
    """Return a hash of the parts of a wheel that guests use: names and contents.

    It excludes times, the version, parts that guests never import, and metadata except the entry
    points.

    :raises BuildError: the file is not a wheel of trove_ceph.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [
                [_VERSIONED.sub(r"\1/", name), cache.content_digest(archive.read(name))]
                for name in sorted(archive.namelist())
                if _is_for_guests(name)
            ]
    except (OSError, zipfile.BadZipFile) as error:
        raise BuildError(f"{wheel} is not a readable wheel: {error}") from error
    if not any(name.startswith("trove_ceph/") for name, _ in members):
        raise BuildError(f"{wheel} does not contain the package trove_ceph")
    return cache.content_hash(members)


def _is_for_guests(name: str) -> bool:
    if ".dist-info/" in name:
        return name.endswith("/entry_points.txt")
    return not name.startswith(_NOT_FOR_GUESTS)


def ensure_wheel(store: Cache, progress: Progress, project: Path) -> Path:
    """Return a wheel of a checkout, building it if none was built from the same sources.

    :param project: the directory with pyproject.toml.
    :raises BuildError: the directory is not a trove_ceph checkout, or pip cannot build it.
    """
    if not (project / "pyproject.toml").is_file() or not (project / "trove_ceph").is_dir():
        raise BuildError(f"{project} is not a trove_ceph checkout")
    key = cache.content_hash(_source_hashes(project))
    entry = store.find(KIND, key)
    if entry is None:
        with store.create(KIND, key) as entry, progress.stage(f"{KIND}: build {project}"):
            _build(project.resolve(), entry, log=store.log(KIND))
        entry = store.root / entry.name
    return next(entry.glob("*.whl"))


def _source_hashes(project: Path) -> list[list[str]]:
    paths = [project / name for name in (*_PROJECT_FILES, *_PROJECT_TREES)]
    rows = cache.tree_hashes(path for path in paths if path.exists())
    return [row for row in rows if not row[0].startswith("trove_ceph/tests/")]


def _next_release(project: Path) -> str:
    config = configparser.ConfigParser()
    config.read(project / "setup.cfg")
    return config["metadata"]["version"]


def _build(project: Path, target: Path, *, log: Path) -> None:
    environment = commands.pip_environment()
    if not (project / ".git").exists():
        # pbr counts the commits in git; an exported tree has none.
        environment.setdefault("PBR_VERSION", f"{_next_release(project)}.dev0")
    pip = ["/usr/bin/python3", "-m", "pip", "wheel", "--no-deps", "--no-cache-dir"]
    commands.run([*pip, f"--wheel-dir={target}", str(project)], log=log, env=environment)
