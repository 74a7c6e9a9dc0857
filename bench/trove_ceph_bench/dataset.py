# SPDX-License-Identifier: Apache-2.0
"""Compute the number of rows of a dataset of a given size.

The size is relative to the buffer pool (``1:4``, ``cached``) or absolute: bytes (``75GiB``) or the
rows of each table (``14000000 rows``). A scale reduces only absolute sizes; a relative one already
follows the machine.
"""

import re

from oslo_utils import strutils

from trove_ceph import exceptions
from trove_ceph_bench import model

#: Bytes of InnoDB pages for one row of sysbench's table with its secondary index, fresh after
#: ``prepare`` on MySQL 9.7 with 16 KiB pages: DATA_LENGTH + INDEX_LENGTH of 400 000 rows were
#: 97 648 640 bytes. Random updates split pages of the index, which later grows by some percent.
BYTES_PER_ROW = 244
#: A scaled table has at least as many rows, so that threads do not wait for each other's locks.
LEAST_ROWS = 1000

#: For the schema of plans.
PATTERN = r'^(cached|1:[1-9][0-9]*(\.[0-9]+)?|[1-9][0-9]* rows|[1-9][0-9]*(\.[0-9]+)?[KMGT]i?B)$'
EXPECTED = (
    'cached, the ratio of the buffer pool to the data in quotes, as "1:4", a size as 75GiB, or '
    'the rows of each table as 14000000 rows'
)
#: ``cached`` leaves half of the buffer pool to undo, change and dictionary pages.
_CACHED_SHARE = 0.5


def is_relative(name: str) -> bool:
    """Return whether the size of a dataset follows from the buffer pool."""
    return name == 'cached' or name.startswith('1:')


def size_bytes(name: str, tables: int) -> int | None:
    """Return the size of an absolute dataset without scale; None for a relative one."""
    if is_relative(name):
        return None
    if name.endswith(' rows'):
        return int(name.removesuffix(' rows')) * tables * BYTES_PER_ROW
    return strutils.string_to_bytes(name, unit_system='mixed', return_int=True)


def for_name(
    name: str, buffer_pool_bytes: int | None, tables: int, scale: float = 1
) -> model.Dataset:
    """Return the dataset of a name in a plan.

    :param name: ``1:N`` for a dataset N times the buffer pool, ``cached`` for half of it, or an
        absolute size
    :param buffer_pool_bytes: None if the dataset is absolute
    :param scale: share of an absolute size; each table keeps at least ``LEAST_ROWS``
    :raises InvalidPlanError: the name is none of these, or the tables would be empty
    """
    if tables < 1:
        raise exceptions.InvalidPlanError(f'dataset {name!r}: {tables} tables, expected at least 1')
    if not re.match(PATTERN, name):
        raise exceptions.InvalidPlanError(f'dataset {name!r}: expected {EXPECTED}')
    absolute = size_bytes(name, tables)
    if absolute is not None:
        rows = absolute // BYTES_PER_ROW // tables
        if scale != 1:
            return model.Dataset(name, tables, max(min(rows, LEAST_ROWS), int(rows * scale)), scale)
        source = f'a size of {absolute} bytes'
    else:
        if buffer_pool_bytes is None:
            raise exceptions.InvalidPlanError(f'dataset {name!r}: the buffer pool is unknown')
        factor = _CACHED_SHARE if name == 'cached' else float(name.removeprefix('1:'))
        rows = int(buffer_pool_bytes * factor / BYTES_PER_ROW / tables)
        source = f'a buffer pool of {buffer_pool_bytes} bytes'
    if rows < 1:
        raise exceptions.InvalidPlanError(
            f'dataset {name!r}: {source} gives less than one row in each of {tables} tables'
        )
    return model.Dataset(name, tables, rows)


def stored_bytes(data: model.Dataset) -> int:
    """Return the bytes of InnoDB pages of a fresh dataset."""
    return data.total_rows * BYTES_PER_ROW
