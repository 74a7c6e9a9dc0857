# SPDX-License-Identifier: Apache-2.0
"""What trove-taskmanager and the commands ask of the storage service, over the bus.

Needs no Ceph. Errors of the service come back as their own classes, with the message alone.
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

#: Whatever exchange the caller's own services use.
EXCHANGE = 'trove_ceph'
TOPIC = 'trove-ceph-storage'
#: The least that the service must understand.
VERSION = '2.0'
#: Longer than one request to Ceph may take (operation_timeout_sec).
DEFAULT_TIMEOUT_SEC = 180

_FIRST_POLL_SEC = 0.2
_LONGEST_POLL_SEC = 5.0
_BACK_OFF = 1.5


def connect(conf: cfg.ConfigOpts) -> transport.Connection:
    """Return the connection to the service that ``[trove_ceph_storage]`` describes.

    :raises InvalidTransportError: the service has no transport of its own
    :raises KeyFileError: there are no keys to sign with
    """
    return transport.connect(conf)


class StorageAPI:
    """The verbs of the storage service.

    Each may raise ServiceUnavailableError, when nobody answers, or nobody who can prove to be the
    service: the request may have been carried out. NotPermittedError tells that the verb may not be
    used on what is not ours (:mod:`trove_ceph.storage_service.permissions`). InvalidRequestError
    tells what must be corrected, and CephUnreachableError may be tried again; the errors of the
    verbs themselves are those of :mod:`trove_ceph.storage.backend`.

    :param connection: made by ``connect``
    :param timeout_sec: how long an answer is waited for
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
        self._timeout_sec = timeout_sec
        self._clock = clock
        self._sleep = sleep

    # Looking.

    def describe(
        self, image: image_types.ImageRef, with_usage: bool = False
    ) -> image_types.ImageFacts:
        """Describe an image.

        :param with_usage: count the space it uses, which takes longer the larger the image is
        """
        return self._ask('describe', image=image, with_usage=with_usage)

    def list_images(self, pool: str, prefix: str = '') -> Iterator[image_types.ListedImage]:
        """List the images of a pool whose names begin so, in their order, page by page.

        What is made or removed meanwhile may be in the list or not.
        """
        after = ''
        while True:
            page = self._ask(
                'list_images', pool=pool, prefix=prefix, after=after, limit=serializer.MAX_LISTED
            )
            yield from page
            if len(page) < serializer.MAX_LISTED:
                return
            after = page[-1].image.name

    def list_trash(self, pool: str) -> list[image_types.TrashedImage]:
        """List what lies in the trash of a pool."""
        return self._ask('list_trash', pool=pool)

    def usage(self, pool: str) -> image_types.PoolUsage:
        """Tell how full a pool is."""
        return self._ask('usage', pool=pool)

    def usage_of_tier(self, tier: str) -> list[image_types.PoolUsage]:
        """Tell how full the pools of a tier are, that of the images first."""
        return self._ask('usage_of_tier', tier=tier)

    # Changing, soon over.

    def create_snapshot(self, snapshot: image_types.SnapshotRef) -> image_types.SnapshotFacts:
        """Make a snapshot; nobody is asked to pause.

        :raises AlreadyExistsError: there is one of this name, perhaps by an earlier attempt
        """
        return self._ask('create_snapshot', snapshot=snapshot)

    def remove_snapshot(self, snapshot: image_types.SnapshotRef) -> None:
        """Remove a snapshot; clones made of it keep what they read.

        :raises BusyError: it is being copied or verified
        """
        self._ask('remove_snapshot', snapshot=snapshot)

    def rename_snapshot(
        self, snapshot: image_types.SnapshotRef, name: str
    ) -> image_types.SnapshotFacts:
        """Give a snapshot another name; clones and clients take no notice.

        :raises AlreadyExistsError: there is one of this name
        :raises NotFoundError: it is not there; an earlier attempt may have renamed it
        :raises BusyError: it is being copied or verified
        """
        return self._ask('rename_snapshot', snapshot=snapshot, name=name)

    def clone(
        self,
        snapshot: image_types.SnapshotRef,
        image: image_types.ImageRef,
        qos: image_types.Qos,
        options: image_types.ImageOptions | None = None,
    ) -> None:
        """Make a clone, in any of the service's pools, and set its limits.

        Again after it was interrupted, it sets the limits of the clone that is there, and makes
        anew what was not written to.

        :param options: how it is made; None: as its pool's tier says
        :raises AlreadyExistsError: something else has the name
        :raises BusyError: it is there and was not used, and is open, perhaps at a client that died
        """
        self._ask('clone', snapshot=snapshot, image=image, qos=qos, options=options)

    def set_qos(self, image: image_types.ImageRef, qos: image_types.Qos) -> None:
        """Set the limits of an image; clients that have it open follow within seconds."""
        self._ask('set_qos', image=image, qos=qos)

    def unfence(self, image: image_types.ImageRef) -> None:
        """Let clients that were fenced off an image in again, which must be known to be dead."""
        self._ask('unfence', image=image)

    def trash(
        self, image: image_types.ImageRef, image_id: str | None = None
    ) -> image_types.TrashedImage:
        """Move an image out of the way of its name; its clones go on reading from it.

        :param image_id: which it must be: another image that was made by this name stays
        :raises NotFoundError: there is no image of this name, or it is another one
        """
        return self._ask('trash', image=image, image_id=image_id)

    def restore(self, pool: str, image_id: str, name: str) -> None:
        """Take an image out of the trash again."""
        self._ask('restore', pool=pool, image_id=image_id, name=name)

    # Long.

    def start(self, operation_id: str, work: tasks.Task) -> tasks.Job:
        """Begin work, or carry on with what was interrupted, failed or canceled.

        The same request again returns the same job, so it may be repeated when no answer came.

        :param operation_id: chosen by the caller, the same whenever the operation is run again
        :raises InvalidRequestError: it is known with other work
        :raises BusyError: another operation holds what is worked on; the message names it
        """
        return self._ask('start', operation_id=operation_id, work=work)

    def find_job(self, operation_id: str) -> tasks.Job:
        """Tell how far a job is.

        :raises NotFoundError: there is none, or it is forgotten
        """
        return self._ask('find_job', operation_id=operation_id)

    def list_jobs(self) -> list[tasks.Job]:
        """Return all jobs that are remembered, the latest first.

        :raises CephUnreachableError: a pool does not answer, in which there may be others
        """
        return self._ask('list_jobs')

    def survey_jobs(self) -> tuple[list[tasks.Job], list[str]]:
        """Return the jobs of all pools that answer, the latest first, and the pools that do not."""
        return self._ask('survey_jobs')

    def cancel(self, operation_id: str) -> tasks.Job:
        """Have a job end soon; it may be done before it hears of that."""
        return self._ask('cancel', operation_id=operation_id)

    def run(
        self,
        operation_id: str,
        work: tasks.Task,
        timeout_sec: float,
        progress: Callable[[tasks.Job], None] = lambda _: None,
    ) -> Any:
        """Start work, wait for it, and return its result.

        When the copy of the service that does it dies, another is asked to carry on; while nobody
        answers, or Ceph does not, it waits. Safe to be called again at any time, with the same
        arguments.

        :param timeout_sec: for all of it
        :param progress: called with the job whenever it was looked at
        :raises StillRunningError: the time is up; the work goes on
        :raises CanceledError: somebody canceled it
        :raises StorageError: what made it fail, as its own class
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
                progress(found)
                if found.state is not tasks.JobState.INTERRUPTED and not found.state.is_active:
                    return _result(found)
            if not deadline.pause(pause_sec):
                raise exceptions.StillRunningError(
                    f'{found or operation_id}: not done after {timeout_sec:.0f} s'
                )
            pause_sec = min(pause_sec * _BACK_OFF, _LONGEST_POLL_SEC)

    def _ask(self, verb: str, **arguments: Any) -> Any:
        with self._errors(verb):
            return self._client.call({}, verb, **arguments)

    @contextlib.contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except messaging.MessagingTimeout as error:
            raise exceptions.ServiceUnavailableError(
                f'{TOPIC}: no answer to {verb} within {self._timeout_sec:.0f} s; is it running?'
            ) from error
        except messaging.MessagingException as error:
            raise exceptions.ServiceUnavailableError(f'{TOPIC}: {verb}: {error}') from error


def _result(found: tasks.Job) -> Any:
    if found.state is tasks.JobState.CANCELED:
        raise exceptions.CanceledError(f'{found}: was canceled')
    found.raise_error()
    return found.result
