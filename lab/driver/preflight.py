# SPDX-License-Identifier: Apache-2.0
"""Look, before anything is touched, whether this machine can carry the lab."""

import ipaddress
import os
import pathlib
import shutil
import subprocess

from driver import processes
from driver.errors import LabError

SUPPORTED = {('debian', '12'), ('debian', '13'), ('ubuntu', '24.04')}
MIN_MEMORY_GIB = 10
MIN_DISK_GIB = 25
# A lab that is already installed only grows by what its databases hold.
MIN_DISK_INSTALLED_GIB = 3
DEVICES = ('/dev/net/tun', '/dev/loop-control')


def check(settings) -> None:
    """Return if the machine can carry the lab.

    :raises LabError: naming everything that is missing, not just the first.
    """
    # Without root the other checks see too little to be right.
    problems = list(_root(settings)) or [
        text
        for probe in (_distribution, _place, _memory, _disk, _devices, _ports, _addresses)
        for text in probe(settings)
    ]
    if problems:
        raise LabError(
            'this machine cannot carry the lab yet; nothing was '
            'changed:\n' + '\n'.join(f'  - {p}' for p in problems)
        )


def _root(settings):
    if os.geteuid() != 0:
        yield (
            'root is needed (packages, loop devices, bridges): run it as '
            'root, for example: sudo make lab'
        )


def _distribution(settings):
    release = _os_release()
    found = (release.get('ID', '?'), release.get('VERSION_ID', '?'))
    if found not in SUPPORTED:
        names = ', '.join(' '.join(pair) for pair in sorted(SUPPORTED))
        yield (f'distribution {" ".join(found)} is not supported (supported: {names})')


def _os_release(path='/etc/os-release'):
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split('=', 1) for line in lines if '=' in line)
    return {key: value.strip('"') for key, value in pairs}


def _place(settings):
    root = settings.root
    if not root.exists() or settings.mark.exists():
        return
    if not root.is_dir() or any(root.iterdir()):
        yield (
            f'{root} holds something else than a lab; give the lab a '
            'place of its own with TROVE_CEPH_LAB_ROOT'
        )


def _memory(settings):
    # The lab itself holds the memory now, or what a dead supervisord left.
    if processes.supervisord_pid(settings) or processes.lab_pids(settings):
        return
    gib = _available_memory_gib()
    if gib < MIN_MEMORY_GIB:
        yield (f'{gib:.1f} GiB of memory are free, {MIN_MEMORY_GIB} GiB are needed')


def _available_memory_gib():
    for line in pathlib.Path('/proc/meminfo').read_text().splitlines():
        if line.startswith('MemAvailable:'):
            return int(line.split()[1]) / 1024**2
    return 0.0


def _disk(settings):
    installed = (settings.root / 'state' / 'installed').exists()
    needed = MIN_DISK_INSTALLED_GIB if installed else MIN_DISK_GIB
    place = settings.root
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 1024**3
    if free < needed:
        yield (
            f'{free:.1f} GiB of disk are free at {place}, {needed} GiB '
            'are needed; another place can be set with '
            'TROVE_CEPH_LAB_ROOT'
        )


def _devices(settings):
    for path in DEVICES:
        if not os.path.exists(path):
            yield f'{path} is missing: the kernel lacks its driver'


def _ports(settings):
    listeners = processes.listeners()
    for name, port in settings.ports.items():
        pid = listeners.get(port)
        if pid is None or processes.belongs_to_lab(pid, settings):
            continue
        holder = f'process {pid} ({processes.name_of(pid)})' if pid else 'another process'
        yield (
            f'port {port} ({name}) is taken by {holder}; end it or '
            f'set TROVE_CEPH_LAB_PORTS_{name.upper()}'
        )


def _addresses(settings):
    ours = ('br-mgmt', 'br-ex')
    wanted = {
        key: ipaddress.IPv4Network(settings.values[key])
        for key in ('management_cidr', 'public_cidr')
    }
    for device, interface in _interfaces():
        for key, network in wanted.items():
            if device not in ours and interface.network.overlaps(network):
                yield (
                    f'{key} {network} overlaps {interface} of {device}; '
                    f'set TROVE_CEPH_LAB_{key.upper()}'
                )


def _interfaces():
    try:
        out = subprocess.run(
            ['ip', '-o', '-4', 'address'], text=True, capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return
    for line in out.splitlines():
        fields = line.split()
        yield fields[1], ipaddress.IPv4Interface(fields[3])
