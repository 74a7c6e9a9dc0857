# SPDX-License-Identifier: Apache-2.0
"""The CPUs of running OSDs and guests: read from the kernel, and set while they run."""

import contextlib
import os
import pathlib

from cephcluster import daemons, layout
from driver import processes
from driver.errors import LabError

#: A thread that starts meanwhile has the CPUs of the thread that starts it.
_ROUNDS = 20


def running(settings) -> dict[str, list[int]]:
    """Return {name: process ids} of the lab's OSDs and guests."""
    found: dict[str, list[int]] = {}
    cluster = layout.Layout(settings.root / 'state' / 'ceph').find()
    for each in daemons.find(cluster) if cluster else []:
        if each.name.startswith('osd.'):
            found.setdefault(each.name, []).append(each.pid)
    for pid, name in processes.guests(settings).items():
        found.setdefault(name, []).append(pid)
    return dict(sorted(found.items()))


def cpus_of(pid: int) -> frozenset[int]:
    """Return the CPUs that any thread of a process may use; none: it is gone."""
    return frozenset().union(*_affinities(pid).values())


def set_cpus(pid: int, cpus: frozenset[int]) -> None:
    """Have all threads of a process, and those that they start, use these CPUs only.

    :raises LabError: the kernel refuses.
    """
    for _ in range(_ROUNDS):
        others = [tid for tid, found in _affinities(pid).items() if found != cpus]
        if not others:
            return
        for tid in others:
            _set_cpus_of_thread(pid, tid, cpus)
    raise LabError(
        f'process {pid} has threads that do not keep to the CPUs {sorted(cpus)}; something else '
        'sets them, such as a control group of this machine'
    )


def _set_cpus_of_thread(pid, tid, cpus):
    try:
        os.sched_setaffinity(tid, cpus)
    except ProcessLookupError:
        return
    except OSError as error:
        raise LabError(
            f'process {pid} cannot use the CPUs {sorted(cpus)}: {error.strerror}'
        ) from error


def _affinities(pid):
    """Return {thread: CPUs} of a process."""
    found = {}
    with contextlib.suppress(OSError):
        for path in pathlib.Path(f'/proc/{pid}/task').iterdir():
            with contextlib.suppress(ProcessLookupError):
                found[int(path.name)] = frozenset(os.sched_getaffinity(int(path.name)))
    return found
