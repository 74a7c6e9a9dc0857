# SPDX-License-Identifier: Apache-2.0
"""The guest agents of a source and of its replicas.

A guest is not trusted: of an answer, only fields that are validated are passed on, above all to
the guests of other instances.
"""

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from trove_ceph import exceptions
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replacement.dependencies import StartProgress
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.trove_adapter import guest_rpcapi, start_settings

#: Of one call of :meth:`ReplicationAgents.wait_for_gtid`.
MAX_WAIT_SEC = 30
_MAX_CERTIFICATE_CHARACTERS = 64 * 1024
_CERTIFICATE_PARTS = ('private_key', 'certificate', 'ca')
_USER = re.compile(r'slave_[0-9a-f]{1,26}', re.ASCII)
_PASSWORD = re.compile(r'[A-Za-z0-9_-]{8,32}', re.ASCII)
_UUID = re.compile(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}', re.ASCII)
_SSL_MODES = ('basic', 'enforced', 'mtls')


class ReplicationAgents:
    """The agents of instances that replicate.

    Each method raises GuestUnavailableError if the agent refuses, fails, does not answer or answers
    with something else than expected. All are safe to repeat.

    :param guest: returns the agent of an instance
    :param find_flavor: returns the facts of a flavor by its id
    """

    def __init__(
        self,
        guest: Callable[[str], guest_rpcapi.GuestAPI],
        find_flavor: Callable[[str], Any],
    ):
        self._guest = guest
        self._find_flavor = find_flavor

    def status(self, instance_id: str, timeout_sec: int | None = None) -> ReplicationStatus:
        """Return the replication of a server, whether it is a source, a replica or neither.

        :param timeout_sec: None: as is usual for short requests
        """
        answer = self._guest(instance_id).get_replication_status(timeout_sec)
        return _Answer(instance_id, 'get_replication_status', answer).status()

    def replica_context(self, instance_id: str, replica_id: str | None = None) -> dict[str, Any]:
        """Create or renew the replication user of a replica, and return how to follow its source.

        The password of the user is new each time; a replica that is connected stays connected.

        :param instance_id: of the source, which must not be read-only
        :param replica_id: None: a new user with a random name
        :returns: what Trove calls ``replica_info`` and ``snapshot``; it has a password
        """
        answer = self._guest(instance_id).get_replica_context(replica_id)
        return _Answer(instance_id, 'get_replica_context', answer).replica_context()

    def drop_replication_users(self, instance_id: str, keep_replica_ids: Collection[str]) -> None:
        """Drop the replication users of a source, except of those replicas."""
        self._guest(instance_id).drop_replication_users(keep_replica_ids)

    def make_read_only(self, instance_id: str, read_only: bool) -> None:
        """Make a server refuse all writes, or accept them again; it stays so after a restart.

        Every commit that was acknowledged is in ``gtid_executed`` afterwards. Fails, and leaves the
        server as it was, if a statement that writes does not end within some seconds.
        """
        self._guest(instance_id).make_read_only(read_only)

    def wait_for_gtid(self, instance_id: str, gtid_set: GtidSet, timeout_sec: int) -> bool:
        """Return whether a server executes a GTID set within the time; False: not yet.

        :param timeout_sec: at most MAX_WAIT_SEC; repeat the call to wait longer
        """
        return self._guest(instance_id).wait_for_gtid(str(gtid_set), min(timeout_sec, MAX_WAIT_SEC))

    def stop_receiving(self, instance_id: str) -> None:
        """Have a replica receive no more transactions; it applies what it has received."""
        self._guest(instance_id).stop_receiving()

    def attach(self, instance_id: str, replica_context: Mapping[str, Any]) -> None:
        """Have a running server follow a source, whether it follows another one or none.

        It becomes read-only before. It continues behind its own ``gtid_executed``.
        """
        self._guest(instance_id).attach_replica(replica_context)

    def detach(self, instance_id: str, for_failover: bool = False) -> None:
        """Have a replica forget its source.

        :param for_failover: it stays read-only, so that it has no transaction of its own; otherwise
            it becomes writable, and its events run
        """
        self._guest(instance_id).detach_replica(for_failover=for_failover)

    def enable_as_source(self, instance_id: str) -> None:
        """Make a server writable that has followed a source before, and have its events run.

        A server that still follows a source is refused.
        """
        self._guest(instance_id).enable_as_master()

    def demote_source(self, instance_id: str) -> None:
        """Make a source read-only as a replica is, also after a restart, and stop its events."""
        self._guest(instance_id).demote_replication_master()

    def release_volume(self, instance_id: str) -> None:
        """Stop MySQL and unmount the data volume, so that the volume can be detached."""
        self._guest(instance_id).release_volume()

    def start_replica(
        self, instance_id: str, request_id: str, replica_context: Mapping[str, Any]
    ) -> StartProgress:
        """Mount a fresh clone, start MySQL with a new identity, and follow; do not wait for it.

        The agent starts it once for each request, and again after it has answered FAILED.

        :raises ReplacementCanceledError: the instance is deleted
        """
        settings = self._settings(instance_id)
        return self._guest(instance_id).start_replica(
            request_id, settings.version, settings.contents, settings.overrides, replica_context
        )

    def start_on_old_volume(self, instance_id: str, request_id: str) -> StartProgress:
        """Mount the volume that the replica had before, and start MySQL; do not wait for it.

        It follows its source as before. See also :meth:`start_replica`.

        :raises ReplacementCanceledError: the instance is deleted
        """
        settings, guest = self._settings(instance_id), self._guest(instance_id)
        given = (request_id, settings.version, settings.contents, settings.overrides)
        try:
            # The root disk may be new.
            return guest.start_moved_server(*given, is_replica=True)
        except exceptions.GuestOutdatedError:
            # An agent of an earlier release has the options of a replica since its first start.
            return guest.start_moved_server(*given)

    def set_semi_sync(
        self, instance_id: str, as_source: bool, as_replica: bool, timeout_ms: int
    ) -> None:
        """Switch semi-synchronous replication of a server on or off, without a restart.

        :param timeout_ms: after which a commit of the source does not wait any longer
        """
        self._guest(instance_id).set_semi_sync(as_source, as_replica, timeout_ms)

    def _settings(self, instance_id: str) -> start_settings.StartSettings:
        return start_settings.load(f'replica {instance_id}', instance_id, self._find_flavor)


