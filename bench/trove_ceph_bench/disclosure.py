# SPDX-License-Identifier: Apache-2.0
"""Describe the host of the load generator and the versions of the programs."""

import importlib.metadata
import os
import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trove_ceph import exceptions
from trove_ceph.host import commands

_PROGRAMS = {
    'sysbench': ('sysbench', '--version'),
    'fio': ('fio', '--version'),
    'qemu': ('qemu-storage-daemon', '--version'),
    'ceph': ('ceph', '--version'),
}


def host(proc: Path = Path('/proc'), run: Callable[..., str] = commands.run) -> dict[str, Any]:
    """Return the facts of this host as JSON data; an unknown fact is None."""
    cpus = (proc / 'cpuinfo').read_text()
    memory = re.search(r'^MemTotal:\s+(\d+) kB', (proc / 'meminfo').read_text(), re.MULTILINE)
    return {
        'cpu': _field(cpus, 'model name'),
        'cores': len(os.sched_getaffinity(0)),
        'memory_mib': int(memory[1]) // 1024 if memory else None,
        'kernel': platform.release(),
        'distribution': _distribution(),
        'virtualisation': _virtualisation(cpus, run),
        'load': list(os.getloadavg()),
        'versions': {
            **{name: _version(command, run) for name, command in _PROGRAMS.items()},
            'python': platform.python_version(),
            'trove_ceph': _own_version(),
        },
    }


def _field(cpuinfo: str, name: str) -> str | None:
    match = re.search(rf'^{name}\s*:\s*(.+)$', cpuinfo, re.MULTILINE)
    return match[1] if match else None


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release()['PRETTY_NAME']
    except OSError:
        return None


def _virtualisation(cpuinfo: str, run: Callable[..., str]) -> str | None:
    """Return the type of this virtual machine; ``none`` for bare metal."""
    try:
        # On bare metal it prints "none" and exits with 1.
        return run('systemd-detect-virt', '--vm')
    except exceptions.StorageCommandError:
        return 'unknown' if 'hypervisor' in (_field(cpuinfo, 'flags') or '').split() else 'none'


def _version(command: tuple[str, ...], run: Callable[..., str]) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    try:
        return run(*command).splitlines()[0]
    except (exceptions.StorageCommandError, IndexError):
        return None


def _own_version() -> str | None:
    try:
        return importlib.metadata.version('trove-ceph')
    except importlib.metadata.PackageNotFoundError:
        return None
