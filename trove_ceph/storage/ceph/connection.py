# SPDX-License-Identifier: Apache-2.0
"""Connect to a cluster, and translate the errors of Ceph's libraries to this package's."""

import collections
import contextlib
import errno
import json
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import rados
import rbd
from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.storage.ceph import silent_pools

LOG = logging.getLogger(__name__)

_MISSING = {errno.ENOENT}
_EXISTS = {errno.EEXIST}
# librbd answers EROFS if the holder of a lock does not release it.
_BUSY = {errno.EBUSY, errno.ENOTEMPTY, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT}
# A client on the blocklist gets ESHUTDOWN for every request.
_UNREACHABLE = {
    errno.ETIMEDOUT,
    errno.ESHUTDOWN,
    errno.ENOTCONN,
    errno.ECONNREFUSED,
    errno.EHOSTUNREACH,
    errno.EINTR,
}


class Connection:
    """Connects at its first use, and again after Ceph did not answer or blocklisted the client.

    :param conf: path of the cluster's ceph.conf
    :param user: cephx name such as ``client.trove-ceph``; ceph.conf names its keyring
    :param connect_timeout_sec: for the first answer of a monitor
    :param operation_timeout_sec: for each request, including the time in which an OSD restarts; it
        should exceed the outages that requests are to survive
    """

    def __init__(
        self,
        conf: str,
        user: str,
        connect_timeout_sec: int = 20,
        operation_timeout_sec: int = 120,
    ):
        self._timeouts = (connect_timeout_sec, operation_timeout_sec)
        self._conf = conf
        self._user = user
        self._options = {
            'client_mount_timeout': str(connect_timeout_sec),
            'rados_mon_op_timeout': str(operation_timeout_sec),
            'rados_osd_op_timeout': str(operation_timeout_sec),
            # A write is on disk when Ceph acknowledges it.
            'rbd_cache': 'false',
            'rbd_default_clone_format': '2',
            # Otherwise librbd reads the data of a write when Python may have freed it.
            'rbd_disable_zero_copy_writes': 'true',
            # Remove images even if the file sets this option.
            'rbd_move_to_trash_on_remove': 'false',
            # With another value, Ceph 16.2 to 20.2 answers EINVAL to every request to break a lock.
            'rbd_blocklist_expire_seconds': '0',
        }
        self._lock = threading.Lock()
        self._cluster: rados.Rados | None = None
        # Handles that failed, until no thread uses them any more.
        self._discarded: set[rados.Rados] = set()
        self._users: collections.Counter[rados.Rados] = collections.Counter()
        self.silent_pools = silent_pools.SilentPools(self.pool)

    @property
    def cluster(self) -> rados.Rados:
        """The connected handle.

        :raises CephUnreachableError: no monitor answered in time
        """
        with self._lock:
            return self._connected()

    def _connected(self) -> rados.Rados:
        if self._cluster is None:
            self._cluster = self._connect()
        return self._cluster

    def _connect(self) -> rados.Rados:
        subject = f'connecting as {self._user} by {self._conf}'
        cluster = None
        try:
            cluster = rados.Rados(name=self._user, conffile=self._conf, conf=self._options)
            cluster.connect()
        except rados.Error as error:
            if cluster is not None:
                # Otherwise its sockets stay open.
                cluster.shutdown()
            if error.errno == errno.ENOENT:
                raise exceptions.StorageError(
                    f'{subject}: the file does not exist, or there is no keyring of this user'
                ) from error
            if error.errno in (errno.EACCES, errno.EPERM):
                raise exceptions.StorageError(f'{subject}: {_reason(error)}') from error
            raise exceptions.CephUnreachableError(f'{subject}: {_reason(error)}') from error
        LOG.info('Connected to Ceph %s as %s', cluster.get_fsid(), self._user)
        return cluster

    def new_client(self) -> 'Connection':
        """Return another connection to the same cluster, which is another client for Ceph."""
        return Connection(self._conf, self._user, *self._timeouts)

    def close(self) -> None:
        """Disconnect as soon as no thread uses the connection."""
        self._discard()
        self._shut_down_unused()

    def _discard(self) -> None:
        """Make the next request connect again; other threads may still use the old handle.

        A client whose requests time out before objecter_timeout (10 s) never requests a newer map,
        so it would try to reach restarted OSDs at their old addresses for ever.
        """
        with self._lock:
            if self._cluster is not None:
                self._discarded.add(self._cluster)
                self._cluster = None

    def _shut_down_unused(self) -> None:
        """Release the threads and sockets of discarded handles that no thread uses."""
        with self._lock:
            unused = {one for one in self._discarded if not self._users[one]}
            self._discarded -= unused
            for cluster in unused:
                del self._users[cluster]
        for cluster in unused:
            cluster.shutdown()

    @contextlib.contextmanager
    def using(self) -> Iterator[rados.Rados]:
        """Yield the connected handle, which stays usable even if it is discarded meanwhile.

        :raises CephUnreachableError: no monitor answered in time
        """
        with self._lock:
            cluster = self._connected()
            self._users[cluster] += 1
        try:
            yield cluster
        finally:
            with self._lock:
                self._users[cluster] -= 1
            self._shut_down_unused()

    @contextlib.contextmanager
    def pool(self, name: str) -> Iterator[rados.Ioctx]:
        """Open a pool such that writes fail, rather than wait, when it is full."""
        with self.using() as cluster:
            with self.translated(f'pool {name}'):
                context = cluster.open_ioctx(name)
            # CEPH_OSD_FLAG_FULL_TRY: the OSDs answer EDQUOT or ENOSPC. librbd passes it on to what
            # it opens with this context, including a data pool.
            context.set_osdmap_full_try()
            try:
                yield context
            finally:
                context.close()

    @contextlib.contextmanager
    def translated(self, subject: str, pools: Sequence[str] = ()) -> Iterator[None]:
        """Translate the exceptions of Ceph's libraries to this package's errors.

        :param subject: verb and object, with which the message begins
        :param pools: pools whose usage the message includes if there is no space
        """
        try:
            yield
        except (rados.Error, rbd.Error) as error:
            raise self.translate(error, subject, pools) from error

    def translate(
        self, error: Exception, subject: str, pools: Sequence[str] = ()
    ) -> exceptions.StorageError:
        """Return the corresponding error of this package, without text from Ceph."""
        code = getattr(error, 'errno', None)
        message = f'{subject}: {_reason(error)}'
        if code in _MISSING:
            return exceptions.NotFoundError(message)
        if code in _EXISTS:
            return exceptions.AlreadyExistsError(message)
        if code in _BUSY:
            return exceptions.BusyError(message)
        if code in _FULL:
            return exceptions.NoSpaceError('; '.join([message, *self._usages(pools)]))
        if code in _UNREACHABLE:
            self._discard()
            return exceptions.CephUnreachableError(message)
        return exceptions.StorageError(message)

    def _usages(self, pools: Sequence[str]) -> list[str]:
        try:
            return [str(self.usage(pool)) for pool in dict.fromkeys(pools)]
        except exceptions.StorageError:
            return []

    def mon_command(self, prefix: str, **arguments: Any) -> Any:
        """Send a command to the monitors and return the decoded answer."""
        request = json.dumps({'prefix': prefix, 'format': 'json', **arguments})
        with self.using() as cluster, self.translated(prefix):
            code, output, _ = cluster.mon_command(request, b'')
            if code:
                raise rados.OSError(prefix, errno=-code)
        # Several lists come one after another, without a separator.
        return json.JSONDecoder().raw_decode(output.decode())[0] if output.strip() else None

    def mgr_command(self, subject: str, prefix: str, **arguments: Any) -> Any:
        """Send a command to the active manager and return the decoded answer.

        It waits as long as there is no active manager.

        :param subject: verb and object, with which the message of an error begins
        """
        request = json.dumps({'prefix': prefix, 'format': 'json', **arguments})
        with self.using() as cluster, self.translated(subject):
            code, output, _ = cluster.mgr_command(request, b'')
            if code:
                raise rados.OSError(prefix, errno=-code)
        return json.loads(output)

    def check_pool(self, pool: str) -> None:
        """Check that a pool exists.

        :raises NotFoundError: it does not
        """
        _by_name(self.mon_command('osd pool ls', detail='detail'), 'pool_name', pool)

    def usage(self, pool: str) -> image_types.PoolUsage:
        """Return the space usage of a pool.

        :raises NotFoundError: the pool does not exist
        """
        details = _by_name(self.mon_command('osd pool ls', detail='detail'), 'pool_name', pool)
        stats = _by_name(self.mon_command('df')['pools'], 'name', pool)['stats']
        stored, available = stats['stored'], stats['max_avail']
        fill = stats['percent_used']
        if quota := details['quota_max_bytes']:
            fill = max(fill, stored / quota)
            available = min(available, max(0, quota - stored))
        flags = details['flags_names'].split(',')
        full = 'full' in flags
        if full:
            # Ceph sets the flag from other statistics, which may be seconds ahead of these.
            fill, available = max(fill, 1.0), 0
        return image_types.PoolUsage(
            pool=pool,
            stored_bytes=stored,
            used_bytes=stats['bytes_used'],
            available_bytes=available,
            fill=fill,
            near_full='nearfull' in flags or 'backfillfull' in flags,
            full=full,
        )


def _by_name(rows: list[dict[str, Any]], key: str, name: str) -> dict[str, Any]:
    for row in rows:
        if row[key] == name:
            return row
    raise exceptions.NotFoundError(f'pool {name}: does not exist')


def _reason(error: Exception) -> str:
    code = getattr(error, 'errno', None)
    return os.strerror(code) if code else type(error).__name__
