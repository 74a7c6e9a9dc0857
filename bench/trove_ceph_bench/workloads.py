# SPDX-License-Identifier: Apache-2.0
"""The workloads that plans can name.

The mixed ones give the ratio of reads to writes in *statements that touch rows*; BEGIN and COMMIT
are neither. In ``oltp_read_write`` with range selects off, one transaction has

    reads  = point_selects
    writes = index_updates + non_index_updates + 2 * delete_inserts    (a DELETE and an INSERT)

so with 1 index update, no other update and 1 delete and insert there are 3 writes; 7 point selects
give exactly 70:30, and 9 give 75:25. QPS includes BEGIN and COMMIT, as in sysbench: 12 and 14
statements per transaction.

Rows are chosen uniformly, as a ratio of dataset to buffer pool implies; sysbench's own default
sends three quarters of all accesses to one percent of the rows, which any buffer pool holds.
``seagate`` keeps that default, because the published figures were measured with it.
"""

from trove_ceph import exceptions
from trove_ceph_bench import model

_UNIFORM = {'rand-type': 'uniform'}


def _mixed(point_selects: int) -> dict[str, str | int]:
    return {
        'point_selects': point_selects,
        'range_selects': 'off',
        'index_updates': 1,
        'non_index_updates': 0,
        'delete_inserts': 1,
        **_UNIFORM,
    }


WORKLOADS = (
    model.Workload(
        name='read',
        description='point selects by primary key, each in its own transaction',
        script='oltp_point_select',
        options=_UNIFORM,
    ),
    model.Workload(
        name='write',
        description='updates of an indexed column, each committed separately',
        script='oltp_update_index',
        options=_UNIFORM,
    ),
    model.Workload(
        name='mixed-70-30',
        description='transactions of 7 point selects and 3 writes',
        script='oltp_read_write',
        options=_mixed(point_selects=7),
    ),
    model.Workload(
        name='mixed-75-25',
        description='transactions of 9 point selects and 3 writes',
        script='oltp_read_write',
        options=_mixed(point_selects=9),
    ),
    model.Workload(
        name='seagate',
        description="sysbench's complex OLTP transaction unchanged, with 100 threads",
        script='oltp_read_write',
        options={'rand-type': 'special'},
        threads=100,
    ),
)


def names() -> list[str]:
    return [workload.name for workload in WORKLOADS]


def get(name: str) -> model.Workload:
    """Return a workload by its name.

    :raises InvalidPlanError: no workload has that name
    """
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    raise exceptions.InvalidPlanError(
        f'workload {name!r} is unknown; choose one of {", ".join(names())}'
    )
