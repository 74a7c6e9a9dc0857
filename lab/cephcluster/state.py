# SPDX-License-Identifier: Apache-2.0
"""Start a whole cluster, and report its state."""

import time
from concurrent.futures import ThreadPoolExecutor

from cephcluster import daemons, layout, monitor
from cephcluster.errors import ClusterError, DaemonError

POLL_SEC = 0.1


def ensure_running(paths, settings, timeout_sec=60):
    """Start the daemons that do not run and wait until every OSD is active.

    After a power cut the monitor still lists the earlier OSDs as up, so each OSD is queried itself.

    :returns: the names of the daemons that were started.
    :raises DaemonError: a daemon ended, or an OSD did not become active in time.
    """
    started = _start_all(paths, settings)
    deadline = time.monotonic() + timeout_sec
    pending = layout.osd_names(settings)
    while pending:
        pending = [name for name in pending if not _is_active(paths, name)]
        dead = [name for name in pending if not daemons.find(settings, name)]
        if dead:
            raise DaemonError(f'{", ".join(dead)} ended at start; see {settings.log_dir}')
        if pending and time.monotonic() > deadline:
            raise DaemonError(f'{", ".join(pending)} not active after {timeout_sec} s')
        if pending:
            time.sleep(POLL_SEC)
    with monitor.connect(settings) as mon:
        while (up := mon.command('osd stat')['num_up_osds']) < len(settings.osd_classes):
            if time.monotonic() > deadline:
                raise DaemonError(
                    f'{up} of {len(settings.osd_classes)} OSDs up after {timeout_sec} s'
                )
            time.sleep(POLL_SEC)
    return started


def _start_all(paths, settings):
    """Start the monitor, then all others in parallel: an OSD opens its store for a second."""
    first, *others = layout.daemon_names(settings)
    started = [first] if daemons.ensure_started(settings, paths, first) else []
    with ThreadPoolExecutor(max_workers=len(others)) as pool:
        outcomes = pool.map(lambda name: daemons.ensure_started(settings, paths, name), others)
        started += [name for name, begun in zip(others, outcomes, strict=True) if begun]
    return started


def _is_active(paths, name):
    status = daemons.query(paths, name, 'status')
    return status is not None and status.get('state') == 'active'


def describe(paths, settings):
    """Return the state of the cluster as a JSON-able document, also if no daemon runs."""
    pids = {process.name: process.pid for process in daemons.find(settings)}
    document = {
        'root': str(paths.root),
        'fsid': settings.fsid,
        'conf': str(layout.conf_file(settings)),
        'health': 'DOWN',
        'checks': [],
        'daemons': [
            {'name': name, 'pid': pids.get(name)} for name in layout.daemon_names(settings)
        ],
        'osds': [],
        'pools': [],
    }
    if layout.MON not in pids:
        document['checks'] = ['the monitor does not run']
        return document
    try:
        with monitor.connect(settings, timeout_sec=5) as mon:
            _describe_from_monitor(mon, document)
    except ClusterError as error:
        document['checks'] = [str(error)]
    return document


def _describe_from_monitor(mon, document):
    status = mon.command('status')
    document['health'] = status['health']['status']
    document['checks'] = [
        check['summary']['message'] for check in status['health'].get('checks', {}).values()
    ]
    document['osds'] = [
        {
            'id': node['id'],
            'device_class': node.get('device_class', ''),
            'up': node['status'] == 'up',
            'in': node['reweight'] > 0,
            'used_gib': round(node['kb_used'] / 1024**2, 2),
            'size_gib': round(node['kb'] / 1024**2, 2),
            'pgs': node['pgs'],
        }
        for node in sorted(mon.command('osd df')['nodes'], key=lambda node: node['id'])
    ]
    rules = {rule['rule_id']: rule['rule_name'] for rule in mon.command('osd crush rule dump')}
    document['pools'] = [
        {
            'name': pool['pool_name'],
            'rule': rules.get(pool['crush_rule'], ''),
            'size': pool['size'],
            'min_size': pool['min_size'],
            'pg_num': pool['pg_num'],
            'erasure': pool['erasure_code_profile'] or None,
            'applications': sorted(pool['application_metadata']),
        }
        for pool in mon.command('osd dump')['pools']
    ]


def is_healthy(document):
    """Return whether every daemon runs, every OSD is up and health is not an error."""
    return (
        document['health'] in ('HEALTH_OK', 'HEALTH_WARN')
        and all(daemon['pid'] for daemon in document['daemons'])
        and all(osd['up'] for osd in document['osds'])
    )


def as_text(document):
    """Render the state as text."""
    lines = [f'cluster {document["fsid"]}  {document["health"]}  {document["root"]}']
    lines += [f'  ! {check}' for check in document['checks']]
    running = [f'{item["name"]} ({item["pid"]})' for item in document['daemons'] if item['pid']]
    missing = [item['name'] for item in document['daemons'] if not item['pid']]
    lines.append(f'running: {", ".join(running) or "nothing"}')
    if missing:
        lines.append(f'not running: {", ".join(missing)}')
    for osd in document['osds']:
        lines.append(
            f'  osd.{osd["id"]:<3} {osd["device_class"]:<6} {"up" if osd["up"] else "DOWN":<5}'
            f'{"in" if osd["in"] else "OUT":<4} {osd["used_gib"]:>7.2f} of '
            f'{osd["size_gib"]:.2f} GiB {osd["pgs"]:>4} PGs'
        )
    for pool in document['pools']:
        shape = f'coded {pool["erasure"]}' if pool['erasure'] else f'{pool["size"]} copies'
        lines.append(
            f'  pool {pool["name"]:<24} {shape:<12} min {pool["min_size"]}  '
            f'{pool["pg_num"]:>3} PGs  {pool["rule"]}  {",".join(pool["applications"])}'
        )
    return '\n'.join(lines)
