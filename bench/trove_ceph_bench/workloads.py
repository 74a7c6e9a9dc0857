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

The workloads named after a paper are those of its printed commands, translated to sysbench 1.0:

``intel-…``
    Intel, 2018: sysbench 0.5 with 8 threads. Its write command switches off neither transactions
    nor the DELETE and INSERT of the default mix, so a transaction has 102 writes. Its mixed command
    is that default mix without ranges: 10 reads and 4 writes. The paper calls it 75:25.
``seagate``
    Seagate, 2017: sysbench 0.4 with 100 threads and its default distribution of rows.
"""

from trove_ceph import exceptions
from trove_ceph_bench import model

_UNIFORM = {'rand-type': 'uniform'}
_INTEL_THREADS = 8


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
        name='intel-read',
        description='Intel 2018: transactions of 10 point selects, with 8 threads',
        script='oltp_read_only',
        options={'point_selects': 10, 'range_selects': 'off', **_UNIFORM},
        threads=_INTEL_THREADS,
    ),
    model.Workload(
        name='intel-write',
        description='Intel 2018: transactions of 100 index updates, a DELETE and an INSERT, with 8 '
        'threads',
        script='oltp_write_only',
        options={
            'index_updates': 100,
            'non_index_updates': 0,
            'delete_inserts': 1,
            **_UNIFORM,
        },
        threads=_INTEL_THREADS,
    ),
    model.Workload(
        name='intel-mixed',
        description="Intel 2018: sysbench's default transaction without ranges, with 8 threads; "
        'published as 75:25, it has 10 reads and 4 writes',
        script='oltp_read_write',
        options={
            'point_selects': 10,
            'range_selects': 'off',
            'index_updates': 1,
            'non_index_updates': 1,
            'delete_inserts': 1,
            **_UNIFORM,
        },
        threads=_INTEL_THREADS,
    ),
    model.Workload(
        name='seagate',
        description="Seagate 2017: sysbench's complex OLTP transaction unchanged, with 100 threads",
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
