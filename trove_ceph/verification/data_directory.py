# SPDX-License-Identifier: Apache-2.0
"""Read from the files of a data directory the settings that a server needs to open them.

A server refuses data whose page size or system tablespace differs from its configuration. It also
needs the binary log that the transactions were written to: only that log shows which transactions
in InnoDB's prepared state were committed. The files themselves hold all of these settings.

A tenant may have written anything into them: this module reads regular files only, follows no
link, and limits each read, list and name.
"""

import dataclasses
import os
import re
import stat
import struct
from pathlib import Path

from oslo_utils import units

from trove_ceph.host import bounded_files
from trove_ceph.verification import evidence, report

# The page header (fil0types.h): in the first page of a tablespace, the field for the previous page
# holds the version of the server that created or upgraded the tablespace.
_SERVER_VERSION_AT = 8
# fsp0types.h: the header begins after 38 bytes, its flags 16 bytes later.
_FLAGS_AT = 38 + 16
_PAGE_SHIFT, _PAGE_MASK, _SMALLEST_PAGE_BYTES = 6, 0xF, 512
_DEFAULT_PAGE_BYTES = 16384
_HEADER_BYTES = 64
# A binary log begins with 0xfe 'bin', or 0xfd 'bin' when it is encrypted. An event follows whose
# header has its flags in bytes 17 and 18; this flag marks a relay log.
_PLAIN_LOG, _ENCRYPTED_LOG = b'\xfebin', b'\xfdbin'
_LOG_FLAGS_AT = len(_PLAIN_LOG) + 17
_RELAY_LOG_FLAG = 0x40
# The system tablespace extends itself. Its initial size is not recorded, but mysqld accepts any
# size that is not larger than the file.
_LEAST_SYSTEM_MIB = 5
_SYSTEM_FILE = re.compile(r'ibdata(\d{1,4})')
_INDEX_SUFFIX = '.index'
# A directory has one entry for each schema and each binary log. MySQL does not create a directory
# beyond these limits.
_MOST_ENTRIES = 1_000_000
_MOST_SYSTEM_FILES = 64
_MOST_INDEXES = 16
# The last names in an index are enough; an index of many logs is far larger.
_INDEX_BYTES = 64 * 1024
_LAST_LOGS = 16
_NAME_BYTES = 255
_UNPRINTABLE = re.compile(r'[^\w.#@$:-]')
_SHOWN_CHARACTERS = 80


@dataclasses.dataclass(frozen=True)
class DataDirectory:
    """The settings and the owner with which a server can open the directory.

    :param version: of the server that wrote it last, such as (9, 7, 4)
    :param binlog: base name of the binary log; None when there is no binary log
    """

    uid: int
    gid: int
    version: tuple[int, int, int]
    page_bytes: int
    system_files: str
    binlog: str | None

    @property
    def version_text(self) -> str:
        return '.'.join(map(str, self.version))


def read(path: Path) -> DataDirectory:
    """Return the settings of the data directory at a path.

    :raises NotSoundError: it is not a complete data directory of MySQL 8.0 or later
    :raises InspectionFaultError: a file cannot be read
    """
    try:
        return _read_all(path)
    except OSError as error:
        raise evidence.of_file(path.name, error) from error


