# SPDX-License-Identifier: Apache-2.0
"""A small, plausible results store, the same on every call.

Three variants (``stock`` as baseline, ``ours``, ``local`` as control) under three workloads with
two numbers of threads and an event in the middle, three repeats; and a backup by two contenders at
three data sizes.
"""

import math
import random
from pathlib import Path

import yaml

from trove_ceph_bench import results

WORKLOADS = {
    'read': ('oltp_point_select', 1, 1000.0),
    'write': ('oltp_update_index', 1, 160.0),
    'mixed-70-30': ('oltp_read_write', 20, 50.0),
}
#: Throughput relative to stock's, and the role.
VARIANTS = {'stock': (1.0, 'baseline'), 'ours': (1.35, 'subject'), 'local': (1.8, 'control')}
THREADS = (4, 16)
DATA_MIB = (64, 256, 1024)
MEASURE_SEC = 20
EVENT_SEC = 8

LOAD_PLAN = {
    'name': 'tuning',
    'description': "Our guest's my.cnf against stock Trove's, on the same volume",
    'ratios': [
        {
            'name': 'flash-to-hdd',
            'of': 'local',
            'to': 'stock',
            'reference': 'redhat-flash-to-hdd',
        }
    ],
}
OPERATION_PLAN = {'name': 'stock-baseline', 'description': 'Backups of stock Trove and of ours'}


def load_store(path, repeats=3, workloads=tuple(WORKLOADS), threads=THREADS, scale=1.0):
    """Write a store of loads and return it.

    :param scale: factor for the throughput of ``ours``, for a second store to compare with
    """
    store = results.Store(path).create(yaml.safe_dump(LOAD_PLAN | {'repeats': repeats}))
    for iteration in range(repeats):
        for workload in workloads:
            for count in threads:
                for variant in VARIANTS:
                    config = load_config(variant, workload, count)
                    generator = random.Random(f'{iteration}/{variant}/{workload}/{count}')
                    factor = scale if variant == 'ours' else 1.0
                    run = load_run(config, generator, factor, iteration)
                    _write(store, iteration, config, disclosure(variant), run)
    return store


def operation_store(path, repeats=3):
    """Write a store of operations and return it."""
    store = results.Store(path).create(
        yaml.safe_dump(OPERATION_PLAN | {'operations': {'repeats': repeats}})
    )
    for iteration in range(repeats):
        for data_mib in DATA_MIB:
            for variant in ('stock', 'ours'):
                config = operation_config(variant, data_mib)
                generator = random.Random(f'{iteration}/{variant}/{data_mib}')
                _write(
                    store, iteration, config, disclosure(variant), operation_run(config, generator)
                )
    return store


def load_config(variant='ours', workload='write', threads=16):
    return {
        'kind': 'load',
        'plan': LOAD_PLAN['name'],
        'variant': variant,
        'role': VARIANTS[variant][1],
        'target': {'kind': 'mysqld', 'settings': variant},
        'workload': {'name': workload, 'script': WORKLOADS[workload][0], 'options': {}},
        'dataset': {'name': '1:4', 'tables': 4, 'rows': 250000},
        'threads': threads,
        'instances': 1,
        'warmup_sec': 5,
        'measure_sec': MEASURE_SEC,
        'events': [{'name': 'snapshot', 'at_sec': EVENT_SEC, 'command': 'rbd snap create …'}],
        'committer': True,
    }


def operation_config(variant='ours', data_mib=256):
    return {
        'kind': 'operation',
        'plan': OPERATION_PLAN['name'],
        'operation': 'backup',
        'variant': variant,
        'role': VARIANTS[variant][1],
        'target': {'instance': 'first-database'},
        'commands': {'run': f'{variant}-backup'},
        'data_mib': data_mib,
        'committer': True,
    }


def load_run(config, generator, factor=1.0, iteration=0):
    """Return a run.json of a load: saturating throughput, and a dip at the event."""
    speed, _ = VARIANTS[config['variant']]
    _, queries, base = WORKLOADS[config['workload']['name']]
    threads = config['threads']
    level = base * speed * factor * threads / (threads + 6) * 2 * generator.gauss(1, 0.02)
    stall_ms = {'stock': 2400.0, 'ours': 180.0, 'local': 90.0}[config['variant']]
    seconds, gaps = [], []
    for second in range(1, config['measure_sec'] + 1):
        dip = 0.35 if second == EVENT_SEC + 1 else 1.0
        tps = level * dip * generator.gauss(1, 0.05)
        seconds.append(
            {
                'second': second,
                'tps': round(tps, 2),
                'qps': round(tps * queries, 2),
                'errors': 0.0,
                'latency_ms': _latency(threads / tps * 1000, generator),
            }
        )
        gap = (
            stall_ms * generator.uniform(0.9, 1.1)
            if dip < 1
            else 1500 / level * generator.uniform(3, 9)
        )
        gaps.append({'second': second, 'gap_max_ms': round(gap, 1)})
    return {
        'format': 1,
        'kind': 'load',
        'started': f'2026-11-21T1{iteration}:00:{threads:02d}+00:00',
        'complete': True,
        'reason': None,
        'warmup_sec': config['warmup_sec'],
        'measured_sec': float(config['measure_sec']),
        'totals': _totals(seconds, threads, queries, generator),
        'seconds': seconds,
        'instances': [{'name': 'one', 'totals': _totals(seconds, threads, queries, generator)}],
        'committer': _committer(gaps, generator),
        'rbd': None if config['variant'] == 'local' else _rbd(level, generator),
        'cpu': {
            'host_cores': 2,
            'client_cores': round(0.3 + 0.02 * threads, 3),
            'server_cores': round(0.6 + 0.01 * threads, 3),
            'host_busy': 0.71,
            'seconds': [],
        },
        'client_saturated': False,
        'events': [
            {
                'name': 'snapshot',
                'at_sec': float(EVENT_SEC),
                'ended_sec': EVENT_SEC + stall_ms / 1000,
                'exit_code': 0,
                'output': '',
            }
        ],
        'fio': None,
        'warnings': [],
    }


