# SPDX-License-Identifier: Apache-2.0
"""All metrics, by the processes that export them: for the documentation and the tests of alerts."""

from collections.abc import Mapping, Sequence

from trove_ceph.metrics import cluster, operations, sampling, tables, tiers
from trove_ceph.metrics.descriptions import Description

#: Those of both processes, of a taskmanager, of the storage service, and of the command
#: ``trove-ceph-manage metrics`` beside those of the tables.
BOTH = 'both'
TASKMANAGER = 'taskmanager'
STORAGE = 'storage'
COMMAND = 'command'

METRICS: Mapping[str, Sequence[Description]] = {
    BOTH: (*operations.DESCRIPTIONS, *sampling.DESCRIPTIONS),
    TASKMANAGER: tables.DESCRIPTIONS,
    STORAGE: (*cluster.DESCRIPTIONS, *tiers.DESCRIPTIONS),
    COMMAND: (sampling.READ_AT,),
}


def series() -> frozenset[str]:
    """Return the names of all time series."""
    return frozenset(name for each in METRICS.values() for one in each for name in one.series)
