# SPDX-License-Identifier: Apache-2.0
"""The keeper as a part of a service: a sweep from time to time, and single volumes at once.

Several processes may do this for the same volumes: what one has done the others find done.
"""

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


class QosService:
    """Two threads: a sweep does not keep a volume waiting that was just resized.

    :param interval_sec: from the end of a sweep to the next one; the first begins at the start
    :param listen: given what takes the id of a changed volume, returns a listener as
        :func:`events.listener` does; None where nobody tells
    """

    def __init__(
        self,
        keeper: reconciler.Reconciler,
        interval_sec: float,
        listen: Callable[[Callable[[str], None]], Any] | None = None,
    ):
        self._keeper = keeper
        self._interval_sec = interval_sec
        self._stopping = threading.Event()
        self._changed: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._listener = listen(self._changed.put) if listen else None
        self._threads = [
            threading.Thread(target=self._sweep, name='qos-sweep', daemon=True),
            threading.Thread(target=self._follow, name='qos-follow', daemon=True),
        ]

    def start(self) -> None:
        """Begin; returns at once."""
        for thread in self._threads:
            thread.start()
        if self._listener:
            self._listener.start()

    def stop(self, timeout_sec: float) -> bool:
        """End when the volume at hand is done with, and return whether that was in time."""
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
                self._keeper.sweep(self._stopping.is_set)
            except exceptions.TroveCephError as error:
                LOG.error('The limits of volumes cannot be kept: %s', error)
            except Exception:
                LOG.exception('The limits of volumes cannot be kept')
            self._stopping.wait(self._interval_sec)

    def _follow(self) -> None:
        while volume_id := self._changed.get():
            if self._stopping.is_set():
                continue
            try:
                self._keeper.keep(volume_id)
            except exceptions.TroveCephError as error:
                LOG.warning('Limits of volume %s wait for a sweep: %s', volume_id, error)
            except Exception:
                LOG.exception('Limits of volume %s wait for a sweep', volume_id)


def of_configuration(conf: cfg.ConfigOpts, tiers_path: str, storage: backend.Backend) -> QosService:
    """Return the agent that the options of ``[trove_ceph_qos]`` describe.

    :param tiers_path: the tiers file
    :param storage: the cluster of the tiers
    :raises InvalidTiersError: the tiers file cannot be used
    :raises cfg.Error: options are missing or wrong
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
