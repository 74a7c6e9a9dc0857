# SPDX-License-Identifier: Apache-2.0
"""The report at the end of the main job."""

import json
import os
import pathlib


def load(path: pathlib.Path) -> dict:
    """Return the last report, or an empty one."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}


def save(path: pathlib.Path, report: dict) -> None:
    temporary = path.with_suffix('.new')
    text = json.dumps(report, indent=1) + '\n'
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)  # the connect command contains the password
    temporary.write_text(text)
    os.rename(temporary, path)


def render(report: dict) -> str:
    """Return the report as text for a terminal."""
    lines = ['', 'A MySQL database on a Ceph volume', '']
    for label, value in _facts(report):
        lines.append(f'  {label:<12} {value}')
    lines += ['', '  Durations (seconds)']
    lines += [
        f'    {seconds:8.1f}  {name.replace("_", " ")}'
        for name, seconds in report['seconds'].items()
    ]
    lines += ['', '  Connect', f'    {report["connect"]}', '', '  Try next']
    lines += [f'    {hint}' for hint in report['try_next']]
    return '\n'.join(lines)


def _facts(report):
    instance, place = report['instance'], report['placement']
    load_figures, mysql = report['sysbench'], report['mysql']
    osds = ', '.join(f'osd.{osd} ({n})' for osd, n in place['copies_by_osd'].items())
    pool_mib = int(mysql['innodb_buffer_pool_size']) // 1024**2
    redo_mib = int(mysql['innodb_redo_log_capacity']) // 1024**2
    yield 'instance', (f'{instance["name"]} ({instance["id"]}), {instance["status"]}')
    yield (
        'flavor',
        (
            f'{instance["flavor"]}, volume {instance["size_gib"]} '
            f'GiB of type {instance["volume_type"]}'
        ),
    )
    yield 'address', f'{instance["address"]}:3306 (floating IP)'
    yield (
        'server',
        (
            f'MySQL {mysql["version"]}, buffer pool {pool_mib} MiB, '
            f'redo {redo_mib} MiB, {mysql["innodb_flush_method"]}, '
            f'GTID {mysql["gtid_mode"]}'
        ),
    )
    yield 'volume', (f'{place["pool"]}/{place["image"]}: {place["objects"]} objects')
    yield 'stored on', f'{place["device_class"]} only: {osds}'
    yield (
        'sysbench',
        (
            f'oltp_read_write {report["sysbench_seconds"]} s, '
            f'{load_figures["tps"]:.1f} TPS, p95 '
            f'{load_figures["latency_p95_ms"]:.0f} ms '
            f'(CPU: {report["virt_type"]})'
        ),
    )
