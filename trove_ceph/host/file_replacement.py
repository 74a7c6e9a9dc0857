# SPDX-License-Identifier: Apache-2.0
"""A program that replaces files as a whole: after a crash, a marker tells that it had not ended.

Run by its path, as root, with only the standard library::

    file_replacement.py

It reads one :class:`Replacement` as a line of JSON, and prints one line of JSON: ``null`` on
success, or the reason of a failure as a text, which has no content of a file.

1. Each file is written and flushed under a temporary name. A failure so far changes nothing.
2. The file of the marker is replaced by the marker.
3. The files are renamed to their names.
4. The commands are run.
5. The file of the marker is removed.

Each part is on the disk before the next begins. So after a crash there are all the old files, or
the marker, or all the new files and no marker. A single file needs no marker.
"""

import contextlib
import dataclasses
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterable

_SUFFIX = '.replacement'


@dataclasses.dataclass(frozen=True)
class File:
    """One new file; it keeps the owner and mode of the file that it replaces.

    :param owner_of: path of a file with the owner of a new file; None: root
    :param mode: of a new file
    :param owner: uid and gid; the file gets these and the mode whether it is new or not
    """

    path: str
    content: str = dataclasses.field(repr=False)
    owner_of: str | None = None
    mode: int = 0o644
    owner: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class Replacement:
    """What to replace.

    :param marker_path: an existing file, which is removed at the end; None: there is one file only
    :param marker: its content until then
    :param commands: to run when the files have their names
    """

    marker_path: str | None
    marker: str
    files: tuple[File, ...]
    commands: tuple[tuple[str, ...], ...] = ()


def encode(replacement: Replacement) -> str:
    """Return a replacement as a line that the program reads."""
    return json.dumps(dataclasses.asdict(replacement)) + '\n'


def replace(replacement: Replacement) -> None:
    """Replace the files.

    :raises OSError: the files are the old ones, or the marker is there
    :raises subprocess.CalledProcessError: a command failed; the marker is there
    """
    markers: list[File] = []
    if replacement.marker_path is not None:
        markers.append(File(replacement.marker_path, replacement.marker))
    staged: list[tuple[str, str]] = []
    try:
        for file in (*markers, *replacement.files):
            _stage(file, staged)
        _rename(staged[: len(markers)])
        _rename(staged[len(markers) :])
    except BaseException:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise
    for command in replacement.commands:
        subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    for marker in markers:
        os.unlink(marker.path)
        _flush_directories([marker.path])


def main() -> int:
    """Replace the files that standard input tells."""
    line = sys.stdin.readline()
    if not line.endswith('\n'):
        # The caller has ended, perhaps in the middle of the line.
        return 0
    given = json.loads(line)
    files = tuple(File(**file) for file in given.pop('files'))
    try:
        replace(Replacement(files=files, **given))
    except OSError as error:
        return _report(f'{error.filename}: {error.strerror}')
    except subprocess.CalledProcessError as error:
        return _report(f'{" ".join(error.cmd)}: {error.stderr.strip()}')
    return _report(None)


def _report(reason: str | None) -> int:
    print(json.dumps(reason), flush=True)
    return 0 if reason is None else 1


def _stage(file: File, staged: list[tuple[str, str]]) -> None:
    """Write a file under a temporary name that no reader of configuration matches."""
    directory, name = os.path.split(file.path)
    os.makedirs(directory, exist_ok=True)
    temporary = os.path.join(directory, f'.{name}{_SUFFIX}')
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    found = _find_owner(file)
    staged.append((temporary, file.path))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o600), 'w', encoding='utf-8') as stream:
        if os.geteuid() == 0:
            os.fchown(stream.fileno(), found[0], found[1])
        os.fchmod(stream.fileno(), found[2])
        stream.write(file.content)
        stream.flush()
        os.fsync(stream.fileno())


def _find_owner(file: File) -> tuple[int, int, int]:
    """Return uid, gid and mode of a new file."""
    if file.owner is not None:
        return file.owner[0], file.owner[1], file.mode
    with contextlib.suppress(FileNotFoundError):
        replaced = os.stat(file.path)
        return replaced.st_uid, replaced.st_gid, stat.S_IMODE(replaced.st_mode)
    if file.owner_of is None:
        return 0, 0, file.mode
    model = os.stat(file.owner_of)
    return model.st_uid, model.st_gid, file.mode


def _rename(staged: list[tuple[str, str]]) -> None:
    for temporary, path in staged:
        os.rename(temporary, path)
    _flush_directories([path for _, path in staged])


def _flush_directories(paths: Iterable[str]) -> None:
    for directory in sorted({os.path.dirname(path) for path in paths}):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


if __name__ == '__main__':
    sys.exit(main())
