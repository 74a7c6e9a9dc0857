# SPDX-License-Identifier: Apache-2.0
"""The command line."""

import argparse
import ipaddress
import json
import os
import re
import sys
import time

from cephcluster import create, daemons, layout, state
from cephcluster.errors import ClusterError, UsageError

#: Ceph accepts no smaller osd_memory_target.
LEAST_TARGET_MIB = 896

OVERVIEW = """\
A real Ceph cluster on this machine, all of it under one directory: one monitor (mon.a), one
manager (mgr.x) and any number of BlueStore OSDs, each on a loop device over a sparse file that
shrinks when data is deleted. Needs root, the packages ceph-mon ceph-mgr ceph-osd ceph-base
ceph-common python3-rados python3-rbd, and about 100 MB of memory per OSD.
"""

EXAMPLES = """\
examples:
  Create, start, inspect and destroy a cluster with OSDs of two classes:

    ceph-cluster --root /srv/ceph create --osd nvme=3 --osd hdd=3 --osd-gib 12
    ceph-cluster --root /srv/ceph start
    ceph -c /srv/ceph/etc/ceph.conf status
    ceph-cluster --root /srv/ceph destroy

  A second cluster needs other ports:

    ceph-cluster --root /srv/other create --osd ssd=1 --osd-gib 5 --mon-ports 3301,6790

exit status: 0 done, 1 failed or (status) unhealthy, 2 wrong request.
"""


def build_parser():
    parser = argparse.ArgumentParser(
        prog='ceph-cluster',
        description=OVERVIEW,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('--root', required=True, metavar='DIR', help='the directory of the cluster')
    verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
    _add_create(verbs)
    run = verbs.add_parser('run', help='become one daemon, in the foreground (for a supervisor)')
    run.add_argument('daemon', metavar='mon.a|mgr.x|osd.N')
    run.add_argument(
        '--device-iops',
        type=_positive,
        default=0,
        metavar='N',
        help="limit an OSD's device to N reads and N writes per second, as a slow disk; default: "
        'no limit',
    )
    run.add_argument(
        '--cpus',
        type=_cpus,
        default=frozenset(),
        metavar='N,N…',
        help='the CPUs that the daemon may use; default: all',
    )
    run.add_argument(
        '--memory-target-mib',
        type=_memory_target,
        default=0,
        metavar='N',
        help=f'the memory that an OSD tries to keep to, {LEAST_TARGET_MIB} MiB at least; default: '
        'a small cache of a fixed size',
    )
    run.set_defaults(act=_run)
    start = verbs.add_parser('start', help='start every daemon; returns when all OSDs are active')
    start.add_argument('--timeout', type=int, default=60, metavar='SEC')
    start.set_defaults(act=_start)
    stop = verbs.add_parser('stop', help='stop every daemon; data and loop devices stay')
    stop.set_defaults(act=_stop)
    status = verbs.add_parser('status', help='health, daemons, OSDs and pools')
    status.add_argument('--format', choices=('text', 'json'), default='text')
    status.set_defaults(act=_status)
    destroy = verbs.add_parser('destroy', help='stop it, detach its loop devices, DELETE its data')
    destroy.set_defaults(act=_destroy)
    return parser


def _add_create(verbs):
    parser = verbs.add_parser(
        'create',
        help='create a cluster; it is stopped afterwards',
        description='Repeating it changes nothing; an interrupted creation is started over.',
    )
    parser.add_argument(
        '--osd',
        action='append',
        required=True,
        type=_osd_group,
        metavar='CLASS=COUNT',
        help='the number of OSDs of a device class; may be repeated',
    )
    parser.add_argument('--osd-gib', type=_positive, default=12, help='size of each OSD in GiB')
    parser.add_argument('--mon-addr', type=_address, default='127.0.0.1', metavar='IPV4')
    parser.add_argument('--mon-ports', type=_ports, default=(3300, 6789), metavar='V2,V1')
    parser.add_argument('--log-dir', metavar='DIR', help='default: ROOT/log')
    parser.add_argument('--conf-dir', metavar='DIR', help='default: ROOT/etc')
    parser.set_defaults(act=_create)


def _osd_group(text):
    match = re.fullmatch(r'([A-Za-z][A-Za-z0-9_-]*)=(\d+)', text)
    if not match or int(match.group(2)) < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is not CLASS=COUNT, such as nvme=3')
    return (match.group(1),) * int(match.group(2))


def _positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is not a positive number')
    return int(text)


def _cpus(text):
    parts = text.split(',')
    if not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f'{text!r} is not a list of CPUs, such as 0,1')
    return frozenset(map(int, parts))


