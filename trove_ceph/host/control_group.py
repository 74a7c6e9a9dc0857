# SPDX-License-Identifier: Apache-2.0
"""Limit the memory and the number of a group of processes and their children."""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

PREFIX = 'trove-ceph-inspection'
ROOT = Path('/sys/fs/cgroup')
SELF = Path('/proc/self/cgroup')
PROC = Path('/proc')
_LEAVE_SEC = 5.0
_POLL_SEC = 0.05
# Limit files by controller, of cgroup version 1 and 2; version 2 also disables swap.
_V1 = {'memory': 'memory.limit_in_bytes', 'pids': 'pids.max'}
_V2 = {'memory': 'memory.max', 'pids': 'pids.max'}
_JOIN = 'for group in $GROUPS_TO_JOIN; do echo $$ > "$group/cgroup.procs"; done; exec "$@"'


class ControlGroup:
    """Create a control group while entered; do without it if the host does not allow any.

    :param name: unique among the groups of this process
    :param memory_bytes: memory of all processes, files in a tmpfs included; the kernel kills a
        process beyond it
    :param tasks: number of processes and threads
    """

    def __init__(
        self, name: str, memory_bytes: int, tasks: int, root: Path = ROOT, own: Path = SELF
    ):
        self._name = f'{PREFIX}.{os.getpid()}.{name}'
        self._limits = {'memory': memory_bytes, 'pids': tasks}
        self._root = root
        self._own = own
        self._groups: list[Path] = []

    @property
    def is_made(self) -> bool:
        return bool(self._groups)

    def __enter__(self) -> 'ControlGroup':
        try:
            if (self._root / 'cgroup.controllers').exists():
                self._make_v2()
            else:
                self._make_v1()
        except OSError as error:
            LOG.warning(
                'Cannot create a control group; limits apply to each process alone: %s', error
            )
            self._remove()
        return self

    def __exit__(self, *exception: object) -> None:
        self._remove()

    def prefix(self) -> list[str]:
        """Return the command prefix that puts a command into the group."""
        if not self._groups:
            return []
        groups = ' '.join(map(str, self._groups))
        return ['env', f'GROUPS_TO_JOIN={groups}', 'sh', '-ec', _JOIN, 'sh']

    def _make_v1(self) -> None:
        paths = _own_paths(self._own)
        for controller, file in _V1.items():
            parent = self._root / controller / paths.get(controller, '').lstrip('/')
            # A container may not see its own group.
            if not parent.is_dir():
                parent = self._root / controller
            self._add(parent / self._name, {file: self._limits[controller]})

    def _make_v2(self) -> None:
        # A group with processes cannot have groups with limits below it, so create it beside the
        # group of the service.
        parent = self._root / PREFIX
        controllers = ' '.join(f'+{controller}' for controller in _V2)
        (self._root / 'cgroup.subtree_control').write_text(controllers)
        parent.mkdir(exist_ok=True)
        (parent / 'cgroup.subtree_control').write_text(controllers)
        limits = {file: self._limits[controller] for controller, file in _V2.items()}
        self._add(parent / self._name, limits)
        with contextlib.suppress(OSError):
            (parent / self._name / 'memory.swap.max').write_text('0')

    def _add(self, group: Path, limits: dict[str, int]) -> None:
        group.mkdir()
        self._groups.append(group)
        for file, limit in limits.items():
            (group / file).write_text(str(limit))

    def _remove(self) -> None:
        deadline = time.monotonic() + _LEAVE_SEC
        while self._groups:
            try:
                self._groups[-1].rmdir()
            except OSError as error:
                # Killed processes may not have ended yet.
                if time.monotonic() < deadline:
                    time.sleep(_POLL_SEC)
                    continue
                LOG.warning('Cannot remove control group %s: %s', self._groups[-1], error)
            self._groups.pop()


def clear_killed(root: Path = ROOT, own: Path = SELF) -> None:
    """Remove the empty groups that killed processes of this host left."""
    paths = _own_paths(own)
    parents = [root / PREFIX]
    for controller in _V1:
        parents.append(root / controller)
        parents.append(root / controller / paths.get(controller, '').lstrip('/'))
    for parent in parents:
        for group in parent.glob(f'{PREFIX}.*'):
            owner = group.name.removeprefix(f'{PREFIX}.').partition('.')[0]
            if not (PROC / owner).exists():
                with contextlib.suppress(OSError):
                    group.rmdir()


def _own_paths(own: Path) -> dict[str, str]:
    paths: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(':', 2)
            paths |= dict.fromkeys(_named(controllers), path)
    return paths


def _named(controllers: str) -> Sequence[str]:
    return [one for one in controllers.split(',') if one]
