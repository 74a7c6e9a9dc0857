# SPDX-License-Identifier: Apache-2.0
"""What clients see of a database: sysbench's figures, and the largest gap between commits."""

import tempfile
from pathlib import Path

from trove_ceph_bench import commit_probe, latency, model, sysbench, workloads

PREPARE_TIMEOUT_SEC = 3600


class Load:
    """A workload of the benchmark on tables of its own in a database.

    :param workload: its name, such as ``read``, ``write``, ``mixed-70-30``
    :raises trove_ceph.exceptions.LoadFailedError: from every method, when sysbench gives up, for
        which a lost connection suffices
    """

    def __init__(self, address: model.Address, workload: str, dataset: model.Dataset):
        self._sysbench = sysbench.Sysbench(address, workloads.get(workload), dataset)

    def prepare(self) -> None:
        """Fill the tables anew."""
        self.cleanup()
        self._sysbench.prepare(timeout_sec=PREPARE_TIMEOUT_SEC)

    def run(self, threads: int, seconds: int) -> dict[str, float]:
        """Return rates, errors and latencies of a run."""
        with tempfile.TemporaryDirectory(prefix='trove-ceph-scenario-') as directory:
            summary = self._sysbench.run(threads, seconds, Path(directory))
            recorded = latency.read([Path(directory) / 'latency.txt'])
        took_ms = latency.total(recorded.values()).latency_ms()
        return {
            'tps': round(summary.tps, 2),
            'qps': round(summary.qps, 2),
            'errors': summary.errors,
            **{f'{name}_ms': value for name, value in took_ms.items()},
        }

    def cleanup(self) -> None:
        """Remove the tables, if there are any."""
        self._sysbench.cleanup(timeout_sec=PREPARE_TIMEOUT_SEC)


class Client(commit_probe.Committer):
    """An ordinary client that commits single rows while entered, and reconnects if need be."""

    def figures(self) -> dict[str, float]:
        """End, and return what the client saw."""
        seen = self.stop()
        kept = ('commits', 'errors', 'gap_max_ms', 'gap_max_at_sec')
        commit_ms = {f'commit_{name}_ms': seen['commit_ms'][name] for name in ('p50', 'p99')}
        return {name: seen[name] for name in kept} | commit_ms
