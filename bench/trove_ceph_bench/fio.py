# SPDX-License-Identifier: Apache-2.0
"""Run fio on the volume below a server: latency at queue depth 1, throughput at depths 16 and 64.

A job changes only data that it created: its own files in a directory, or its own image in a pool,
which is filled before it is read. Both are removed afterwards.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.host import rbd_pool
from trove_ceph_bench import model

LOG = logging.getLogger(__name__)

PROGRAM = 'fio'
#: 16 KiB is InnoDB's page size, and 8 KiB that of other databases (Red Hat, 2016, names both);
#: Intel's figures of 2018 are those of writes of 4 KiB.
_BLOCK_SIZES_KIB = (4, 8, 16)
_DEPTHS = (1, 16, 64)
JOBS: dict[str, tuple[str, ...]] = {
    f'{pattern}-{size}k-qd{depth}': (f'--rw={pattern}', f'--bs={size}k', f'--iodepth={depth}')
    for pattern in ('randread', 'randwrite')
    for size in _BLOCK_SIZES_KIB
    for depth in _DEPTHS
} | {
    # A commit waits for a flush after each write.
    f'randwrite-{size}k-qd1-sync': ('--rw=randwrite', f'--bs={size}k', '--iodepth=1', '--fsync=1')
    for size in _BLOCK_SIZES_KIB
}
#: Intel publishes the last one, which a job of 20 s resolves from 500 operations per second on.
PERCENTILES = (*model.PERCENTILES, 99.99)
_FILL = ('--rw=write', '--bs=1M', '--iodepth=4', '--end_fsync=1', '--refill_buffers')
_FILL_TIMEOUT_SEC = 1800
#: A slower fill is taken for a stalled cluster.
_LEAST_FILL_MIB_S = 2
_GRACE_SEC = 120
_NS_PER_MS = 1e6


def parse(output: str) -> dict[str, Any]:
    """Return the figures of the single job in fio's JSON.

    ``latency_ms`` is the time from submission to completion of a read or write (fio's ``clat``),
    ``flush_ms`` the time of the flush after each write, null if the job does not flush.

    :raises LoadFailedError: the output holds no result
    """
    try:
        # Warnings may precede the JSON.
        (job,) = json.loads(output[output.index('{') :])['jobs']
        side = max((job['read'], job['write']), key=lambda figures: figures['total_ios'])
        flush = job['sync']['lat_ns']
        return {
            'iops': round(side['iops'], 2),
            'mib_s': round(side['bw_bytes'] / 1024**2, 3),
            'latency_ms': _latency(side['clat_ns']),
            'flush_ms': _latency(flush) if flush['N'] else None,
        }
    except (ValueError, KeyError) as error:
        raise exceptions.LoadFailedError(f'fio printed no result: {output[-300:]!r}') from error


def _latency(figures: Mapping[str, Any]) -> dict[str, float]:
    nanoseconds = {'avg': figures['mean']}
    for percent, value in figures['percentile'].items():
        # fio reports the upper end of a bucket, which may exceed the maximum.
        nanoseconds[f'p{float(percent):g}'] = min(value, figures['max'])
    nanoseconds['max'] = figures['max']
    return {name: round(value / _NS_PER_MS, 4) for name, value in nanoseconds.items()}


def on_directory(
    directory: Path, jobs: Sequence[str], seconds: int, size_mib: int, raw: Path
) -> dict[str, dict[str, Any]]:
    """Run jobs one after another on the file system that holds a directory.

    :param jobs: names from JOBS
    :param seconds: duration of each job
    :param size_mib: size of the test file in MiB
    :param raw: directory for fio's JSON of each job
    :returns: the figures by the name of the job
    :raises InvalidPlanError: a job is unknown
    :raises LoadFailedError: fio is missing or failed
    """
    _check(jobs)
    with tempfile.TemporaryDirectory(prefix='bench-fio-', dir=directory) as temporary:
        location = [f'--directory={temporary}', '--ioengine=libaio', '--direct=1']
        return _run_all(location, jobs, seconds, size_mib, raw, {})


def on_pool(
    image: model.Image, jobs: Sequence[str], seconds: int, size_mib: int, raw: Path
) -> dict[str, dict[str, Any]]:
    """Run jobs through librbd on a scratch image in the pool of a server's image.

    The other parameters and errors are those of :func:`on_directory`.

    :raises StorageCommandError: the scratch image could not be created or removed
    """
    _check(jobs)
    pool = rbd_pool.RbdPool(image.conf, image.user, image.pool)
    with _scratch_image(pool, size_mib) as name:
        scratch = dataclasses.replace(image, name=name)
        fill(scratch, 0, size_mib)
        return _run_all(_location(scratch), jobs, seconds, size_mib, raw, {'CEPH_CONF': image.conf})


def fill(image: model.Image, offset_mib: int, size_mib: int) -> None:
    """Write data that do not compress to a range of an image, from an offset on.

    :raises LoadFailedError: fio is missing or failed
    """
    _check(())
    part = [f'--offset={offset_mib}M', f'--size={size_mib}M']
    timeout_sec = _FILL_TIMEOUT_SEC + size_mib // _LEAST_FILL_MIB_S
    _fio([*_location(image), *_FILL, *part], timeout_sec, {'CEPH_CONF': image.conf})


def _location(image: model.Image) -> list[str]:
    return [
        *('--ioengine=rbd', f'--clientname={image.user}'),
        *(f'--pool={image.pool}', f'--rbdname={image.name}'),
    ]


def _check(jobs: Sequence[str]) -> None:
    unknown = [job for job in jobs if job not in JOBS]
    if unknown:
        raise exceptions.InvalidPlanError(
            f'fio job {unknown[0]!r} is unknown; choose one of {", ".join(JOBS)}'
        )
    if shutil.which(PROGRAM) is None:
        raise exceptions.LoadFailedError('fio is not installed: install the package fio')


def _run_all(
    location: Sequence[str],
    jobs: Sequence[str],
    seconds: int,
    size_mib: int,
    raw: Path,
    environment: Mapping[str, str],
) -> dict[str, dict[str, Any]]:
    raw.mkdir(parents=True, exist_ok=True)
    figures = {}
    for job in jobs:
        limits = [f'--size={size_mib}M', f'--runtime={seconds}', '--time_based']
        output = _fio([*location, *JOBS[job], *limits], seconds + _GRACE_SEC, environment)
        (raw / f'{job}.json').write_text(output)
        figures[job] = parse(output)
    return figures


def _fio(options: Sequence[str], timeout_sec: int, environment: Mapping[str, str]) -> str:
    percentiles = ':'.join(f'{percent:g}' for percent in PERCENTILES)
    report = ['--output-format=json', f'--percentile_list={percentiles}']
    return _run([PROGRAM, '--name=bench', *options, *report], timeout_sec, environment)


@contextlib.contextmanager
def _scratch_image(pool: rbd_pool.RbdPool, size_mib: int) -> Iterator[str]:
    """Create an image and return its name; remove it at the end, also after a failure.

    The removal waits until Ceph has forgotten a client that was killed.
    """
    name = f'bench-fio-{uuid.uuid4().hex[:12]}'
    try:
        # Also a command that was interrupted may have created it.
        pool.create_image(name, size_mib / 1024)
        yield name
    except BaseException:
        # The first failure is the cause, and an interruption must remain one.
        try:
            pool.ensure_no_image(name)
        except exceptions.StorageCommandError as error:
            LOG.warning('The image %s/%s is left: %s', pool.pool, name, error)
        raise
    pool.ensure_no_image(name)


def _run(command: Sequence[str], timeout_sec: int, environment: Mapping[str, str]) -> str:
    """Run a program in its own session, so that this process alone handles Ctrl-C."""
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_sec,
            env=os.environ | environment,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise exceptions.LoadFailedError(f'{command[0]} took more than {timeout_sec} s') from error
    if result.returncode != 0:
        lines = [*result.stdout.splitlines(), *result.stderr.splitlines()]
        # fio prefixes error lines with its name, and prints them within its JSON.
        messages = [line for line in lines if line.startswith(f'{command[0]}:')] or lines[-3:]
        raise exceptions.LoadFailedError(
            f'{command[0]} exited with {result.returncode}: {" | ".join(messages)}'
        )
    return result.stdout
