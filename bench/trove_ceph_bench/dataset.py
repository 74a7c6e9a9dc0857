# SPDX-License-Identifier: Apache-2.0
"""How many rows make a dataset of a given size."""

import re

from trove_ceph import exceptions
from trove_ceph_bench import model

#: Bytes of InnoDB pages for one row of sysbench's table with its secondary index, fresh after
#: ``prepare`` on MySQL 9.7 with 16 KiB pages: DATA_LENGTH + INDEX_LENGTH of 400 000 rows were
#: 97 648 640 bytes. Random updates split pages of the index, which grows it by some percent later.
BYTES_PER_ROW = 244

_RATIO = re.compile(r'1:([1-9]\d*(?:\.\d+)?)')
#: ``cached`` leaves half of the buffer pool to undo, change and dictionary pages.
_CACHED_SHARE = 0.5


def for_ratio(name: str, buffer_pool_bytes: int, tables: int) -> model.Dataset:
    """Return the dataset of a buffer pool and a ratio of both.

    :param name: ``1:N`` for a dataset N times the buffer pool, or ``cached`` for half of it
    :raises InvalidPlanError: the name is neither, or nothing would be in the tables
    """
    if tables < 1:
        raise exceptions.InvalidPlanError(
            f'dataset {name!r}: {tables} tables; at least 1 is needed'
        )
    match = _RATIO.fullmatch(name)
    if match:
        factor = float(match[1])
    elif name == 'cached':
        factor = _CACHED_SHARE
    else:
        raise exceptions.InvalidPlanError(
            f"dataset {name!r} is neither 'cached' nor a ratio of buffer pool to data such as '1:4'"
        )
    rows = int(buffer_pool_bytes * factor / BYTES_PER_ROW / tables)
    if rows < 1:
        raise exceptions.InvalidPlanError(
            f'dataset {name!r}: a buffer pool of {buffer_pool_bytes} bytes gives no row in each of '
            f'{tables} tables'
        )
    return model.Dataset(name, tables, rows)
