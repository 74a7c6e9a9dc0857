# SPDX-License-Identifier: Apache-2.0
"""What the files of a data directory say of the server that wrote them.

A server refuses data of another page size or another system tablespace than it was told, and it
must read the binary log that the transactions were written to: which of those that InnoDB had
prepared are committed stands only there. All of that is in the files themselves. They are somebody
else's: no link is followed.
"""

import dataclasses
import os
import re
import stat
import struct
from pathlib import Path

from oslo_utils import units

from trove_ceph.verification import evidence, report

# What a page begins with (fil0types.h): in the first page of a tablespace, the field that elsewhere
# names the page before holds the version of the server that made or upgraded the tablespace.
_SERVER_VERSION_AT = 8
# fsp0types.h: the header begins after 38 bytes, its flags 16 bytes later.
_FLAGS_AT = 38 + 16
_PAGE_SHIFT, _PAGE_MASK, _SMALLEST_PAGE_BYTES = 6, 0xF, 512
_DEFAULT_PAGE_BYTES = 16384
_HEADER_BYTES = 64
# Of a binary log: 'bin' after 0xfe, or after 0xfd when it is encrypted. Then comes an event whose
# header has its flags in bytes 17 and 18; this one says that it is a relay log.
_PLAIN_LOG, _ENCRYPTED_LOG = b'\xfebin', b'\xfdbin'
_LOG_FLAGS_AT = len(_PLAIN_LOG) + 17
_RELAY_LOG_FLAG = 0x40
# The system tablespace grows by itself; the size that it began with is not written anywhere, but
# any that is not larger than the file will do.
_LEAST_SYSTEM_MIB = 5
_SYSTEM_FILE = re.compile(r'ibdata(\d+)')


@dataclasses.dataclass(frozen=True)
class DataDirectory:
    """What a server must be told to open it, and as whom.

    :param version: such as (9, 7, 4); of the server that wrote it last
    :param binlog: the binary log's name without number; None when none was written
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
    """Read what the files say.

    :raises Finding: it is no data directory of MySQL 8.0 or later, or not all of one
    :raises InspectionFaultError: the files cannot be read
    """
    try:
        return _read_all(path)
    except OSError as error:
        raise evidence.of_file(path.name, error) from error


def _read_all(path: Path) -> DataDirectory:
    owner = path.lstat()
    if not stat.S_ISDIR(owner.st_mode):
        raise report.Finding(report.CORRUPT, f'{path.name} is no directory')
    system_files = _system_files(path)
    dictionary = _head(path / 'mysql.ibd')
    version = struct.unpack_from('>I', dictionary, _SERVER_VERSION_AT)[0]
    if not version:
        raise report.Finding(report.CORRUPT, 'mysql.ibd, the data dictionary, has no header')
    return DataDirectory(
        owner.st_uid,
        owner.st_gid,
        (version // 10000, version // 100 % 100, version % 100),
        _page_bytes(dictionary),
        system_files,
        _binlog(path),
    )


def _system_files(path: Path) -> str:
    """Describe the system tablespace, as innodb_data_file_path wants it."""
    names = [name for name in os.listdir(path) if _SYSTEM_FILE.fullmatch(name)]
    if not names:
        raise _missing('ibdata1')
    names.sort(key=lambda name: int(name.removeprefix('ibdata')))
    fixed = [f'{name}:{(path / name).lstat().st_size // units.Mi}M' for name in names[:-1]]
    return ';'.join([*fixed, f'{names[-1]}:{_LEAST_SYSTEM_MIB}M:autoextend'])


def _page_bytes(head: bytes) -> int:
    flags = struct.unpack_from('>I', head, _FLAGS_AT)[0]
    shift = flags >> _PAGE_SHIFT & _PAGE_MASK
    return _SMALLEST_PAGE_BYTES << shift if shift else _DEFAULT_PAGE_BYTES


def _binlog(path: Path) -> str | None:
    for index in sorted(path.glob('*.index')):
        logs = _read(index).decode(errors='replace').split()
        if not logs:
            continue
        # A log that was just begun may be empty; there is one before then.
        for log in reversed(logs):
            head = _head(path / Path(log).name, least=0)
            if head.startswith((_PLAIN_LOG, _ENCRYPTED_LOG)):
                if not _is_relay_log(head):
                    return index.name.removesuffix('.index')
                break
        else:
            raise report.Finding(report.INCOMPLETE, f'{index.name} names logs that are not logs')
    return None


def _is_relay_log(head: bytes) -> bool:
    if not head.startswith(_PLAIN_LOG) or len(head) < _LOG_FLAGS_AT + 2:
        return False
    return bool(struct.unpack_from('<H', head, _LOG_FLAGS_AT)[0] & _RELAY_LOG_FLAG)


def _head(path: Path, least: int = _HEADER_BYTES) -> bytes:
    head = _read(path, _HEADER_BYTES)
    if len(head) < least:
        raise report.Finding(report.CORRUPT, f'{path.name} is empty or cut off')
    return head


def _read(path: Path, count: int = -1) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, 'rb') as file:
            return file.read(count)
    except OSError as error:
        raise evidence.of_file(path.name, error) from error


def _missing(name: str) -> report.Finding:
    return report.Finding(report.INCOMPLETE, f'{name} is not there')
