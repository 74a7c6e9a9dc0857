# SPDX-License-Identifier: Apache-2.0
"""The trove_ceph wheel for a guest, built from a checkout or packed from an installation."""

import base64
import configparser
import hashlib
import importlib.metadata
import re
import zipfile
from pathlib import Path, PurePosixPath

from trove_ceph.imagebuild import cache, commands
from trove_ceph.imagebuild.cache import Cache
from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.imagebuild.progress import Progress

KIND = "wheel"
#: Name of the distribution, and of the builder's program in it.
DISTRIBUTION = "trove-ceph"
PROGRAM = "trove-ceph-image"
#: Packages that are deleted in a guest.
NOT_IN_GUESTS = ("trove_ceph/tests", "trove_ceph/imagebuild")

_CHECKOUT = Path(__file__).resolve().parents[2]
_CONSTRAINTS = "constraints.txt"
_PROJECT_FILES = (
    *("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt", "README.rst"),
    *("lab/constraints.txt", "lab/constraints-2026.1.txt"),
)
_PROJECT_TREES = ("trove_ceph", "etc", "tempest_plugin")
# A change in these alone needs no new guest image: guests do not import them.
_NOT_FOR_GUESTS = (
    *(f"{name}/" for name in NOT_IN_GUESTS),
    *("trove_ceph_bench/", "trove_ceph_tempest_plugin/"),
    ".data/data/share/trove-ceph/constraints/",
)
_VERSIONED = re.compile(r"^trove_ceph-[^/]*\.(dist-info|data)/")
# Written by the installer.
_OF_INSTALLER = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json")
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


def checkout() -> Path | None:
    """Return the checkout that this module is in; None: it was installed from a wheel."""
    return _CHECKOUT if (_CHECKOUT / "pyproject.toml").is_file() else None


def default_constraints() -> Path | None:
    """Return the versions that this release was tested with; None: the installation lacks them."""
    project = checkout()
    if project:
        return project / "lab" / _CONSTRAINTS
    for path in importlib.metadata.files(DISTRIBUTION) or ():
        if path.parts[-2:] == ("constraints", _CONSTRAINTS):
            return Path(str(path.locate())).resolve()
    return None


def contents_hash(wheel: Path) -> str:
    """Return a hash of the parts of a wheel that guests use: names and contents.

    It excludes times, the version, parts that guests never import, and metadata except the entry
    points.

    :raises BuildError: the file is not a wheel of trove_ceph.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [
                [name, cache.content_digest(archive.read(member))]
                for member in sorted(archive.namelist())
                if _is_for_guests(name := _VERSIONED.sub(r".\1/", member))
            ]
    except (OSError, zipfile.BadZipFile) as error:
        raise BuildError(f"{wheel} is not a readable wheel: {error}") from error
    if not any(name.startswith("trove_ceph/") for name, _ in members):
        raise BuildError(f"{wheel} does not contain the package trove_ceph")
    return cache.content_hash(members)


def _is_for_guests(name: str) -> bool:
    if name.startswith(".dist-info/"):
        return name == ".dist-info/entry_points.txt"
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


def pack_installed(directory: Path) -> Path:
    """Write the wheel that this installation of trove_ceph came from, and return its path.

    The same installation gives the same bytes.

    :raises BuildError: a file is missing or was changed after the installation
    """
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError as error:
        raise BuildError(
            f"{DISTRIBUTION} is not installed here; name its wheel with --wheel, or a checkout "
            "with --project"
        ) from error
    members = _members(distribution)
    if "trove_ceph/__init__.py" not in members:
        raise BuildError(
            f"this installation of {DISTRIBUTION} refers to files elsewhere; name a wheel with "
            "--wheel, or a checkout with --project"
        )
    target = directory / f"trove_ceph-{distribution.version}-py3-none-any.whl"
    rows = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(members.items()):
            content = _unchanged(path)
            mode = 0o755 if Path(str(path.locate())).stat().st_mode & 0o100 else 0o644
            _add(archive, name, content, mode)
            rows.append(f"{name},sha256={_record_hash(content)},{len(content)}")
        record = f"trove_ceph-{distribution.version}.dist-info/RECORD"
        text = "".join(f"{row}\n" for row in [*rows, f"{record},,"])
        _add(archive, record, text.encode(), 0o644)
    return target


def _members(
    distribution: importlib.metadata.Distribution,
) -> dict[str, importlib.metadata.PackagePath]:
    """Return the files of a distribution by their names in its wheel."""
    found = {}
    for path in distribution.files or ():
        parts = [part for part in PurePosixPath(path).parts if part != ".."]
        outside = len(parts) < len(path.parts)
        if "__pycache__" in parts or (outside and parts[0] == "bin"):
            continue  # made by the installer
        if parts[0].endswith(".dist-info") and parts[1] in _OF_INSTALLER:
            continue
        name = "/".join(parts)
        data = f"trove_ceph-{distribution.version}.data/data/"
        found[data + name if outside else name] = path
    return found


def _unchanged(path: importlib.metadata.PackagePath) -> bytes:
    located = Path(str(path.locate()))
    try:
        content = located.read_bytes()
    except OSError as error:
        raise BuildError(f"{located} cannot be read: {error}; install {DISTRIBUTION} again") from (
            error
        )
    if path.hash and path.hash.value != _record_hash(content):
        raise BuildError(
            f"{located} was changed after its installation; install {DISTRIBUTION} again, or name "
            "a wheel with --wheel"
        )
    return content


def _record_hash(content: bytes) -> str:
    digest = hashlib.sha256(content).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _add(archive: zipfile.ZipFile, name: str, content: bytes, mode: int) -> None:
    member = zipfile.ZipInfo(name, _ZIP_EPOCH)
    member.external_attr = (0o100000 | mode) << 16
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, content)
