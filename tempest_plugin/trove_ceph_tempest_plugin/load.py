# SPDX-License-Identifier: Apache-2.0
"""Measure a database as clients see it: sysbench's figures, and the largest commit gap."""

import tempfile
from pathlib import Path

from trove_ceph_bench import commit_probe, latency, model, sysbench, workloads

PREPARE_TIMEOUT_SEC = 3600


class Load:
    """A workload of the benchmark on its own tables in a database.

    Every method raises trove_ceph.exceptions.LoadFailedError when sysbench fails, for example
    because it lost a connection.

    :param workload: its name, such as ``read``, ``write``, ``mixed-70-30``
    """

    def __init__(self, address: model.Address, workload: str, dataset: model.Dataset):
        self._sysbench = sysbench.Sysbench(address, workloads.get(workload), dataset)

    def prepare(self) -> None:
        """Recreate and fill the tables."""
        self.cleanup()
        self._sysbench.prepare(timeout_sec=PREPARE_TIMEOUT_SEC)

    def run(self, threads: int, seconds: int) -> dict[str, float]:
        """Run the workload and return its rates, errors and latencies."""
        with tempfile.TemporaryDirectory(prefix='trove-ceph-scenario-') as directory:
            summary = self._sysbench.run(threads, seconds, Path(directory))
            histograms = latency.read([Path(directory) / 'latency.txt'])
        latency_ms = latency.total(histograms.values()).latency_ms()
        return {
            'tps': round(summary.tps, 2),
            'qps': round(summary.qps, 2),
            'errors': summary.errors,
            **{f'{name}_ms': value for name, value in latency_ms.items()},
        }

    def cleanup(self) -> None:
        """Drop the tables that exist."""
        self._sysbench.cleanup(timeout_sec=PREPARE_TIMEOUT_SEC)


class Client(commit_probe.Committer):
    """A client that commits single rows while entered, and reconnects after errors."""

    def figures(self) -> dict[str, float]:
        """Stop, and return the client's commits, errors, gaps and latencies."""
        result = self.stop()
        names = ('commits', 'errors', 'gap_max_ms', 'gap_max_at_sec')
        commit_ms = {f'commit_{name}_ms': result['commit_ms'][name] for name in ('p50', 'p99')}
        return {name: result[name] for name in names} | commit_ms
