# SPDX-License-Identifier: Apache-2.0
"""Record in a workspace the resources that are created outside it, so that they can be removed.

A record is written before its resource is created, and deleted after the resource is removed.
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
    """Return a unique name, so that a record never names another owner's resource."""
    return f'trove-ceph-scratch-{uuid.uuid4().hex}'


@contextlib.contextmanager
def directory(workspace: Path, parent: Path) -> Iterator[Path]:
    """Create a directory with a unique name in ``parent``, and remove it with its content."""
    path = parent / new_name()
    with _recorded(workspace, kind='directory', path=str(path)):
        path.mkdir()
        yield path


@contextlib.contextmanager
def rbd_image(workspace: Path, pool: rbd_pool.RbdPool, size_gib: float) -> Iterator[str]:
    """Create an RBD image, yield its name, and remove it.

    :raises StorageCommandError: Ceph refused to create or to remove the image
    """
    name = new_name()
    image = {'conf': pool.conf, 'user': pool.user, 'pool': pool.pool, 'name': name}
    with _recorded(workspace, kind='rbd-image', **image):
        pool.create_image(name, size_gib)
        yield name


def remove_all(workspace: Path) -> None:
    """Remove all resources that are recorded in a workspace.

    :raises StorageCommandError: Ceph refused to remove an image; its record stays
    """
    for record in sorted((workspace / _RECORDS).glob('*.json')):
        _release(record, json.loads(record.read_text()))


@contextlib.contextmanager
def _recorded(workspace: Path, **resource: str) -> Iterator[None]:
    records = workspace / _RECORDS
    records.mkdir(exist_ok=True)
    record = records / f'{uuid.uuid4().hex}.json'
    unfinished = record.with_suffix('.new')
    unfinished.write_text(json.dumps(resource))
    unfinished.rename(record)
    try:
        yield
    except BaseException:
        try:
            _release(record, resource)
        except exceptions.StorageCommandError as error:
            LOG.error('Cannot remove %s: %s', resource, error)
        raise
    _release(record, resource)


def _release(record: Path, resource: Mapping[str, str]) -> None:
    _remove(**resource)
    record.unlink(missing_ok=True)


def _remove(kind: str, **resource: str) -> None:
    if kind == 'directory':
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(resource['path'])
    elif kind == 'rbd-image':
        pool = rbd_pool.RbdPool(resource['conf'], resource['user'], resource['pool'])
        pool.ensure_no_image(resource['name'])
    else:
        raise ValueError(f'unknown kind of resource: {kind}')
