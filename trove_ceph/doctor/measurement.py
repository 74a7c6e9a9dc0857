# SPDX-License-Identifier: Apache-2.0
"""Measure the IOPS that a pool is capable of, with fio on an image of its own, and keep the result.

The benchmark measures what one database gets. Here the question is what a whole pool can do, so
many requests are in flight.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.host import commands

#: The size of the image, which is filled before it is read.
SIZE_MIB = 4096
#: Of each of the two jobs.
SECONDS = 30
#: InnoDB's pages.
_BLOCK = '16k'
_DEPTH = 64
_LEAST_MIB_PER_SEC = 5
_GRACE_SEC = 60
_PREFIX = 'trove-ceph-doctor-'


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What a pool was capable of, in requests of 16 KiB per second.

    :param measured_at: in UTC, by ISO 8601
    :param osds: number of OSDs that served the pool
    """

    measured_at: str
    read_iops: float
    write_iops: float
    osds: int


@dataclasses.dataclass(frozen=True)
class Target:
    """A pool, and how Ceph's programs reach it."""

    conf: str
    user: str
    pool: str


def load(path: str) -> Mapping[str, Measurement]:
    """Return the measurements by pool; none if there is no file.

    :raises InvalidConfigurationError: the file is not one of :func:`store`
    """
    try:
        found = json.loads(Path(path).read_text())
        return {pool: Measurement(**one) for pool, one in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise exceptions.InvalidConfigurationError(
            f'{path}: is not readable as measurements ({error}); remove it and measure again'
        ) from error


def store(path: str, measurements: Mapping[str, Measurement]) -> None:
    """Replace the file; those of other pools stay.

    :raises InvalidConfigurationError: the file cannot be read or written
    """
    content = {**load(path), **measurements}
    document = {pool: dataclasses.asdict(one) for pool, one in sorted(content.items())}
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(f'{path}.{uuid.uuid4().hex[:8]}')
        temporary.write_text(json.dumps(document, indent=2) + '\n')
        os.replace(temporary, path)
    except OSError as error:
        raise exceptions.InvalidConfigurationError(f'{path}: cannot be written: {error}') from error


def measure(
    target: Target,
    osds: int,
    seconds: int = SECONDS,
    size_mib: int = SIZE_MIB,
    run: Callable[..., str] = commands.run,
) -> Measurement:
    """Measure reads and writes of a pool, for twice ``seconds`` and the time to fill the image.

    The image is removed afterwards, also when a job fails or is interrupted.

    :raises StorageCommandError: fio or Ceph failed
    """
    with _image(target, size_mib, run) as name:
        fill = ('--rw=write', '--bs=1M', '--iodepth=8', '--end_fsync=1')
        _fio(run, target, name, size_mib, size_mib // _LEAST_MIB_PER_SEC, *fill)
        jobs = (f'--bs={_BLOCK}', f'--iodepth={_DEPTH}', '--time_based', f'--runtime={seconds}')
        read = _fio(run, target, name, size_mib, seconds, '--rw=randread', *jobs)
        write = _fio(run, target, name, size_mib, seconds, '--rw=randwrite', *jobs)
    now = datetime.datetime.now(datetime.UTC)
    return Measurement(
        now.isoformat(timespec='seconds'),
        round(read['read']['iops']),
        round(write['write']['iops']),
        osds,
    )


@contextlib.contextmanager
def _image(target: Target, size_mib: int, run: Callable[..., str]) -> Iterator[str]:
    name = f'{_PREFIX}{uuid.uuid4().hex[:12]}'
    rbd = ('rbd', '--conf', target.conf, '--id', target.user)
    place = f'{target.pool}/{name}'
    try:
        # Within the block: an interrupted creation may have left an image.
        run(*rbd, 'create', '--size', f'{size_mib * units.Mi}B', place)
        yield name
    finally:
        run(*rbd, 'rm', '--no-progress', place, timeout_sec=600)


def _fio(
    run: Callable[..., str], target: Target, name: str, size_mib: int, seconds: int, *job: str
) -> Any:
    """Run a job and return its result."""
    output = run(
        *('fio', '--name=doctor', '--ioengine=rbd', f'--clientname={target.user}'),
        *(f'--pool={target.pool}', f'--rbdname={name}', f'--size={size_mib}M', *job),
        '--output-format=json',
        timeout_sec=seconds + _GRACE_SEC,
        environment={**os.environ, 'CEPH_CONF': target.conf},
    )
    try:
        # Warnings may precede the JSON.
        (found,) = json.loads(output[output.index('{') :])['jobs']
    except (ValueError, KeyError) as error:
        raise exceptions.StorageCommandError(f'fio printed no result: {output[-300:]!r}') from error
    return found