class _Answer:
    """An answer of a guest, of which each field that is read is validated."""

    def __init__(self, instance_id: str, method: str, fields: Mapping[str, Any]):
        self._subject = f'guest agent of instance {instance_id}: {method}'
        self._fields = fields

    def status(self) -> ReplicationStatus:
        return ReplicationStatus(
            server_uuid=self._matching('server_uuid', _UUID),
            gtid_executed=self._gtids('gtid_executed'),
            gtid_received=self._gtids('gtid_received'),
            is_replica=self._of_type('is_replica', bool),
            source_host=self._line('source_host'),
            source_uuid=self._line('source_uuid'),
            io_state=self._state('io_state'),
            sql_state=self._state('sql_state'),
            io_error=self._line('io_error'),
            sql_error=self._line('sql_error'),
            io_error_number=self._of_type('io_error_number', int),
            sql_error_number=self._of_type('sql_error_number', int),
            lag_sec=self._seconds('lag_sec'),
            is_read_only=self._of_type('is_read_only', bool),
            uptime_sec=self._seconds('uptime_sec'),
            semi_sync_source=self._of_type('semi_sync_source', bool),
            semi_sync_replica=self._of_type('semi_sync_replica', bool),
            semi_sync_clients=self._of_type('semi_sync_clients', int),
            semi_sync_waits=self._semi_sync_waits(),
        )

    def replica_context(self) -> dict[str, Any]:
        source = self._nested('master')
        user = self._nested('replica_conf')._nested('replication_user')
        context = {
            'master': {'host': source._address('host'), 'port': source._port('port')},
            'replica_conf': {
                'log_position': {},
                'replication_user': {
                    'name': user._matching('name', _USER),
                    'password': user._matching('password', _PASSWORD, is_secret=True),
                },
            },
        }
        if 'cert_container' in self._fields:
            files = self._nested('cert_container')
            context['cert_container'] = {
                part: files._certificate(part) for part in _CERTIFICATE_PARTS
            }
            context['ssl_mode'] = self._one_of('ssl_mode', _SSL_MODES)
        return context

    def _nested(self, name: str) -> '_Answer':
        nested = _Answer('', '', self._of_type(name, dict))
        nested._subject = f'{self._subject}: {name}'
        return nested

    def _of_type(self, name: str, kind: type) -> Any:
        value = self._fields.get(name)
        # A Boolean is an integer in Python, but not here.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self._error(name, type(value).__name__, kind.__name__)
        return value

    def _matching(self, name: str, form: re.Pattern, is_secret: bool = False) -> str:
        value = self._of_type(name, str)
        if not form.fullmatch(value):
            shown = 'another text' if is_secret else f'{value!r:.100}'
            raise self._error(name, shown, f'a text like {form.pattern}')
        return value

    def _gtids(self, name: str) -> GtidSet:
        try:
            return GtidSet.parse(self._of_type(name, str))
        except ValueError as error:
            raise self._error(
                name, f'a text that cannot be read ({error})', 'a GTID set'
            ) from error

    def _line(self, name: str) -> str:
        text = self._of_type(name, str)[: 2 * guest_rpcapi.MAX_ERROR_CHARACTERS]
        printable = ''.join(each if each.isprintable() else ' ' for each in text)
        return ' '.join(printable.split())[: guest_rpcapi.MAX_ERROR_CHARACTERS]

    def _one_of(self, name: str, values: Collection[str]) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str) or value not in values:
            raise self._error(name, f'{value!r:.100}', f'one of {", ".join(values)}')
        return value

    def _state(self, name: str) -> ThreadState:
        return ThreadState(self._one_of(name, list(ThreadState)))

    def _seconds(self, name: str) -> float | None:
        value = self._fields.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e10:
            raise self._error(name, f'{value!r:.100}', 'seconds')
        return float(value)

    def _semi_sync_waits(self) -> bool | None:
        name = 'semi_sync_waits'
        # An agent of an earlier release does not tell.
        return self._of_type(name, bool) if name in self._fields else None

    def _address(self, name: str) -> str:
        value = self._of_type(name, str)
        try:
            return str(ipaddress.ip_address(value))
        except ValueError as error:
            raise self._error(name, f'{value!r:.100}', 'an IP address') from error

    def _port(self, name: str) -> int:
        value = self._of_type(name, int)
        if not 0 < value < 65536:
            raise self._error(name, f'{value!r:.100}', 'a port')
        return value

    def _certificate(self, name: str) -> str:
        value = self._of_type(name, str)
        if len(value) > _MAX_CERTIFICATE_CHARACTERS:
            raise self._error(
                name, f'{len(value)} characters', f'up to {_MAX_CERTIFICATE_CHARACTERS}'
            )
        return value

    def _error(self, name: str, found: str, expected: str) -> exceptions.GuestUnavailableError:
        return exceptions.GuestUnavailableError(
            f'{self._subject}: answered with {found} as {name}, expected {expected}'
        )
