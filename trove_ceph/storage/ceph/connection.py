# SPDX-License-Identifier: Apache-2.0
"""One connection to a cluster, and the one place where Ceph's errors become ours."""

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

LOG = logging.getLogger(__name__)

_MISSING = {errno.ENOENT}
_EXISTS = {errno.EEXIST}
# A lock that its holder does not give away answers EROFS.
_BUSY = {errno.EBUSY, errno.ENOTEMPTY, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT}
# A client on the blocklist gets ESHUTDOWN, for ever.
_UNREACHABLE = {
    errno.ETIMEDOUT,
    errno.ESHUTDOWN,
    errno.ENOTCONN,
    errno.ECONNREFUSED,
    errno.EHOSTUNREACH,
    errno.EINTR,
}


class Connection:
    """Connects when it is first used, and anew after Ceph did not answer or cut it off.

    :param conf: path of the cluster's ceph.conf
    :param user: cephx name such as ``client.trove-ceph``; its keyring is where ceph.conf says
    :param connect_timeout_sec: for the first answer of a monitor
    :param operation_timeout_sec: for each single request, and for one that waits for an OSD to come
        back; shorter than an outage that should be survived is too short
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
            # What was written is on disk when Ceph says so.
            'rbd_cache': 'false',
            'rbd_default_clone_format': '2',
            # Deletes what it is told to, whatever the file says.
            'rbd_move_to_trash_on_remove': 'false',
            # Ceph 16.2 answers EINVAL to each lock that is to be broken if this is set.
            'rbd_blocklist_expire_seconds': '0',
        }
        self._lock = threading.Lock()
        self._cluster: rados.Rados | None = None
        # Those that were cut off, until nobody uses them any more.
        self._forgotten: set[rados.Rados] = set()
        self._users: collections.Counter[rados.Rados] = collections.Counter()

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
                # It has opened sockets, and keeps them.
                cluster.shutdown()
            if error.errno == errno.ENOENT:
                raise exceptions.StorageError(
                    f'{subject}: there is no such file, or no keyring of this user'
                ) from error
            if error.errno in (errno.EACCES, errno.EPERM):
                raise exceptions.StorageError(f'{subject}: {_reason(error)}') from error
            raise exceptions.CephUnreachableError(f'{subject}: {_reason(error)}') from error
        LOG.info('Connected to Ceph %s as %s', cluster.get_fsid(), self._user)
        return cluster

    def another(self) -> 'Connection':
        """A connection of its own to the same cluster: another client in the eyes of Ceph."""
        return Connection(self._conf, self._user, *self._timeouts)

    def close(self) -> None:
        """Disconnect, when nothing is open any more."""
        self._forget()
        self._shut_down_unused()

    def _forget(self) -> None:
        """Let the next request connect anew; what other threads still do goes on as it can.

        A client whose requests end before objecter_timeout (10 s) never asks for a newer map, and
        would look for restarted OSDs at their old addresses for ever.
        """
        with self._lock:
            if self._cluster is not None:
                self._forgotten.add(self._cluster)
                self._cluster = None

    def _shut_down_unused(self) -> None:
        """Give back threads and sockets of what was forgotten, which nothing else does."""
        with self._lock:
            unused = {one for one in self._forgotten if not self._users[one]}
            self._forgotten -= unused
            for cluster in unused:
                del self._users[cluster]
        for cluster in unused:
            cluster.shutdown()

    @contextlib.contextmanager
    def using(self) -> Iterator[rados.Rados]:
        """Keep the connected handle while it is used, also when it is forgotten meanwhile.

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
        """Open a pool, so that writing to a full one fails instead of waiting."""
        with self.using() as cluster:
            with self.translated(f'pool {name}'):
                context = cluster.open_ioctx(name)
            # CEPH_OSD_FLAG_FULL_TRY: the OSDs answer EDQUOT or ENOSPC. librbd hands it on to what
            # it opens with this context, a data pool included.
            context.set_osdmap_full_try()
            try:
                yield context
            finally:
                context.close()

    @contextlib.contextmanager
    def translated(self, subject: str, pools: Sequence[str] = ()) -> Iterator[None]:
        """Turn what Ceph's libraries raise into this package's errors.

        :param subject: what the message begins with: the verb and the object
        :param pools: whose fill the message tells when there is no space
        """
        try:
            yield
        except (rados.Error, rbd.Error) as error:
            raise self.translate(error, subject, pools) from error

    def translate(
        self, error: Exception, subject: str, pools: Sequence[str] = ()
    ) -> exceptions.StorageError:
        """Return the error of this package that says the same; no text of Ceph's goes into it."""
        code = getattr(error, 'errno', None)
        message = f'{subject}: {_reason(error)}'
        if code in _MISSING:
            return exceptions.NotFoundError(message)
        if code in _EXISTS:
            return exceptions.AlreadyExistsError(message)
        if code in _BUSY:
            return exceptions.BusyError(message)
        if code in _FULL:
            return exceptions.NoSpaceError('; '.join([message, *self._fills(pools)]))
        if code in _UNREACHABLE:
            self._forget()
            return exceptions.CephUnreachableError(message)
        return exceptions.StorageError(message)

    def _fills(self, pools: Sequence[str]) -> list[str]:
        try:
            return [str(self.usage(pool)) for pool in dict.fromkeys(pools)]
        except exceptions.StorageError:
            return []

    def ask(self, prefix: str, **arguments: Any) -> Any:
        """Ask the monitors and return the decoded answer."""
        request = json.dumps({'prefix': prefix, 'format': 'json', **arguments})
        with self.using() as cluster, self.translated(prefix):
            code, output, _ = cluster.mon_command(request, b'')
            if code:
                raise rados.OSError(prefix, errno=-code)
        # Lists of lists come one after another, unseparated.
        return json.JSONDecoder().raw_decode(output.decode())[0] if output.strip() else None

    def usage(self, pool: str) -> image_types.PoolUsage:
        """Tell how full a pool is.

        :raises NotFoundError: there is no such pool
        """
        details = _by_name(self.ask('osd pool ls', detail='detail'), 'pool_name', pool)
        stats = _by_name(self.ask('df')['pools'], 'name', pool)['stats']
        stored, available = stats['stored'], stats['max_avail']
        fill = stats['percent_used']
        if quota := details['quota_max_bytes']:
            fill = max(fill, stored / quota)
            available = min(available, max(0, quota - stored))
        flags = details['flags_names'].split(',')
        return image_types.PoolUsage(
            pool=pool,
            stored_bytes=stored,
            used_bytes=stats['bytes_used'],
            available_bytes=available,
            fill=fill,
            near_full='nearfull' in flags or 'backfillfull' in flags,
            full='full' in flags,
        )


def _by_name(rows: list[dict[str, Any]], key: str, name: str) -> dict[str, Any]:
    for row in rows:
        if row[key] == name:
            return row
    raise exceptions.NotFoundError(f'pool {name}: there is none')


def _reason(error: Exception) -> str:
    code = getattr(error, 'errno', None)
    return os.strerror(code) if code else type(error).__name__
