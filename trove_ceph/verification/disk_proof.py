# SPDX-License-Identifier: Apache-2.0
"""Prove that a disk can be read, past every cache, and that its file system can be written."""

import contextlib
import mmap
import os
import uuid
from pathlib import Path

from trove_ceph import exceptions

BLOCK_BYTES = 65536
_PARTS = 16
_PROBE_BYTES = 4096


def choose_blocks(size_bytes: int) -> list[int]:
    """Return the numbers of the blocks that a proof reads: the first, the last and some between."""
    count = size_bytes // BLOCK_BYTES
    return sorted({count * part // _PARTS for part in range(_PARTS)} | {count - 1}) if count else []


def read_disk(device: str) -> None:
    """Read blocks from all parts of a device, bypassing the cache of this kernel.

    :raises InspectionFaultError: a block cannot be read, or the device has none
    """
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        try:
            blocks = choose_blocks(os.lseek(descriptor, 0, os.SEEK_END))
            # Anonymous memory is aligned to pages, which direct reads need.
            with mmap.mmap(-1, BLOCK_BYTES) as buffer:
                for block in blocks:
                    if os.preadv(descriptor, [buffer], block * BLOCK_BYTES) != BLOCK_BYTES:
                        raise exceptions.InspectionFaultError(f'{device}: block {block} is short')
        finally:
            os.close(descriptor)
    except OSError as error:
        raise exceptions.InspectionFaultError(f'{device}: {error.strerror}') from error
    if not blocks:
        raise exceptions.InspectionFaultError(f'{device}: has no blocks')


def write_file(volume: Path) -> None:
    """Write a file, flush it to the disk and remove it.

    :raises InspectionFaultError: an operation fails
    """
    # The tenant's files cannot have this name.
    probe = volume / f'.trove-ceph-{uuid.uuid4()}'
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, b'\0' * _PROBE_BYTES)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                probe.unlink()
    except OSError as error:
        raise exceptions.InspectionFaultError(
            f'the file system cannot be written: {error.strerror}'
        ) from error
