# SPDX-License-Identifier: Apache-2.0
"""Create and remove a cluster."""

import contextlib
import fcntl
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

from cephcluster import conf, daemons, kernel, keys, layout, loop, monitor, throttle
from cephcluster.errors import ClusterError, DaemonError, UsageError

PROGRAMS = ('ceph-authtool', 'ceph-mon', 'ceph-mgr', 'ceph-osd', 'monmaptool', 'losetup')
# A fresh OSD writes about 100 MB; with less space than this the first writes would fill the disk.
MIN_FREE_BYTES_PER_OSD = 512 * 1024**2
MKFS_TIMEOUT_SEC = 180


@contextlib.contextmanager
def locked(paths):
    """Hold the cluster's lock: allow one change of its configuration or state at a time.

    The root directory itself is locked, so that a refused or undone creation leaves no file.
    """
    descriptor = _lock_directory(paths.root)
    try:
        yield
    finally:
        layout.remove_if_empty(paths.root)
        os.close(descriptor)


def _lock_directory(directory):
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # The previous holder may have removed the directory: then retry with the new one.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(directory)):
                return descriptor
        os.close(descriptor)


def ensure_created(paths, settings, report):
    """Create the cluster, or confirm that it exists with these settings; a new one is stopped.

    An interrupted creation is started over: it cannot contain data yet.

    :param settings: layout.Settings; its fsid is used only for a new cluster.
    :param report: called with one line of progress at a time.
    :returns: whether the cluster was created.
    :raises UsageError: a cluster with other settings exists, or the machine lacks a requirement.
    """
    existing = paths.find()
    if existing and paths.is_complete():
        if different := existing.differences(settings):
            details = ', '.join(
                f'{name} is {getattr(existing, name)}, requested {getattr(settings, name)}'
                for name in different
            )
            raise UsageError(f'the cluster under {paths.root} has other settings: {details}')
        return False
    if existing:
        report('an earlier creation was interrupted: starting over')
        remove(paths, existing)
    _check_machine(paths, settings)
    if kernel.allow_aio():
        report(f'fs.aio-max-nr raised to {kernel.AIO_REQUESTS}')
    paths.save(settings)
    _build(paths, settings, report)
    paths.mark_complete()
    return True


def remove(paths, settings):
    """Stop every process of the cluster, detach its loop devices and delete its files."""
    daemons.stop(settings, grace_sec=5)
    for name in layout.osd_names(settings):
        loop.detach_all(paths.backing_file(name))
        throttle.ensure_no_limit(settings, name)
    paths.remove_data(settings)


def installed_release():
    """Return the major version of the installed Ceph."""
    text = subprocess.run(
        ['ceph-mon', '--version'], capture_output=True, text=True, check=True
    ).stdout
    match = re.search(r'ceph version (\d+)\.', text)
    if not match:
        raise ClusterError(f'cannot read the version of Ceph from {text.strip()!r}')
    return int(match.group(1))


def _check_machine(paths, settings):
    paths.check()
    if os.geteuid() != 0:
        raise UsageError('root is needed for loop devices')
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        raise UsageError(
            f'not installed: {", ".join(missing)} (packages ceph-mon ceph-mgr ceph-osd ceph-common)'
        )
    foreign = {entry.name for entry in paths.root.iterdir()} - {'etc', 'log'}
    if foreign:
        raise UsageError(f'{paths.root} contains other files: {", ".join(sorted(foreign))}')
    needed = MIN_FREE_BYTES_PER_OSD * len(settings.osd_classes)
    free = shutil.disk_usage(paths.root).free
    if free < needed:
        raise UsageError(
            f'{paths.root} has {free // 1024**2} MiB free; {len(settings.osd_classes)} OSDs '
            f'need at least {needed // 1024**2} MiB'
        )
    for port in (settings.mon_port_v2, settings.mon_port_v1):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((settings.mon_addr, port))
            except OSError as error:
                raise UsageError(
                    f'the monitor cannot use {settings.mon_addr}:{port}: {error.strerror}'
                ) from error


