# SPDX-License-Identifier: Apache-2.0
"""Writing of rendered files: all of them or none, and never over a file of another origin."""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

from trove_ceph import exceptions

#: What the first lines of each file that this package writes contain.
MARK = 'Rendered by trove-ceph-manage hci render'
_MARKED_LINES = 5
_SUFFIX = '.rendering'


@dataclass(frozen=True)
class File:
    """A file to write.

    :ivar path: relative to the directory of the output
    """

    path: PurePosixPath
    text: str
    is_executable: bool = False


@dataclass(frozen=True)
class Result:
    """What writing did; paths are relative to the directory.

    :ivar left: files of an earlier rendering that are no part of this one; they are kept
    """

    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    left: tuple[str, ...]


def header(source: Path, replaced: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the lines for the top of each file: what wrote it, and from what.

    :param replaced: the options that replaced values of the source
    :raises InvalidHostsError: the source cannot be read
    """
    try:
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
    except OSError as error:
        raise exceptions.InvalidHostsError(f'{source}: {error.strerror}') from error
    options = f' with {" ".join(replaced)}' if replaced else ''
    return (
        f'{MARK} of trove-ceph {metadata.version("trove-ceph")}',
        f'from {source.name}{options}, SHA-256 {digest}.',
        'Do not edit: change that file and render it again.',
    )


def write(directory: Path, files: Sequence[File], force: bool = False) -> Result:
    """Write files; each is replaced as a whole, and those that are right already are left alone.

    Every file is on the disk under a temporary name before the first one gets its own.

    :param force: whether to replace files of another origin as well
    :raises OutputRefusedError: a file is of another origin or cannot be written; nothing is changed
    """
    foreign = [] if force else [str(one.path) for one in files if _is_foreign(directory, one)]
    if foreign:
        raise exceptions.OutputRefusedError(
            f'{directory}: {", ".join(foreign)} were not written by this command; choose another '
            'directory, or replace them with --force'
        )
    changed = [one for one in files if not _is_same(directory / one.path, one)]
    try:
        _replace(directory, changed)
    except OSError as error:
        raise exceptions.OutputRefusedError(
            f'{error.filename}: cannot be written: {error.strerror}; name a directory that you can '
            'write to'
        ) from error
    written = {str(one.path) for one in changed}
    return Result(
        changed=tuple(sorted(written)),
        unchanged=tuple(sorted({str(one.path) for one in files} - written)),
        left=tuple(_left(directory, {one.path for one in files})),
    )


def _replace(directory: Path, files: Sequence[File]) -> None:
    temporary: list[tuple[Path, Path]] = []
    try:
        for one in files:
            path = directory / one.path
            path.parent.mkdir(parents=True, exist_ok=True)
            staged = path.with_name(f'.{path.name}{_SUFFIX}')
            temporary.append((staged, path))
            with staged.open('w', encoding='utf-8') as stream:
                stream.write(one.text)
                stream.flush()
                os.fsync(stream.fileno())
            staged.chmod(0o755 if one.is_executable else 0o644)
            if path.is_dir():
                raise IsADirectoryError(21, 'is a directory', str(path))
        for staged, path in temporary:
            staged.replace(path)
    finally:
        for staged, _ in temporary:
            with contextlib.suppress(OSError):
                staged.unlink(missing_ok=True)


def _is_foreign(directory: Path, file: File) -> bool:
    path = directory / file.path
    return path.is_symlink() or (path.exists() and not _is_marked(path))


def _is_marked(path: Path) -> bool:
    try:
        with path.open(encoding='utf-8') as stream:
            return any(MARK in line for line, _ in zip(stream, range(_MARKED_LINES), strict=False))
    except (OSError, UnicodeDecodeError):
        return False


def _is_same(path: Path, file: File) -> bool:
    try:
        is_executable = bool(path.stat().st_mode & 0o100)
        return path.read_bytes() == file.text.encode() and is_executable is file.is_executable
    except OSError:
        return False


def _left(directory: Path, paths: set[PurePosixPath]) -> list[str]:
    """Return the files of earlier runs in the folders of these paths; nothing else is looked at."""
    folders = sorted({path.parts[0] for path in paths if len(path.parts) > 1})
    found = sorted(path for one in folders for path in (directory / one).rglob('*'))
    relative = [(path, PurePosixPath(path.relative_to(directory))) for path in found]
    return [
        str(name)
        for path, name in relative
        if name not in paths and path.is_file() and _is_marked(path)
    ]
