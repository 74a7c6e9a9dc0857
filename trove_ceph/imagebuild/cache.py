# SPDX-License-Identifier: Apache-2.0
"""The cache of built artefacts: directories named by kind and content hash.

An entry appears under its name by one rename when it is complete, so an entry that exists is
complete.  One build runs at a time; each one first removes what an interrupted build left in
``tmp``.
"""

import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trove_ceph.imagebuild.errors import BuildError

DEFAULT_ROOT = Path("/var/cache/trove-ceph")
_KEPT_PER_KIND = 3
_HASH_DIGITS = 16
_GIB = 1 << 30


def content_hash(*parts: object) -> str:
    """Return a short hash of JSON-like values; the same values give the same hash everywhere."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def content_digest(content: bytes) -> str:
    """Return the SHA-256 of bytes."""
    return hashlib.sha256(content).hexdigest()


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def tree_hashes(paths: Iterable[Path]) -> list[list[str]]:
    """Return name, mode and content hash of the given files and of all files below directories.

    Names are relative to each given path's parent, and so independent of the checkout's path.
    """
    found = []
    for top in paths:
        files = sorted(p for p in top.rglob("*") if p.is_file()) if top.is_dir() else [top]
        for path in files:
            if "__pycache__" in path.parts:
                continue
            executable = "x" if os.access(path, os.X_OK) else "-"
            found.append([str(path.relative_to(top.parent)), executable, file_hash(path)])
    return found


class Cache:
    """Artefacts below one directory.

    :param root: the directory; it is created if it is missing.
    """

    def __init__(self, root: Path):
        self.root = root.resolve()
        self.logs = self.root / "log"
        self._tmp = self.root / "tmp"

    @contextmanager
    def locked(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Lock the cache for one build; block while another build holds the lock.

        :param waiting: called once if another build holds the lock.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        with open(self.root / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(lock, fcntl.LOCK_EX)
            shutil.rmtree(self._tmp, ignore_errors=True)
            self._tmp.mkdir()
            yield

    def need_space(self, needed_gib: int) -> None:
        """Check that there is room for a build.

        :raises BuildError: there is less
        """
        free_gib = shutil.disk_usage(self.root).free / _GIB
        if free_gib < needed_gib:
            raise BuildError(
                f"{self.root} has {free_gib:.1f} GiB of free space, and this build needs "
                f"{needed_gib} GiB; free some, or name another directory with --cache"
            )

    def find(self, kind: str, key: str) -> Path | None:
        """Return the entry's directory if it exists, and mark it as used."""
        path = self.root / f"{kind}-{key}"
        if not path.is_dir():
            return None
        os.utime(path)
        return path

    @contextmanager
    def create(self, kind: str, key: str) -> Iterator[Path]:
        """Yield an empty directory that becomes the entry if the block ends without an exception.

        Then only the three most recently used entries of the kind stay.
        """
        path = self._tmp / f"{kind}-{key}"
        path.mkdir(mode=0o755)
        try:
            yield path
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        _sync(path)
        path.rename(self.root / path.name)
        self._prune(kind)

    def log(self, name: str) -> Path:
        """Return an empty log file with this name."""
        path = self.logs / f"{name}.log"
        path.write_bytes(b"")
        return path

    def scratch(self, name: str) -> Path:
        """Return a new directory, which the next build removes at the latest."""
        path = self._tmp / name
        path.mkdir(parents=True)
        return path

    def _prune(self, kind: str) -> None:
        digits = "[0-9a-f]" * _HASH_DIGITS
        entries = sorted(
            self.root.glob(f"{kind}-{digits}"), key=lambda p: p.stat().st_mtime, reverse=True
        )
        for path in entries[_KEPT_PER_KIND:]:
            old = self._tmp / f"{path.name}.old"
            path.rename(old)
            shutil.rmtree(old, ignore_errors=True)


def _sync(top: Path) -> None:
    """Sync files to disk, so that a power cut cannot leave an entry with empty files.

    File by file: sync(2) would also wait for all other writes on the machine.
    """
    for path in [top, *top.rglob("*")]:
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def write_manifest(entry: Path, manifest: Mapping[str, object]) -> None:
    """Write facts about an entry into its directory."""
    (entry / "manifest.json").write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")


def read_manifest(entry: Path) -> dict:
    """Return the facts recorded by :func:`write_manifest`."""
    return json.loads((entry / "manifest.json").read_text())
