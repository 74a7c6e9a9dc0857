# SPDX-License-Identifier: Apache-2.0
"""Metrics of the Ceph cluster, which the storage service alone can read.

Each copy of the service that exports them reads the same cluster, so queries take the maximum over
copies.
"""

import dataclasses
import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from oslo_log import log as logging
from prometheus_client import core

from trove_ceph import exceptions
from trove_ceph.metrics.descriptions import Description
from trove_ceph.storage import backend, image_types, tasks
from trove_ceph.storage.tasks import JobState

LOG = logging.getLogger(__name__)

POOL_UP = Description(
    'trove_ceph_pool_up',
    'Whether images and trash of the pool could be read; otherwise its metrics are missing.',
    ('tier', 'pool'),
)
POOL_STORED = Description(
    'trove_ceph_pool_stored_bytes',
    'Data of clients in the pool. The purpose is that of the tier, such as "data" or "vault".',
    ('tier', 'purpose', 'pool'),
)
POOL_MAX = Description(
    'trove_ceph_pool_max_bytes',
    'Data that clients can store before the fullest OSD, or the quota, is full.',
    ('tier', 'purpose', 'pool'),
)
POOL_FILL = Description(
    'trove_ceph_pool_fill_ratio',
    'How full the pool is, from 0 to 1, relative to the quota if that is tighter.',
    ('tier', 'purpose', 'pool'),
)
POOL_FULL = Description(
    'trove_ceph_pool_full', 'Whether Ceph refuses writes to the pool.', ('tier', 'purpose', 'pool')
)
IMAGES = Description('trove_ceph_images', 'Images in the pool.', ('tier', 'pool'))
CLONE_DEPTH = Description(
    'trove_ceph_clone_depth',
    'The largest number of images from which one image of the pool reads what it has not; 0: '
    'there is no clone.',
    ('tier', 'pool'),
)
CLONES = Description('trove_ceph_clones', 'Images in the pool that are clones.', ('tier', 'pool'))
TRASH_IMAGES = Description(
    'trove_ceph_trash_images', 'Images in the trash of the pool.', ('tier', 'pool')
)
TRASH_BYTES = Description(
    'trove_ceph_trash_bytes',
    'Provisioned size of the images in the trash of the pool: they occupy this at most.',
    ('tier', 'pool'),
)
BLOCKLIST = Description(
    'trove_ceph_blocklist_entries', 'Entries of the blocklist of the cluster, of any client.'
)
JOBS = Description(
    'trove_ceph_storage_jobs',
    'Jobs of all copies of the storage service, without those that are done.',
    ('task', 'state'),
)
JOB_OLDEST = Description(
    'trove_ceph_storage_job_oldest_seconds',
    'Time since the oldest job began that waits, runs, or was interrupted; 0 if there is none.',
    ('task',),
)
DESCRIPTIONS = tuple(one for one in globals().values() if isinstance(one, Description))

_TASKS = (
    *(tasks.CopyTask, tasks.VerifyTask, tasks.FenceTask),
    *(tasks.FlattenTask, tasks.InspectTask, tasks.PurgeTask),
)
_UNFINISHED = (JobState.WAITING, JobState.RUNNING, JobState.INTERRUPTED)
_SHOWN = (*_UNFINISHED, JobState.FAILED, JobState.CANCELED)


@dataclasses.dataclass(frozen=True)
class MeasuredPool:
    """A pool of the storage service.

    :param tier: name of its tier; empty if the service has no tiers file
    :param purpose: that of the tier; empty likewise
    :param has_images: False for the data pool of an erasure-coded tier
    """

    name: str
    tier: str
    purpose: str
    has_images: bool


class Cluster:
    """The figures of one cluster.

    :param survey_jobs: returns the jobs of all pools that answer, and the names of the others
    :param now: the wall clock
    """

    def __init__(
        self,
        storage: backend.Backend,
        pools: Sequence[MeasuredPool],
        survey_jobs: Callable[[], tuple[Iterable[tasks.Job], Iterable[str]]],
        now: Callable[[], datetime.datetime],
    ):
        self._storage = storage
        self._pools = pools
        self._survey_jobs = survey_jobs
        self._now = now

    def read(self) -> Iterator[core.Metric]:
        """Yield the metrics; those of a pool that does not answer are missing.

        :raises StorageError: the cluster does not answer
        """
        yield from self._usage()
        yield from self._images()
        yield BLOCKLIST.gauge({(): len(self._storage.blocklisted())})
        jobs, _ = self._survey_jobs()
        yield from _of_jobs(jobs, self._now())

    def _usage(self) -> Iterator[core.Metric]:
        usages = {
            (one.tier, one.purpose, one.name): self._storage.usage(one.name) for one in self._pools
        }
        yield POOL_STORED.gauge({key: one.stored_bytes for key, one in usages.items()})
        yield POOL_MAX.gauge(
            {key: one.stored_bytes + one.available_bytes for key, one in usages.items()}
        )
        yield POOL_FILL.gauge({key: one.fill for key, one in usages.items()})
        yield POOL_FULL.gauge({key: int(one.full) for key, one in usages.items()})

    def _images(self) -> Iterator[core.Metric]:
        keys = {(one.tier, one.name): one.name for one in self._pools if one.has_images}
        contents: dict[tuple[str, str], _PoolContent] = {}
        for key, pool in keys.items():
            try:
                contents[key] = _read_pool(self._storage, pool)
            except exceptions.StorageError as error:
                LOG.warning('Metrics of the images of pool %s are missing: %s', pool, error)
        yield POOL_UP.gauge({key: int(key in contents) for key in keys})
        yield IMAGES.gauge({key: len(one.depths) for key, one in contents.items()})
        yield CLONES.gauge({key: sum(map(bool, one.depths)) for key, one in contents.items()})
        yield CLONE_DEPTH.gauge({key: max(one.depths, default=0) for key, one in contents.items()})
        yield TRASH_IMAGES.gauge({key: len(one.trashed) for key, one in contents.items()})
        yield TRASH_BYTES.gauge(
            {
                key: sum(image.size_bytes or 0 for image in one.trashed)
                for key, one in contents.items()
            }
        )


@dataclasses.dataclass(frozen=True)
class _PoolContent:
    depths: Sequence[int]
    trashed: Sequence[image_types.TrashedImage]


def _read_pool(storage: backend.Backend, pool: str) -> _PoolContent:
    depths = [one.clone_depth for one in storage.describe_pool(pool)]
    return _PoolContent(depths, storage.list_trash(pool))


def _of_jobs(jobs: Iterable[tasks.Job], now: datetime.datetime) -> Iterator[core.Metric]:
    names = [_name_of(kind) for kind in _TASKS]
    counts = dict.fromkeys(itertools.product(names, _SHOWN), 0)
    oldest = dict.fromkeys(((name,) for name in names), 0.0)
    for job in jobs:
        if job.state not in _SHOWN:
            continue
        name = _name_of(type(job.work))
        counts[name, job.state] += 1
        if job.state in _UNFINISHED:
            age_sec = (now - job.started_at).total_seconds()
            oldest[(name,)] = max(oldest[(name,)], age_sec)
    yield JOBS.gauge(counts)
    yield JOB_OLDEST.gauge(oldest)


def _name_of(kind: type[tasks.Task]) -> str:
    return kind.operation.removeprefix('storage.')
