# SPDX-License-Identifier: Apache-2.0
"""Stop the lab, and give back what it took."""

import os
import pathlib
import shutil
import subprocess
import sys

from driver import processes
from driver.errors import LabError
from driver.settings import LAB_DIR
from driver.up import exclusive

STOP_TIMEOUT_SEC = 60
BRIDGES = ('br-int', 'br-mgmt', 'br-ex', 'ovs-netdev')
QEMU_CONF = pathlib.Path('/etc/libvirt/qemu.conf')
QEMU_CONF_MARK = ('# BEGIN trove-ceph lab', '# END trove-ceph lab')


def down(settings, args) -> int:
    """Stop every process of the lab; all data stays."""
    _need_root()
    with exclusive():
        _stop(settings)
    print('lab: stopped; make lab starts it again')
    return 0


def clean(settings, args) -> int:
    """Stop everything and remove what the lab made, the cache excepted."""
    _need_root()
    with exclusive():
        _stop(settings, undefine=True)
        _destroy_ceph(settings)
        _restore_libvirt()
        if settings.root.exists():
            shutil.rmtree(settings.root)
        if args.cache and settings.cache.exists():
            shutil.rmtree(settings.cache)
    kept = '' if args.cache or not settings.cache.exists() else \
        f'; the cache {settings.cache} stays (remove it with clean --cache)'
    print(f'lab: removed {settings.root}{kept}')
    return 0


def _need_root():
    if os.geteuid() != 0:
        raise LabError('root is needed to stop the lab')


def _stop(settings, undefine=False):
    # Nova must not see its guests go, or it records them as switched off and
    # does not start them again with the host.
    _end_named(settings, 'nova-compute')
    for domain in _domains(settings, '--state-running',
                           '--state-paused'):
        _virsh('destroy', domain)
    if undefine:
        for domain in _domains(settings, '--all'):
            _virsh('undefine', domain)
    pid = processes.supervisord_pid(settings)
    if pid:
        processes.end([pid], STOP_TIMEOUT_SEC)
    processes.end(processes.lab_pids(settings), 10)
    _remove_bridges()


def _end_named(settings, fragment):
    control = settings.root / 'ansible' / 'bin' / 'supervisorctl'
    if processes.supervisord_pid(settings) and control.exists():
        subprocess.run([control, '-c',
                        settings.root / 'etc' / 'supervisord.conf',
                        'stop', fragment], capture_output=True)


def _domains(settings, *options):
    # Another Nova on this machine names its guests alike, but keeps their
    # consoles elsewhere.
    out = _virsh('list', '--name', *options)
    return [name for name in out.split() if name.startswith('instance-')
            and f'{settings.root}/' in _virsh('dumpxml', name)]


def _virsh(*arguments):
    if not shutil.which('virsh') or \
            not os.path.exists('/run/libvirt/libvirt-sock'):
        return ''
    done = subprocess.run(['virsh', '-q', *arguments], text=True,
                          capture_output=True, timeout=60)
    return done.stdout


def _remove_bridges():
    for device in BRIDGES:
        if os.path.exists(f'/sys/class/net/{device}'):
            subprocess.run(['ip', 'link', 'delete', device],
                           capture_output=True)


def _destroy_ceph(settings):
    home = settings.root / 'state' / 'ceph'
    if home.exists():
        done = subprocess.run([LAB_DIR / 'bin' / 'ceph-cluster', '--root',
                               home, 'destroy'], text=True,
                              capture_output=True)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            raise LabError(f'ceph-cluster could not remove {home}')


def _restore_libvirt():
    if not QEMU_CONF.exists():
        return
    text = QEMU_CONF.read_text()
    begin, end = QEMU_CONF_MARK
    if begin in text and end in text:
        before, rest = text.split(begin, 1)
        QEMU_CONF.write_text(before + rest.split(end, 1)[1].lstrip('\n'))
