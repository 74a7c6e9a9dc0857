# SPDX-License-Identifier: Apache-2.0
"""Check, before anything is changed, whether this machine can run the lab."""

import ipaddress
import os
import pathlib
import shutil
import subprocess
import time

from driver import processes, release
from driver.errors import LabError

SUPPORTED = {('debian', '12'), ('debian', '13'), ('ubuntu', '24.04')}
MIN_MEMORY_GIB = 10
MIN_DISK_GIB = 25
# An installed lab grows only with the data of its databases.
MIN_DISK_INSTALLED_GIB = 3
DEVICES = ('/dev/net/tun', '/dev/loop-control')
# A killed process that used gigabytes of memory closes its sockets seconds later.
PORTS_TIMEOUT_SEC = 30
_POLL_SEC = 0.2


def check(settings, clock=time) -> None:
    """Return if the machine can run the lab.

    After a power cut, dying processes may hold ports of the lab for some
    seconds; the check waits for them, 30 s at most.

    :param clock: has the functions ``monotonic`` and ``sleep`` of ``time``
    :raises LabError: a requirement is missing; the message lists all of them.
    """
    # Without root the other checks cannot see enough.
    problems = list(_root(settings)) or _problems(settings, clock)
    if problems:
        raise LabError(
            'this machine cannot run the lab yet; nothing was '
            'changed:\n' + '\n'.join(f'  - {p}' for p in problems)
        )


def _problems(settings, clock):
    probes = (
        _distribution,
        _mirror,
        _directory,
        release.older_than_databases,
        _hosts,
        _memory,
        _disk,
        _devices,
        _addresses,
    )
    problems = [text for probe in probes for text in probe(settings)]
    # If another requirement is missing, waiting would only delay the message.
    return problems + list(_ports(settings, clock, wait=not problems))


def _hosts(settings):
    if settings.second_host.exists() and not settings.values['second_compute']:
        yield (
            f'second_compute: the lab in {settings.root} has two compute hosts, and its guests '
            'would lose their network; set second_compute = 1, or run make lab-clean first'
        )


def _root(settings):
    if os.geteuid() != 0:
        yield (
            'root is needed (packages, loop devices, bridges): run it as '
            'root, for example: sudo make lab'
        )


def _distribution(settings):
    system = _os_release()
    found = (system.get('ID', '?'), system.get('VERSION_ID', '?'))
    if found not in SUPPORTED:
        names = ', '.join(' '.join(pair) for pair in sorted(SUPPORTED))
        yield (f'distribution {" ".join(found)} is not supported (supported: {names})')


def _mirror(settings):
    if _os_release().get('ID') == 'ubuntu' and not settings.values['debian_mirror']:
        yield (
            'the guest image needs a Debian mirror, and apt of Ubuntu knows none: set '
            'TROVE_CEPH_LAB_DEBIAN_MIRROR, such as http://mirror.example.org/debian'
        )


def _os_release(path='/etc/os-release'):
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split('=', 1) for line in lines if '=' in line)
    return {key: value.strip('"') for key, value in pairs}


def _directory(settings):
    root = settings.root
    if not root.exists() or settings.mark.exists():
        return
    if not root.is_dir() or any(root.iterdir()):
        yield (f'{root} contains other files; set a directory for the lab with TROVE_CEPH_LAB_ROOT')


def _memory(settings):
    # The lab's own processes already use the memory, also after supervisord died.
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
    directory = settings.root
    while not directory.exists():
        directory = directory.parent
    free = shutil.disk_usage(directory).free / 1024**3
    if free < needed:
        yield (
            f'{free:.1f} GiB of disk are free at {directory}, {needed} GiB '
            'are needed; set another directory with TROVE_CEPH_LAB_ROOT'
        )


def _devices(settings):
    for path in DEVICES:
        if not os.path.exists(path):
            yield f'{path} is missing: the kernel lacks its driver'


def _ports(settings, clock, wait):
    taken = _taken_ports(settings)
    if wait and any(map(_may_be_dying, taken.values())):
        taken = _await_ports(settings, clock, taken)
    for name, pid in taken.items():
        holder = f'process {pid} ({processes.name_of(pid)})' if pid else 'another process'
        yield (
            f'port {settings.ports[name]} ({name}) is taken by {holder}; stop it or '
            f'set TROVE_CEPH_LAB_PORTS_{name.upper()}'
        )


def _await_ports(settings, clock, taken):
    """Wait for dying processes, and return the ports that are still taken."""
    names = ', '.join(
        f'{settings.ports[name]} ({name})' for name, pid in taken.items() if _may_be_dying(pid)
    )
    print(
        f'lab: waiting at most {PORTS_TIMEOUT_SEC} s for dying processes that hold port {names} …',
        flush=True,
    )
    deadline = clock.monotonic() + PORTS_TIMEOUT_SEC
    while any(map(_may_be_dying, taken.values())) and clock.monotonic() < deadline:
        clock.sleep(_POLL_SEC)
        taken = _taken_ports(settings)
    return taken


def _taken_ports(settings):
    """Return the lab's ports that foreign processes hold, as {name: process id or 0}."""
    listeners = processes.listeners()
    return {
        name: listeners[port]
        for name, port in settings.ports.items()
        if port in listeners and not processes.belongs_to_lab(listeners[port], settings)
    }


def _may_be_dying(pid):
    """Return whether the holder of a port may be dying; a zombie's sockets have no known holder."""
    return not pid or processes.is_dying(pid)


def _addresses(settings):
    own_bridges = ('br-mgmt', 'br-ex')
    networks = {
        key: ipaddress.IPv4Network(settings.values[key])
        for key in ('management_cidr', 'public_cidr')
    }
    for device, interface in _interfaces():
        for key, network in networks.items():
            if device not in own_bridges and interface.network.overlaps(network):
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
