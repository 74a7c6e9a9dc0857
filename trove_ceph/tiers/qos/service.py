# SPDX-License-Identifier: Apache-2.0
"""The reconciler as part of a service: periodic sweeps, and single volumes on notification.

Several processes may run this for the same volumes, because each change is idempotent.
"""

import dataclasses
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import keystoneauth1.exceptions
from keystoneauth1 import loading
from oslo_config import cfg
from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.cinder import connection
from trove_ceph.conf import qos as qos_conf
from trove_ceph.storage import backend
from trove_ceph.tiers import cinder, tiers_file
from trove_ceph.tiers.qos import events, reconciler

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep that has ended.

    :param ended_at: by the monotonic clock
    """

    report: reconciler.Report
    ended_at: float


class QosService:
    """Two threads, so that a sweep does not delay a volume that was just resized.

    :ivar last_sweep: the last one that was not aborted by an error; None: there is none yet
    :param limits: the reconciler
    :param interval_sec: from the end of a sweep to the next one; the first begins at the start
    :param listen: returns a listener as :func:`events.listener` does, which calls its argument with
        the id of each changed volume; None: there are no notifications
    """

    def __init__(
        self,
        limits: reconciler.Reconciler,
        interval_sec: float,
        listen: Callable[[Callable[[str], None]], Any] | None = None,
    ):
        self._reconciler = limits
        self._interval_sec = interval_sec
        self.last_sweep: Sweep | None = None
        self._stopping = threading.Event()
        self._changed: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._listener = listen(self._changed.put) if listen else None
        self._threads = [
            threading.Thread(target=self._sweep, name='qos-sweep', daemon=True),
            threading.Thread(target=self._follow, name='qos-follow', daemon=True),
        ]

    def start(self) -> None:
        """Start the threads and the listener; return at once."""
        for thread in self._threads:
            thread.start()
        if self._listener:
            self._listener.start()

    def stop(self, timeout_sec: float) -> bool:
        """Stop after the present volume, and return whether that was in time."""
        self._stopping.set()
        if self._listener:
            self._listener.stop()
            self._listener.wait()
        self._changed.put(None)
        deadline = time.monotonic() + timeout_sec
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _sweep(self) -> None:
        while not self._stopping.is_set():
            try:
                report = self._reconciler.sweep(self._stopping.is_set)
                self.last_sweep = Sweep(report, time.monotonic())
            except exceptions.TroveCephError as error:
                LOG.error('The sweep over the limits of volumes failed: %s', error)
            except Exception:
                LOG.exception('The sweep over the limits of volumes failed')
            self._stopping.wait(self._interval_sec)

    def _follow(self) -> None:
        while volume_id := self._changed.get():
            if self._stopping.is_set():
                continue
            try:
                self._reconciler.set_limits(volume_id)
            except exceptions.TroveCephError as error:
                LOG.warning(
                    'Setting the limits of volume %s failed; the next sweep retries: %s',
                    *(volume_id, error),
                )
            except Exception:
                LOG.exception(
                    'Setting the limits of volume %s failed; the next sweep retries', volume_id
                )


def of_configuration(conf: cfg.ConfigOpts, tiers_path: str, storage: backend.Backend) -> QosService:
    """Return the service that the options of ``[trove_ceph_qos]`` describe.

    :param tiers_path: path of the tiers file
    :param storage: the cluster of the tiers
    :raises InvalidTiersError: the tiers file is invalid
    :raises cfg.Error: an option is missing or invalid
    """
    group = qos_conf.GROUP.name
    options = conf[group]
    tiers_file.load(tiers_path)

    def listen(changed: Callable[[str], None]) -> Any:
        return events.listener(
            conf, options.notification_topics, options.notification_exchange, changed
        )

    return QosService(
        reconciler.Reconciler(lambda: tiers_file.load(tiers_path), _cinder(conf, group), storage),
        options.sweep_interval_sec,
        listen if options.notification_topics else None,
    )


def _cinder(conf: cfg.ConfigOpts, group: str) -> cinder.Cinder:
    if not conf[group].auth_type:
        raise cfg.RequiredOptError('auth_type', qos_conf.GROUP)
    try:
        auth = loading.load_auth_from_conf_options(conf, group)
        session = loading.load_session_from_conf_options(conf, group, auth=auth)
    except keystoneauth1.exceptions.ClientException as error:
        raise cfg.Error(f'[{group}]: {error}') from error
    adapter = loading.load_adapter_from_conf_options(
        conf, group, session=session, auth=auth, service_type='block-storage'
    )
    return cinder.Cinder(connection.connect_like(adapter))
