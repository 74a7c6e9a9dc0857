# SPDX-License-Identifier: Apache-2.0
"""Compute the number of rows of a dataset of a given size."""

import re

from trove_ceph import exceptions
from trove_ceph_bench import model

#: Bytes of InnoDB pages for one row of sysbench's table with its secondary index, fresh after
#: ``prepare`` on MySQL 9.7 with 16 KiB pages: DATA_LENGTH + INDEX_LENGTH of 400 000 rows were
#: 97 648 640 bytes. Random updates split pages of the index, which later grows by some percent.
BYTES_PER_ROW = 244

_RATIO = re.compile(r'1:([1-9]\d*(?:\.\d+)?)')
#: ``cached`` leaves half of the buffer pool to undo, change and dictionary pages.
_CACHED_SHARE = 0.5


def for_ratio(name: str, buffer_pool_bytes: int, tables: int) -> model.Dataset:
    """Return the dataset for a buffer pool and a ratio of buffer pool to data.

    :param name: ``1:N`` for a dataset N times the buffer pool, or ``cached`` for half of it
    :raises InvalidPlanError: the name is neither, or the tables would be empty
    """
    if tables < 1:
        raise exceptions.InvalidPlanError(f'dataset {name!r}: {tables} tables, expected at least 1')
    match = _RATIO.fullmatch(name)
    if match:
        factor = float(match[1])
    elif name == 'cached':
        factor = _CACHED_SHARE
    else:
        raise exceptions.InvalidPlanError(
            f"dataset {name!r}: expected 'cached' or a ratio of buffer pool to data such as '1:4'"
        )
    rows = int(buffer_pool_bytes * factor / BYTES_PER_ROW / tables)
    if rows < 1:
        raise exceptions.InvalidPlanError(
            f'dataset {name!r}: a buffer pool of {buffer_pool_bytes} bytes gives less than one row '
            f'in each of {tables} tables'
        )
    return model.Dataset(name, tables, rows)