def _read_all(path: Path) -> DataDirectory:
    owner = path.lstat()
    if not stat.S_ISDIR(owner.st_mode):
        raise report.NotSoundError(report.CORRUPT, f'{path.name} is not a directory')
    system, indexes = _list(path)
    system_files = _describe_system_tablespace(path, system)
    dictionary = _head(path / 'mysql.ibd')
    version = struct.unpack_from('>I', dictionary, _SERVER_VERSION_AT)[0]
    if not version:
        raise report.NotSoundError(report.CORRUPT, 'mysql.ibd, the data dictionary, has no header')
    return DataDirectory(
        owner.st_uid,
        owner.st_gid,
        (version // 10000, version // 100 % 100, version % 100),
        _page_bytes(dictionary),
        system_files,
        _binlog(path, indexes),
    )


def _list(path: Path) -> tuple[list[str], list[str]]:
    """Return the files of the system tablespace, in order, and all index files of logs."""
    system: list[str] = []
    indexes: list[str] = []
    try:
        for name in bounded_files.names(path, _MOST_ENTRIES):
            if _SYSTEM_FILE.fullmatch(name):
                system.append(name)
            elif name.endswith(_INDEX_SUFFIX):
                indexes.append(name)
            _check_count('ibdata', len(system), _MOST_SYSTEM_FILES)
            _check_count(_INDEX_SUFFIX, len(indexes), _MOST_INDEXES)
    except OSError as error:
        raise _unreadable(path.name, error) from error
    system.sort(key=lambda name: int(name.removeprefix('ibdata')))
    return system, sorted(indexes)


def _check_count(kind: str, count: int, most: int) -> None:
    if count > most:
        raise report.NotSoundError(report.CORRUPT, f'there are more than {most} files named {kind}')


def _describe_system_tablespace(path: Path, names: list[str]) -> str:
    """Return the value of innodb_data_file_path for the system tablespace."""
    if not names:
        raise _missing('ibdata1')
    try:
        sizes = [bounded_files.size(path / name) for name in names]
    except OSError as error:
        raise _unreadable(Path(error.filename).name, error) from error
    fixed = [f'{name}:{size // units.Mi}M' for name, size in zip(names[:-1], sizes, strict=False)]
    return ';'.join([*fixed, f'{names[-1]}:{_LEAST_SYSTEM_MIB}M:autoextend'])


def _page_bytes(head: bytes) -> int:
    flags = struct.unpack_from('>I', head, _FLAGS_AT)[0]
    shift = flags >> _PAGE_SHIFT & _PAGE_MASK
    return _SMALLEST_PAGE_BYTES << shift if shift else _DEFAULT_PAGE_BYTES


def _binlog(path: Path, indexes: list[str]) -> str | None:
    for index in indexes:
        logs = _last_logs(path / index)
        if not logs:
            continue
        # A log that was just created may be empty; then there is one before it.
        for log in reversed(logs):
            head = _head(path / log, least=0)
            if head.startswith((_PLAIN_LOG, _ENCRYPTED_LOG)):
                if not _is_relay_log(head):
                    return index.removesuffix(_INDEX_SUFFIX)
                break
        else:
            raise report.NotSoundError(
                report.INCOMPLETE, f'{_shown(index)} names files that are not binary logs'
            )
    return None


def _last_logs(index: Path) -> list[str]:
    """Return the file names, without directories, of the last logs in an index."""
    try:
        content, is_whole = bounded_files.read_tail(index, _INDEX_BYTES)
    except OSError as error:
        raise _unreadable(index.name, error) from error
    lines = content.split()
    if not is_whole:
        # The first line may be truncated.
        lines = lines[1:] or lines
    names = [os.fsdecode(line).rpartition('/')[2] for line in lines[-_LAST_LOGS:]]
    if any('\0' in name or not 0 < len(name) <= _NAME_BYTES for name in names):
        raise report.NotSoundError(report.CORRUPT, f'{_shown(index.name)} is not a list of logs')
    return names


def _is_relay_log(head: bytes) -> bool:
    if not head.startswith(_PLAIN_LOG) or len(head) < _LOG_FLAGS_AT + 2:
        return False
    return bool(struct.unpack_from('<H', head, _LOG_FLAGS_AT)[0] & _RELAY_LOG_FLAG)


def _head(path: Path, least: int = _HEADER_BYTES) -> bytes:
    try:
        head = bounded_files.read_head(path, _HEADER_BYTES)
    except OSError as error:
        raise _unreadable(path.name, error) from error
    if len(head) < least:
        raise report.NotSoundError(report.CORRUPT, f'{_shown(path.name)} is empty or truncated')
    return head


def _unreadable(name: str, error: OSError) -> Exception:
    if isinstance(error, bounded_files.UnexpectedFileError):
        return report.NotSoundError(
            report.CORRUPT, f'{_shown(name)} cannot be read: {error.strerror}'
        )
    return evidence.of_file(_shown(name), error)


def _missing(name: str) -> report.NotSoundError:
    return report.NotSoundError(report.INCOMPLETE, f'{_shown(name)} is not there')


def _shown(name: str) -> str:
    """Return a tenant's file name in a form that is safe in a reason."""
    return _UNPRINTABLE.sub('?', name)[:_SHOWN_CHARACTERS]