def _memory_target(text):
    mib = _positive(text)
    if mib < LEAST_TARGET_MIB:
        raise argparse.ArgumentTypeError(f'{text} MiB is less than {LEAST_TARGET_MIB} MiB')
    return mib


def _address(text):
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _ports(text):
    ports = tuple(int(part) for part in text.split(',') if part.isdigit())
    if len(ports) != 2 or ports[0] == ports[1] or not all(0 < port < 65536 for port in ports):
        raise argparse.ArgumentTypeError(f'{text!r} is not two ports, such as 3300,6789')
    return ports


class Progress:
    """Print lines of progress to standard error with the seconds since the start."""

    def __init__(self):
        self._began = time.monotonic()

    def __call__(self, text):
        print(f'{time.monotonic() - self._began:6.1f} s  {text}', file=sys.stderr, flush=True)


def _create(arguments, paths, report):
    settings = layout.Settings(
        fsid=layout.new_fsid(),
        mon_addr=arguments.mon_addr,
        mon_port_v2=arguments.mon_ports[0],
        mon_port_v1=arguments.mon_ports[1],
        osd_classes=tuple(name for group in arguments.osd for name in group),
        osd_gib=arguments.osd_gib,
        conf_dir=os.path.abspath(arguments.conf_dir or paths.root / 'etc'),
        log_dir=os.path.abspath(arguments.log_dir or paths.root / 'log'),
    )
    with create.locked(paths):
        created = create.ensure_created(paths, settings, report)
    report('cluster created' if created else 'the cluster exists already; nothing was changed')
    return 0


def _run(arguments, paths, report):
    daemons.execute(
        paths.get(),
        paths,
        arguments.daemon,
        device_iops=arguments.device_iops,
        cpus=arguments.cpus,
        memory_target_mib=arguments.memory_target_mib,
    )
    return 1


def _start(arguments, paths, report):
    settings = paths.get()
    with create.locked(paths):
        started = state.ensure_running(paths, settings, arguments.timeout)
    report(f'started {", ".join(started)}' if started else 'all daemons run already')
    return 0


def _stop(arguments, paths, report):
    settings = paths.get()
    with create.locked(paths):
        stopped = daemons.stop(settings)
    report(f'stopped {", ".join(stopped)}' if stopped else 'no daemon was running')
    return 0


def _status(arguments, paths, report):
    document = state.describe(paths, paths.get())
    print(json.dumps(document, indent=2) if arguments.format == 'json' else state.as_text(document))
    return 0 if state.is_healthy(document) else 1


def _destroy(arguments, paths, report):
    settings = paths.find()
    if settings is None:
        report(f'there is no cluster under {paths.root}')
        return 0
    with create.locked(paths):
        create.remove(paths, settings)
    report('cluster destroyed')
    return 0


def main(argv=None):
    """Run one verb, and return the exit status described in the help."""
    arguments = build_parser().parse_args(argv)
    try:
        return arguments.act(arguments, layout.Layout(arguments.root), Progress())
    except UsageError as error:
        print(f'ceph-cluster: {error}', file=sys.stderr)
        return 2
    except ClusterError as error:
        print(f'ceph-cluster: {error}', file=sys.stderr)
        return 1
