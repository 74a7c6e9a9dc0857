# SPDX-License-Identifier: Apache-2.0
"""The processes of a cluster: found by their command lines, never by a recorded pid alone."""

import contextlib
import dataclasses
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from cephcluster import layout, loop, throttle
from cephcluster.errors import DaemonError, UsageError

PROC = Path('/proc')
PROGRAMS = {'mon': 'ceph-mon', 'mgr': 'ceph-mgr', 'osd': 'ceph-osd'}
# A killed process ends only when the disk has completed its requests.
KILL_TIMEOUT_SEC = 60
# Where services of systemd start, too. Debian's Ceph 18 and 20 look for the object classes of OSDs
# in lib/x86_64-linux-gnu/rados-classes below the working directory.
DIRECTORY = '/'


@dataclasses.dataclass(frozen=True)
class Process:
    """A running daemon (or its mkfs) of this cluster."""

    pid: int
    name: str


def command(settings, name):
    """Return the command line of a daemon; find() recognises a daemon by it."""
    kind, _, ident = name.partition('.')
    return [PROGRAMS[kind], '-i', ident, '-c', str(layout.conf_file(settings))]


def environment():
    # tcmalloc's default of 128 MiB of thread caches is more than a small OSD needs in total.
    return os.environ | {'TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES': str(32 * 1024**2)}


def find(settings, name=None):
    """List the processes that run a daemon of this cluster.

    A pid file may outlive its process and name a foreign one after a power cut, so the command line
    decides: program, id and this cluster's own ceph.conf.

    :param name: one daemon; without it, all processes that use this ceph.conf.
    """
    conf = str(layout.conf_file(settings))
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        running = _recognise(entry, conf)
        if running and name in (None, running):
            found.append(Process(int(entry.name), running))
    return found


def _recognise(entry, conf):
    try:
        arguments = (entry / 'cmdline').read_bytes().decode(errors='replace').split('\0')
    except OSError:
        return None
    kinds = {program: kind for kind, program in PROGRAMS.items()}
    kind = kinds.get(os.path.basename(arguments[0]))
    if kind is None or _value_of(arguments, '-c') != conf:
        return None
    return f'{kind}.{_value_of(arguments, "-i")}'


def _value_of(arguments, flag):
    if flag in arguments[:-1]:
        return arguments[arguments.index(flag) + 1]
    return None


def stop(settings, names=None, grace_sec=20):
    """Stop daemons and wait until they are gone: SIGTERM first, SIGKILL after the grace period.

    Clients of the monitor stop first, so that the monitor reports nothing as down.

    :returns: the names of the daemons that were running.
    :raises DaemonError: a process survived SIGKILL.
    """
    order = ('osd', 'mgr', 'mon')
    stopped = []
    for kind in order:
        processes = [
            process
            for process in find(settings)
            if process.name.startswith(kind + '.') and (names is None or process.name in names)
        ]
        left = _signal_and_wait(settings, processes, signal.SIGTERM, grace_sec)
        left = _signal_and_wait(settings, left, signal.SIGKILL, KILL_TIMEOUT_SEC)
        if left:
            raise DaemonError(f'cannot be killed: {", ".join(process.name for process in left)}')
        stopped += [process.name for process in processes]
    return stopped


def _signal_and_wait(settings, processes, number, timeout_sec):
    """Signal processes through pidfds, which cannot hit a reused pid; return the survivors."""
    handles = {}
    for process in processes:
        try:
            handle = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        # The pid may have been reused before the handle was opened: check again; now it cannot be.
        if process in find(settings, process.name):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            handles[handle] = process
        else:
            os.close(handle)
    deadline = time.monotonic() + timeout_sec
    waiting = set(handles)
    while waiting and (left_sec := deadline - time.monotonic()) > 0:
        # A pidfd becomes readable when its process ends.
        waiting.difference_update(select.select(waiting, [], [], left_sec)[0])
    for handle in handles:
        os.close(handle)
    return [handles[handle] for handle in waiting]


