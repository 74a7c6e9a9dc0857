# SPDX-License-Identifier: Apache-2.0
"""Stop the lab, and remove everything that it created."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from driver import machine_profile, processes, second_compute
from driver.errors import LabError
from driver.settings import LAB_DIR
from driver.up import exclusive

STOP_TIMEOUT_SEC = 60
GUEST_TIMEOUT_SEC = 15
BRIDGES = ('br-int', 'br-mgmt', 'br-ex', 'ovs-netdev')
LIBVIRT = pathlib.Path('/etc/libvirt')
# As in group_vars: libvirt's name for the key of client.cinder.
SECRET_UUID = '8f2a1c36-6d0e-4c39-9a41-5d1c7f0b7e52'
# Runs in the lab's own environment. Resources on a clone must be released in the right order.
CLEAR_INSPECTIONS = (
    'import pathlib, sys; from trove_ceph.host import workspace; '
    'from trove_ceph.verification import on_host; '
    'workspace.clear_stale(on_host.PREFIX, pathlib.Path(sys.argv[1]))'
)
QEMU_CONF_MARK = ('# BEGIN trove-ceph lab', '# END trove-ceph lab')


def down(settings, args) -> int:
    """Stop every process of the lab; all data stays."""
    _require_root()
    with exclusive():
        _stop(settings)
    print('lab: stopped; make lab starts it again')
    return 0


def clean(settings, args) -> int:
    """Stop everything and remove all files of the lab.

    The results of benchmarks are removed only with ``--results``, the cache only with ``--cache``.
    """
    _require_root()
    _require_own(settings.root, settings.mark)
    if args.cache:
        _require_own(settings.cache, settings.cache / 'lock')
    with exclusive():
        _stop(settings)
        _destroy_ceph(settings)
        _restore_libvirt(settings)
        _remove(settings.root, settings.mark, None if args.results else settings.results)
        if args.cache:
            _remove(settings.cache, settings.cache / 'lock')
    print(f'lab: removed the files in {settings.root}')
    for name, path in (('results', settings.results), ('cache', settings.cache)):
        if path.exists():
            print(f'lab: {path} stays; lab/bin/lab clean --{name} removes it')
    return 0


def _require_root():
    if os.geteuid() != 0:
        raise LabError('root is needed to stop the lab')


def _require_own(folder, mark):
    if not folder.exists() or mark.exists():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise LabError(
            f'{folder} has no file {mark.name}, so it does not belong to the lab; '
            'nothing was removed'
        )


def _remove(folder, mark, kept=None):
    """Remove a directory; with a path that is kept, its directory and the mark stay too."""
    if not folder.exists():
        return
    # The mark is removed last, so that an interrupted removal can be repeated.
    for path in folder.iterdir():
        if path in (mark, kept):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    if kept is None or not kept.exists():
        mark.unlink(missing_ok=True)
        folder.rmdir()


def _stop(settings):
    second_compute.cut_power(settings)
    # Nova must not see its guests stop, or it records them as switched off and
    # does not start them again with the host.
    processes.stop_program(settings, 'nova-compute')
    processes.terminate(
        [
            pid
            for pid in processes.lab_pids(settings)
            if processes.name_of(pid).startswith('nova-compute')
        ],
        STOP_TIMEOUT_SEC,
    )
    devices = _devices(settings)
    processes.terminate(processes.guests(settings), GUEST_TIMEOUT_SEC)
    pid = processes.supervisord_pid(settings)
    if pid:
        processes.terminate([pid], STOP_TIMEOUT_SEC)
    processes.terminate(processes.lab_pids(settings), GUEST_TIMEOUT_SEC)
    _clear_inspections(settings)
    machine_profile.restore_kernel(settings)
    for device in devices:
        if os.path.exists(f'/sys/class/net/{device}'):
            subprocess.run(['ip', 'link', 'delete', device], capture_output=True)


def _clear_inspections(settings):
    """Remove mounts, loop devices and servers of interrupted inspections."""
    directory = settings.root / 'run' / 'verification'
    python = settings.root / 'venv' / 'bin' / 'python'
    if python.exists() and directory.exists() and any(directory.iterdir()):
        subprocess.run([python, '-W', 'ignore', '-c', CLEAR_INSPECTIONS, directory], check=False)


def _devices(settings):
    """Return the bridges, and the guests' taps in the switch.

    They are read from its database file, because the switch may be dead
    already. A lab without that file has no bridges: bridges of these names
    belong to something else.
    """
    database = settings.root / 'state' / 'ovn' / 'switch.db'
    if not database.exists():
        return []
    return [*_taps(database), *BRIDGES]


def _taps(database):
    if not shutil.which('ovsdb-tool'):
        return []
    query = json.dumps(
        ['Open_vSwitch', {'op': 'select', 'table': 'Interface', 'columns': ['name'], 'where': []}]
    )
    done = subprocess.run(['ovsdb-tool', 'query', database, query], text=True, capture_output=True)
    if done.returncode:
        return []
    names = [row['name'] for row in json.loads(done.stdout)[0]['rows']]
    return [name for name in names if name.startswith('tap')]


def _destroy_ceph(settings):
    home = settings.root / 'state' / 'ceph'
    if home.exists():
        done = subprocess.run(
            [LAB_DIR / 'bin' / 'ceph-cluster', '--root', home, 'destroy'],
            text=True,
            capture_output=True,
        )
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            raise LabError(f'ceph-cluster could not remove {home}')


def _restore_libvirt(settings):
    """Remove the lab's block, guests and key from libvirt's configuration."""
    for definition in (LIBVIRT / 'qemu').glob('instance-*.xml'):
        if processes.names_path(definition.read_text(), settings.root):
            definition.unlink()
    for secret in (LIBVIRT / 'secrets').glob(f'{SECRET_UUID}.*'):
        secret.unlink()
    conf = LIBVIRT / 'qemu.conf'
    if not conf.exists():
        return
    text = conf.read_text()
    begin, end = QEMU_CONF_MARK
    if begin in text and end in text:
        before, rest = text.split(begin, 1)
        conf.write_text(before + rest.split(end, 1)[1].lstrip('\n'))
