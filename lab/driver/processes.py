# SPDX-License-Identifier: Apache-2.0
"""The processes of this machine, and which of them belong to the lab."""

import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Callable

_LISTEN = '0A'


def supervisord_pid(settings) -> int | None:
    """Return the process id of the lab's supervisord if it is alive."""
    try:
        pid = int((settings.root / 'run' / 'supervisord.pid').read_text())
    except (OSError, ValueError):
        return None
    # After a reboot another supervisord may have the process id.
    is_own = f'{settings.root}/etc/supervisord.conf' in _cmdline(pid)
    return pid if is_own else None


def stop_program(settings, program: str) -> None:
    """Have the lab's supervisord stop a program, if it is alive."""
    control = settings.root / 'ansible' / 'bin' / 'supervisorctl'
    if supervisord_pid(settings) and control.exists():
        subprocess.run(
            [control, '-c', settings.root / 'etc' / 'supervisord.conf', 'stop', program],
            capture_output=True,
        )


def listeners() -> dict[int, int]:
    """Return {TCP port: process id} of listening sockets (0: unknown)."""
    inodes = {}
    for table in ('/proc/net/tcp', '/proc/net/tcp6'):
        try:
            lines = pathlib.Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTEN:
                inodes[fields[9]] = int(fields[1].rsplit(':', 1)[1], 16)
    found = dict.fromkeys(inodes.values(), 0)
    for pid in pids():
        for inode in _socket_inodes(pid):
            if inode in inodes:
                found[inodes[inode]] = pid
    return found


def belongs_to_lab(pid: int, settings) -> bool:
    """Return whether this lab started a process.

    Supervisor sets its socket in the environment of its children; their own
    children inherit it, and it outlives supervisord. A program that sets a
    title of its own has overwritten its environment there, but its title
    has, in brackets, the path that it was started from. Memcached changes
    its user, after which some kernels and containers hide its environment
    even from root; its command line remains.
    """
    environ = _environ(pid)
    if environ:
        mark = f'SUPERVISOR_SERVER_URL=unix://{settings.root}/run/'
        if mark.encode() in environ:
            return True
    elif _cmdline(pid).rstrip() == _memcached_command(settings):
        return True
    # Not anywhere in the command line: a process that reads a file there, or
    # a client from there, is not part of the lab.
    title = rf'[\w-]+: .*[\[(]{re.escape(str(settings.root))}/venv/bin/'
    return re.match(title, _cmdline(pid)) is not None


def is_dying(pid: int) -> bool:
    """Return whether a process is gone or dying.

    The kernel frees the memory of a dying process, and with it the
    environment and the command line, before it closes the sockets.
    """
    fields = _stat(pid)
    return not fields or fields[0] in 'ZX' or not (_environ(pid) or _cmdline(pid))


def _memcached_command(settings):
    """Return the command from roles/base/vars/main.yml; it has no path of this lab."""
    port = settings.ports['memcached']
    return f'/usr/bin/memcached -u memcache -l 127.0.0.1 -p {port} -m 64'


def lab_pids(settings) -> list[int]:
    """Return the processes that this lab started and their descendants.

    Supervisord itself, the guests, which belong to libvirt, and the caller
    with its ancestors are excluded.
    """
    parents = {pid: _parent(pid) for pid in pids()}
    own = _lineage(os.getpid(), parents)
    found = {pid for pid in parents.keys() - own if belongs_to_lab(pid, settings)}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return sorted(found)
        found |= more


def guests(settings) -> dict[int, str]:
    """Return {process id: libvirt's name} of this lab's running guests."""
    found = {}
    for pid in pids():
        if not name_of(pid).startswith('qemu-system'):
            continue
        # Another Nova on this machine uses the same names, but other paths
        # for consoles.
        command = _cmdline(pid)
        name = re.search(r'guest=(instance-\w+)', command)
        if name and names_path(command, settings.root):
            found[pid] = name[1]
    return found


def of_second_host(settings) -> list[int]:
    """Return the processes of the second compute host, its guests included.

    They share a PID namespace, whose first process is the host's supervisord.
    """
    conf = str(settings.second_host / 'etc' / 'supervisord.conf')
    own = pid_namespace(os.getpid())
    hosts = {pid_namespace(pid) for pid in pids() if conf in _cmdline(pid)} - {own, None}
    return [pid for pid in pids() if pid_namespace(pid) in hosts] if hosts else []


def pid_namespace(pid: int) -> str | None:
    """Return the PID namespace of a process, or None if it is gone."""
    try:
        return os.readlink(f'/proc/{pid}/ns/pid')
    except OSError:
        return None


def names_path(text: str, root: pathlib.Path) -> bool:
    """Return whether a text contains a path below the root."""
    return re.search(rf'(?<![\w./-]){re.escape(str(root))}/', text) is not None


def pids():
    return [int(name) for name in os.listdir('/proc') if name.isdigit()]


def name_of(pid: int) -> str:
    """Return the program's name, or ``?`` if the process is gone."""
    try:
        return pathlib.Path(f'/proc/{pid}/comm').read_text().strip()
    except OSError:
        return '?'


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB, 0 if it is gone."""
    try:
        fields = pathlib.Path(f'/proc/{pid}/statm').read_text().split()
    except OSError:
        return 0.0
    return int(fields[1]) * os.sysconf('SC_PAGE_SIZE') / 1024**2


def terminate(pid_list, timeout_sec: float) -> list[int]:
    """Terminate processes: SIGTERM, then SIGKILL at the deadline.

    :returns: the processes that needed SIGKILL.
    """
    for pid in pid_list:
        send(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_sec
    left = list(pid_list)
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = [pid for pid in left if _alive(pid)]
    for pid in left:
        send(pid, signal.SIGKILL)
    return left


def _alive(pid):
    fields = _stat(pid)
    return bool(fields) and fields[0] != 'Z'


def _parent(pid):
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _lineage(pid, parents):
    found = set()
    while pid and pid not in found:
        found.add(pid)
        pid = parents.get(pid)
    return found


def _stat(pid):
    """Return the fields after the name in a process's stat: state, parent …"""
    try:
        stat = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return []
    return stat.rsplit(')', 1)[1].split()


def freeze(find: Callable[[], list[int]]) -> None:
    """Stop processes, also those that they start meanwhile."""
    stopped: set[int] = set()
    while fresh := set(find()) - stopped:
        for pid in fresh:
            send(pid, signal.SIGSTOP)
        stopped |= fresh


def resume(pid_list) -> None:
    """Continue stopped processes."""
    for pid in pid_list:
        send(pid, signal.SIGCONT)


def send(pid: int, number: int) -> None:
    """Send a signal to a process unless it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _environ(pid):
    """Return the environment as it is in memory, empty if it cannot be read."""
    try:
        return pathlib.Path(f'/proc/{pid}/environ').read_bytes()
    except OSError:
        return b''


def _cmdline(pid):
    try:
        raw = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()
    except OSError:
        return ''
    return raw.replace(b'\0', b' ').decode(errors='replace')


def _socket_inodes(pid):
    folder = f'/proc/{pid}/fd'
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f'{folder}/{name}')
        except OSError:
            continue
        if target.startswith('socket:['):
            yield target[8:-1]