def _build(paths, settings, report):
    release = installed_release()
    for directory in (settings.conf_dir, settings.log_dir, paths.data, paths.run):
        Path(directory).mkdir(parents=True, exist_ok=True)
    layout.write_atomically(layout.conf_file(settings), conf.render(settings, paths, release))
    _create_keyrings(paths, settings)
    _create_monitor(paths, settings, release)
    daemons.ensure_started(settings, paths, layout.MON)
    report('monitor created')
    uuids = [layout.new_fsid() for _ in settings.osd_classes]
    with _creating_stores(paths, settings, uuids):
        with monitor.connect(settings) as mon:
            _register_osds(mon, settings, uuids)
        report(f'{len(uuids)} OSDs registered, creating their stores')
    report('OSD stores created')
    daemons.stop(settings)
    _seed_keyring(paths).unlink()


def _create_keyrings(paths, settings):
    """Write every key before the first daemon starts: the monitor reads them all at its mkfs."""
    seed = [keys.section('mon.', keys.generate(), {'mon': 'allow *'})]
    admin = keys.generate()
    seed.append(keys.section('client.admin', admin, keys.ADMIN_CAPS))
    layout.write_atomically(
        layout.keyring_file(settings, 'client.admin'), keys.section('client.admin', admin), 0o640
    )
    for name in (layout.MGR, *layout.osd_names(settings)):
        key = keys.generate()
        caps = keys.MGR_CAPS if name == layout.MGR else keys.OSD_CAPS
        seed.append(keys.section(name, key, caps))
        paths.daemon_dir(name).mkdir()
        layout.write_atomically(paths.daemon_dir(name) / 'keyring', keys.section(name, key), 0o600)
    layout.write_atomically(_seed_keyring(paths), ''.join(seed), 0o600)


def _seed_keyring(paths):
    return paths.data / 'seed.keyring'


def _monmap(paths):
    return paths.data / 'monmap'


def _create_monitor(paths, settings, release):
    paths.daemon_dir(layout.MON).mkdir()
    _run(
        ['monmaptool', '--create', '--clobber', '--fsid', settings.fsid]
        + ['--addv', 'a', conf.mon_host(settings), '--enable-all-features']
        + ['--set-min-mon-release', str(release), str(_monmap(paths))]
    )
    _run(
        [*daemons.command(settings, layout.MON), '--mkfs']
        + ['--monmap', str(_monmap(paths)), '--keyring', str(_seed_keyring(paths))]
    )


def _run(command):
    result = subprocess.run(
        command,
        cwd=daemons.DIRECTORY,
        env=daemons.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        output = (result.stderr + result.stdout).strip().splitlines()[-3:]
        raise DaemonError(f'{command[0]} failed ({result.returncode}): {" / ".join(output)}')


def _register_osds(mon, settings, uuids):
    """Set the id, the position in the CRUSH map and the device class of each OSD."""
    host = socket.gethostname().partition('.')[0]
    weight = settings.osd_gib / 1024  # CRUSH weights are in TiB by convention
    for number, (uuid, device_class) in enumerate(zip(uuids, settings.osd_classes, strict=True)):
        mon.command('osd new', uuid=uuid, id=number)
        mon.command(
            'osd crush add', id=number, weight=weight, args=['root=default', f'host={host}']
        )
        mon.command('osd crush set-device-class', ids=[str(number)], **{'class': device_class})


@contextlib.contextmanager
def _creating_stores(paths, settings, uuids):
    """Run the mkfs of all OSDs in parallel with the body; on exit, all have succeeded.

    :raises DaemonError: one failed.
    """
    running = {}
    try:
        for number, uuid in enumerate(uuids):
            name = f'osd.{number}'
            with paths.backing_file(name).open('wb') as stream:
                stream.truncate(settings.osd_gib * conf.GIB)
            daemons.prepare(settings, paths, name)
            running[name] = _start_mkfs(paths, settings, name, uuid)
        yield
        deadline = time.monotonic() + MKFS_TIMEOUT_SEC
        for name, process in running.items():
            try:
                code = process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                raise DaemonError(
                    f'the mkfs of {name} takes longer than {MKFS_TIMEOUT_SEC} s'
                ) from error
            if code != 0:
                raise DaemonError(
                    f'the mkfs of {name} failed ({code}); see {settings.log_dir}/{name}.log'
                )
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def _start_mkfs(paths, settings, name, uuid):
    command = [*daemons.command(settings, name), '--mkfs', '--osd-uuid', uuid]
    command += ['--monmap', str(_monmap(paths))]
    command += ['--keyring', str(paths.daemon_dir(name) / 'keyring')]
    with open(Path(settings.log_dir) / f'{name}.log', 'a') as log:
        return subprocess.Popen(
            command,
            cwd=daemons.DIRECTORY,
            env=daemons.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
