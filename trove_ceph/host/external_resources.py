# SPDX-License-Identifier: Apache-2.0
"""What a sandbox makes outside its workspace: remembered in it, so that it can be found again.

The record is written before the thing is made and goes after the thing is gone.
"""

import contextlib
import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.host import rbd_pool

LOG = logging.getLogger(__name__)

_RECORDS = 'outside'


def new_name() -> str:
    """Return a name that nothing has: what is remembered under it is nobody else's."""
    return f'trove-ceph-scratch-{uuid.uuid4().hex}'


@contextlib.contextmanager
def directory(workspace: Path, parent: Path) -> Iterator[Path]:
    """Make a directory of its own in another one, and remove it with all that is in it."""
    path = parent / new_name()
    with _remembered(workspace, kind='directory', path=str(path)):
        path.mkdir()
        yield path


@contextlib.contextmanager
def rbd_image(workspace: Path, pool: rbd_pool.RbdPool, size_gib: float) -> Iterator[str]:
    """Make an RBD image, give its name, and remove it.

    :raises StorageCommandError: Ceph refused either
    """
    name = new_name()
    what = {'conf': pool.conf, 'user': pool.user, 'pool': pool.pool, 'name': name}
    with _remembered(workspace, kind='rbd-image', **what):
        pool.create_image(name, size_gib)
        yield name


def remove_all(workspace: Path) -> None:
    """Remove all that is remembered in a workspace.

    :raises StorageCommandError: Ceph refused to remove an image; it stays remembered
    """
    for record in sorted((workspace / _RECORDS).glob('*.json')):
        _forget(record, json.loads(record.read_text()))


@contextlib.contextmanager
def _remembered(workspace: Path, **what: str) -> Iterator[None]:
    records = workspace / _RECORDS
    records.mkdir(exist_ok=True)
    record = records / f'{uuid.uuid4().hex}.json'
    unfinished = record.with_suffix('.new')
    unfinished.write_text(json.dumps(what))
    unfinished.rename(record)
    try:
        yield
    except BaseException:
        try:
            _forget(record, what)
        except exceptions.StorageCommandError as error:
            LOG.error('Cannot remove %s: %s', what, error)
        raise
    _forget(record, what)


def _forget(record: Path, what: Mapping[str, str]) -> None:
    _remove(**what)
    record.unlink(missing_ok=True)


def _remove(kind: str, **what: str) -> None:
    if kind == 'directory':
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(what['path'])
    elif kind == 'rbd-image':
        pool = rbd_pool.RbdPool(what['conf'], what['user'], what['pool'])
        pool.ensure_no_image(what['name'])
    else:
        raise ValueError(f'nobody knows how to remove a {kind}')
