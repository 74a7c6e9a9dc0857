# SPDX-License-Identifier: Apache-2.0
"""The client of the storage service, for trove-taskmanager and the commands.

It needs no Ceph. Errors of the service are raised as their own classes, with only their message.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_log import log as logging

from trove_ceph import exceptions, waiting
from trove_ceph.storage import image_types, tasks
from trove_ceph.storage_service import serializer, signed_client, transport

LOG = logging.getLogger(__name__)

#: Independent of the exchange of the caller's own services.
EXCHANGE = 'trove_ceph'
TOPIC = 'trove-ceph-storage'
#: The minimum version of the service. Raise it with the first verb or argument of a later one that
#: is used here.
VERSION = '2.1'
#: Longer than the timeout of one request to Ceph (operation_timeout_sec).
DEFAULT_TIMEOUT_SEC = 180

_FIRST_POLL_SEC = 0.2
_LONGEST_POLL_SEC = 5.0
_BACK_OFF = 1.5


def connect(conf: cfg.ConfigOpts) -> transport.Connection:
    """Return the connection to the service from the options of ``[trove_ceph_storage]``.

    :raises InvalidTransportError: the service has no separate transport
    :raises KeyFileError: the key file is not usable
    """
    return transport.connect(conf)


class StorageAPI:
    """The verbs of the storage service.

    Each verb may raise ServiceUnavailableError when no authentic answer arrives; the request may
    have been executed. VersionMismatchError names the service or the caller to upgrade; nothing was
    executed. NotPermittedError means that the verb may not be used on the image or snapshot
    (:mod:`trove_ceph.storage_service.permissions`). InvalidRequestError names the argument to
    correct. After CephUnreachableError the caller may retry. The other errors of the verbs are
    those of :mod:`trove_ceph.storage.backend`.

    :param connection: from ``connect``
    :param timeout_sec: how long to wait for an answer
    """

    def __init__(
        self,
        connection: transport.Connection,
        timeout_sec: float = DEFAULT_TIMEOUT_SEC,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        target = messaging.Target(exchange=EXCHANGE, topic=TOPIC, version=VERSION)
        self._client = signed_client.SignedClient(connection, target, timeout_sec)
        self._connection = connection
        self._timeout_sec = timeout_sec
        self._clock = clock
        self._sleep = sleep

    def close(self) -> None:
        """Close the connection, which otherwise lasts as long as the process."""
        self._connection.transport.cleanup()

    # Verbs that only read.

    def version(self) -> str:
        """Return the version of the service's RPC interface."""
        return self._call('version')

    def describe(
        self, image: image_types.ImageRef, with_usage: bool = False
    ) -> image_types.ImageFacts:
        """Describe an image.

        :param with_usage: compute the used space, which takes time in proportion to the size
        """
        return self._call('describe', image=image, with_usage=with_usage)

    def list_images(self, pool: str, prefix: str = '') -> Iterator[image_types.ListedImage]:
        """List the images of a pool whose names begin with a prefix, in order, page by page.

        Images that are created or removed meanwhile may be in the list or not.
        """
        after = ''
        while True:
            page = self._call(
                'list_images', pool=pool, prefix=prefix, after=after, limit=serializer.MAX_LISTED
            )
            yield from page
            if len(page) < serializer.MAX_LISTED:
                return
            after = page[-1].image.name

    def list_trash(self, pool: str) -> list[image_types.TrashedImage]:
        """List the images in the trash of a pool."""
        return self._call('list_trash', pool=pool)

    def usage(self, pool: str) -> image_types.PoolUsage:
        """Return the space usage of a pool."""
        return self._call('usage', pool=pool)

    def usage_of_tier(self, tier: str) -> list[image_types.PoolUsage]:
        """Return the space usage of the pools of a tier, the image pool first."""
        return self._call('usage_of_tier', tier=tier)

    # Short changes.

    def create_snapshot(self, snapshot: image_types.SnapshotRef) -> image_types.SnapshotFacts:
        """Create a snapshot; clients are not paused.

        :raises SilentOwnerError: the client of the image does not answer, and would lose its lock
        :raises AlreadyExistsError: the snapshot exists, perhaps from an earlier attempt
        """
        return self._call('create_snapshot', snapshot=snapshot)

    def remove_snapshot(self, snapshot: image_types.SnapshotRef) -> None:
        """Remove a snapshot; its clones keep their data.

        :raises SilentOwnerError: the client of the image does not answer, and would lose its lock
        :raises BusyError: the snapshot is being copied or verified
        """
        self._call('remove_snapshot', snapshot=snapshot)

    def rename_snapshot(
        self, snapshot: image_types.SnapshotRef, name: str
    ) -> image_types.SnapshotFacts:
        """Rename a snapshot, without effect on clones and clients.

        :raises AlreadyExistsError: a snapshot has the new name
        :raises NotFoundError: the snapshot does not exist; an earlier attempt may have renamed it
        :raises BusyError: the snapshot is being copied or verified
        """
        return self._call('rename_snapshot', snapshot=snapshot, name=name)

    def clone(
        self,
        snapshot: image_types.SnapshotRef,
        image: image_types.ImageRef,
        qos: image_types.Qos,
        options: image_types.ImageOptions | None = None,
    ) -> None:
        """Create a clone, in any of the service's pools, and set its limits.

        After an interruption it may be repeated: it keeps an existing clone that was used and sets
        its limits, and creates an unused one again.

        :param options: of the new image; None for those of its pool's tier
        :raises AlreadyExistsError: the image exists and is not a clone of the snapshot
        :raises BusyError: an unused clone exists and is open, perhaps at a client that died
        """
        self._call('clone', snapshot=snapshot, image=image, qos=qos, options=options)

    def set_qos(self, image: image_types.ImageRef, qos: image_types.Qos) -> None:
        """Set the limits of an image; clients that have it open apply them within seconds."""
        self._call('set_qos', image=image, qos=qos)

    def unfence(self, image: image_types.ImageRef) -> None:
        """Take the fenced clients of an image off the blocklist; they must be known to be dead."""
        self._call('unfence', image=image)

    def trash(
        self, image: image_types.ImageRef, image_id: str | None = None
    ) -> image_types.TrashedImage:
        """Move an image to the trash, which frees its name; its clones still read from it.

        :param image_id: the expected id; an image with this name but another id is not moved
        :raises NotFoundError: there is no image with this name, or it has another id
        """
        return self._call('trash', image=image, image_id=image_id)

    def restore(self, pool: str, image_id: str, name: str) -> None:
        """Restore an image from the trash."""
        self._call('restore', pool=pool, image_id=image_id, name=name)

    # Jobs.

    def start(self, operation_id: str, work: tasks.Task) -> tasks.Job:
        """Start a job, or resume one that was interrupted, failed or canceled.

        Repeating the request returns the same job, so a caller may repeat it if no answer came.

        :param operation_id: chosen by the caller, the same each time that the operation runs
        :raises InvalidRequestError: the operation id exists with another task
        :raises BusyError: another operation holds a lock of the task; the message names it
        """
        return self._call('start', operation_id=operation_id, work=work)

    def find_job(self, operation_id: str) -> tasks.Job:
        """Return a job with its progress.

        :raises NotFoundError: there is no record of the job, or it has expired
        """
        return self._call('find_job', operation_id=operation_id)

    def list_jobs(self) -> list[tasks.Job]:
        """Return all recorded jobs, latest first.

        :raises CephUnreachableError: a pool that may have more jobs does not answer
        """
        return self._call('list_jobs')

    def survey_jobs(self) -> tuple[list[tasks.Job], list[str]]:
        """Return the jobs of all pools that answer, latest first, and the pools that do not."""
        return self._call('survey_jobs')

    def cancel(self, operation_id: str) -> tasks.Job:
        """Request the cancellation of a job, which may complete before it is canceled."""
        return self._call('cancel', operation_id=operation_id)

    def run(
        self,
        operation_id: str,
        work: tasks.Task,
        timeout_sec: float,
        progress: Callable[[tasks.Job], None] = lambda _: None,
    ) -> Any:
        """Start a job, wait for its end, and return its result.

        If the copy of the service that runs it dies, the job is started again and another copy
        resumes it. While the service or Ceph does not answer, the call waits. It may be repeated
        at any time with the same arguments.

        :param timeout_sec: for the whole call
        :param progress: called with the job at each poll
        :raises StillRunningError: the time is up; the job continues
        :raises CanceledError: the job was canceled
        :raises InvalidRequestError: another pool has a job with this id, with other work
        :raises StorageError: the error of the job, as its own class
        """
        deadline = waiting.Deadline(timeout_sec, self._clock, self._sleep)
        found: tasks.Job | None = None
        pause_sec = _FIRST_POLL_SEC
        while True:
            try:
                if found is None or found.state is tasks.JobState.INTERRUPTED:
                    found = self.start(operation_id, work)
                else:
                    found = self.find_job(operation_id)
            except (exceptions.ServiceUnavailableError, exceptions.CephUnreachableError) as error:
                if not deadline.left_sec:
                    raise
                LOG.warning('%s: %s', operation_id, error)
            else:
                _check_work(found, work)
                progress(found)
                if found.state is not tasks.JobState.INTERRUPTED and not found.state.is_active:
                    return _result(found)
            if not deadline.pause(pause_sec):
                raise exceptions.StillRunningError(
                    f'{found or operation_id}: not done after {timeout_sec:.0f} s'
                )
            pause_sec = min(pause_sec * _BACK_OFF, _LONGEST_POLL_SEC)

    def _call(self, verb: str, **arguments: Any) -> Any:
        with self._errors(verb):
            return self._client.call({}, verb, **arguments)

    @contextlib.contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except messaging.MessagingTimeout as error:
            raise exceptions.ServiceUnavailableError(
                f'{TOPIC}: no answer to {verb} within {self._timeout_sec:.0f} s; check that the '
                'service runs'
            ) from error
        except messaging.MessagingException as error:
            raise exceptions.ServiceUnavailableError(f'{TOPIC}: {verb}: {error}') from error


def _check_work(found: tasks.Job, work: tasks.Task) -> None:
    """Refuse a job of the same id that works on something else.

    The id of an image is unique in its pool only, and the result of a fence is a proof.

    :raises InvalidRequestError: it does
    """
    if type(found.work) is not type(work) or found.work.locks[:1] != work.locks[:1]:
        raise exceptions.InvalidRequestError(
            f'{found.operation_id}: is the id of another job: {found.work}, expected {work}'
        )


def _result(found: tasks.Job) -> Any:
    if found.state is tasks.JobState.CANCELED:
        raise exceptions.CanceledError(f'{found}: was canceled')
    found.raise_error()
    return found.result