def prepare(settings, paths, name):
    """Prepare the requirements of a daemon: directories and, for an OSD, the loop device."""
    paths.run.mkdir(parents=True, exist_ok=True)
    Path(settings.log_dir).mkdir(parents=True, exist_ok=True)
    (paths.data / 'crash').mkdir(parents=True, exist_ok=True)
    if name.startswith('osd.'):
        device = loop.ensure_attached(paths.backing_file(name))
        link = paths.daemon_dir(name) / 'block'
        if not link.is_symlink() or os.readlink(link) != device:
            link.unlink(missing_ok=True)
            link.symlink_to(device)


def execute(settings, paths, name, device_iops=0, cpus=(), memory_target_mib=0):
    """Replace this process by the daemon, in the foreground; return only by an exception.

    :param device_iops: the most reads, and the most writes, per second on an OSD's device; 0: no
        limit.
    :param cpus: the CPUs that the daemon may use; none: those of this process.
    :param memory_target_mib: the memory that an OSD tries to keep to, by caches that grow and
        shrink; 0: a small cache of a fixed size.
    :raises UsageError: the cluster has no such daemon, or a limit cannot be set.
    :raises DaemonError: the daemon is running already.
    """
    if name not in layout.daemon_names(settings):
        known = ', '.join(layout.daemon_names(settings))
        raise UsageError(f'no daemon {name} in this cluster; it has {known}')
    if running := find(settings, name):
        raise DaemonError(f'{name} runs already, as pid {running[0].pid}')
    if device_iops and not name.startswith('osd.'):
        raise UsageError(f'{name} has no device; --device-iops is for an OSD')
    if memory_target_mib and not name.startswith('osd.'):
        raise UsageError(f'{name} has no caches; --memory-target-mib is for an OSD')
    if cpus:
        _use_cpus(name, cpus)
    prepare(settings, paths, name)
    throttle.ensure_no_limit(settings, name)
    if device_iops:
        throttle.limit(settings, name, paths.daemon_dir(name) / 'block', device_iops)
    arguments = [*command(settings, name), '-f', *_memory_options(memory_target_mib)]
    os.chdir(DIRECTORY)
    os.execvpe(arguments[0], arguments, environment())


def _use_cpus(name, cpus):
    """Restrict this process, and what it becomes by exec, to some CPUs."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        listed = ','.join(map(str, sorted(cpus)))
        raise UsageError(
            f'{name} cannot run on the CPUs {listed}: {error.strerror}; --cpus must name CPUs of '
            'this machine, which are numbered from 0'
        ) from error


def _memory_options(target_mib):
    """Return options for an OSD that precede those of ceph.conf."""
    if not target_mib:
        return []
    return ['--bluestore_cache_autotune=true', f'--osd_memory_target={target_mib * 1024**2}']


def ensure_started(settings, paths, name):
    """Start a daemon in the background unless it runs.

    :returns: whether it was started.
    :raises DaemonError: it ended with an error before it went to the background.
    """
    if find(settings, name):
        return False
    prepare(settings, paths, name)
    result = subprocess.run(
        command(settings, name),
        cwd=DIRECTORY,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    if result.returncode != 0:
        if find(settings, name):
            # Another process started it in the meantime; it holds the lock of its pid file.
            return False
        detail = (result.stderr or result.stdout).strip().splitlines()[-3:]
        raise DaemonError(
            f'{name} did not start (exit {result.returncode}): {" / ".join(detail)}; '
            f'see {settings.log_dir}/{name}.log'
        )
    return True


def query(paths, name, prefix):
    """Query a daemon over its admin socket; return None while it does not answer.

    The protocol is a JSON command ended by a zero byte, answered by a 32-bit length and the text.
    """
    request = json.dumps({'prefix': prefix, 'format': 'json'}).encode() + b'\0'
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(str(paths.admin_socket(name)))
            connection.sendall(request)
            with connection.makefile('rb') as stream:
                (length,) = struct.unpack('>I', stream.read(4))
                return json.loads(stream.read(length))
    except (OSError, struct.error, ValueError):
        return None