def operation_run(config, generator):
    """Return a run.json of an operation: stock copies every byte, ours does not."""
    data_mib = config['data_mib']
    copies = config['variant'] == 'stock'
    seconds = (6 + data_mib / 24 if copies else 3.5) * generator.gauss(1, 0.04)
    gap = (2400 + 2 * data_mib if copies else 85) * generator.uniform(0.9, 1.1)
    return {
        'format': 1,
        'kind': 'operation',
        'started': '2026-11-21T10:00:00+00:00',
        'complete': True,
        'reason': None,
        'data_bytes': data_mib * 2**20 + 7 * 2**20,
        'seconds': round(seconds, 2),
        'exit_code': 0,
        'phases': [{'name': 'request', 'seconds': 0.8}],
        'committer': _committer([{'second': 1, 'gap_max_ms': round(gap, 1)}], generator),
        'writer_tps': {'before': 51.2, 'during': 40.3 if copies else 50.1},
        'cost': {
            'space_bytes': data_mib * 2**20 if copies else 3 * 2**20,
            'moved_bytes': data_mib * 2**20 if copies else 0,
            'changed_bytes': 2 * 2**20,
        },
        'output': 'done',
        'warnings': [],
    }


def disclosure(variant):
    """Return a short disclosure of a target."""
    is_local = variant == 'local'
    variables = {
        'innodb_buffer_pool_size': str((32 if variant == 'stock' else 64) * 2**20),
        'innodb_flush_log_at_trx_commit': '1',
        'innodb_flush_method': 'fsync' if variant == 'stock' else 'O_DIRECT',
        'sync_binlog': '1',
        'default_password_lifetime': '0',
    }
    pool = {'name': 'nvme', 'size': 2, 'crush_rule': {'name': 'nvme', 'device_class': 'nvme'}}
    target = {
        'kind': 'server',
        'mysql': {
            'version': '9.7.0',
            'durability': {'sync_binlog': '1', 'innodb_doublewrite': 'ON'},
            'durable': True,
            'variables': variables,
        },
        'storage': {'kind': 'directory' if is_local else 'rbd', 'filesystem': 'xfs'},
        'ceph': None if is_local else {'versions': {'ceph 19.2.3': 8}, 'pools': [pool]},
    }
    host = {'cores': 2, 'memory_mib': 24576, 'versions': {'sysbench': '1.0.20'}}
    return {'host': host, 'target': target}


def _write(store, iteration, config, disclosed, run):
    directory = store.run_directory(iteration, config)
    Path(directory, results.RAW_DIRECTORY, 'sysbench.txt').write_text('SQL statistics:\n')
    store.write(iteration, config, disclosed, run)


def _latency(average, generator):
    return {
        'avg': round(average, 2),
        'p50': round(average * 0.85, 2),
        'p95': round(average * generator.uniform(1.8, 2.0), 2),
        'p99': round(average * generator.uniform(2.6, 3.0), 2),
        'p99.9': round(average * generator.uniform(4, 5), 2),
        'max': round(average * generator.uniform(6, 12), 2),
    }


def _totals(seconds, threads, queries, generator):
    tps = math.fsum(each['tps'] for each in seconds) / len(seconds)
    return {
        'transactions': round(tps * len(seconds)),
        'tps': round(tps, 2),
        'qps': round(tps * queries, 2),
        'errors': 0,
        'reconnects': 0,
        'latency_ms': _latency(threads / tps * 1000, generator),
    }


def _committer(gaps, generator):
    worst = max(gaps, key=lambda each: each['gap_max_ms'])
    return {
        'commits': 60 * len(gaps),
        'errors': 0,
        'gap_max_ms': worst['gap_max_ms'],
        'gap_max_at_sec': float(worst['second']),
        'commit_ms': _latency(12.0, generator),
        'seconds': gaps,
    }


def _rbd(level, generator):
    return {
        'source': 'mgr',
        'size_gib': 2.0,
        'totals': {
            'read_iops': round(level * 0.4, 1),
            'write_iops': round(level * 3.1, 1),
            'read_mib_s': round(level * 0.4 / 64, 2),
            'write_mib_s': round(level * 3.1 / 64, 2),
            'read_latency_ms': round(generator.uniform(0.5, 0.7), 3),
            'write_latency_ms': round(generator.uniform(1.5, 1.9), 3),
            'iops_per_gib': round(level * 3.5 / 2, 1),
            'write_iops_per_gib': round(level * 3.1 / 2, 1),
        },
        'seconds': [],
    }
