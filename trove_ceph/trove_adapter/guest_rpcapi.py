# SPDX-License-Identifier: Apache-2.0
"""The taskmanager's calls to our guest manager, beyond those of Trove."""

import dataclasses
import json
from collections.abc import Collection, Mapping
from typing import Any

import oslo_messaging as messaging
from trove.common import exception as trove_exceptions
from trove.guestagent import api

from trove_ceph import exceptions
from trove_ceph.mysql import tuning
from trove_ceph.strategies.replacement.dependencies import StartProgress, StartState

#: The largest answer that is accepted from a guest, as JSON.
MAX_ANSWER_BYTES = 4 * 1024**2
#: Of a reason that a guest gives.
MAX_ERROR_CHARACTERS = 500
_RELEASE_TIMEOUT_SEC = 60
#: In the error of an agent that does not know a request, or one of its arguments: of the dispatcher
#: of oslo.messaging, and of Python.
_OUTDATED = ('does not support RPC method', 'got an unexpected keyword argument')


class GuestAPI(api.API):
    """The guest agent of one instance, with the calls of :mod:`trove_ceph.guestagent.manager`.

    Each raises GuestUnavailableError, with the agent's reason, if the agent refuses, fails or does
    not answer; GuestOutdatedError, if it does not know the request. All are safe to repeat.
    """

    def create_queue(self) -> None:
        """Create the queue of the agent, which keeps requests until the agent listens; idempotent.

        Otherwise the bus drops a request that comes earlier, and its sender waits in vain.
        """
        try:
            self._create_guest_queue()
        except Exception as error:
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: its queue cannot be created: {error}'
            ) from error

    def check_backup_settings(self) -> dict[str, Any]:
        """Return what makes a backup of the server unsafe, and at which quiesce levels."""
        return self._call_for_mapping('check_backup_settings')

    def quiesce_for_backup(
        self, backup_id: str, token: str, level: str, limit_sec: int
    ) -> dict[str, Any]:
        """Quiesce the server for one attempt; it resumes by itself after ``limit_sec``.

        :param token: random, for this attempt alone; after its release it can hold nothing
        """
        return self._call_for_mapping(
            'quiesce_for_backup',
            backup_id=backup_id,
            token=token,
            level=level,
            limit_sec=limit_sec,
        )

    def release_after_backup(self, backup_id: str, token: str) -> dict[str, Any]:
        """Release the server; ``held`` tells whether this attempt held it until now."""
        return self._call_for_mapping('release_after_backup', backup_id=backup_id, token=token)

    def trim_volume(self, max_age_sec: int) -> None:
        """Request a trim of the data volume; do not wait for it.

        An agent that does not know this request ignores it.

        :param max_age_sec: the agent skips the trim if the last one is no older than this
        """
        try:
            self._cast('trim_volume', version=self.API_BASE_VERSION, max_age_sec=max_age_sec)
        except trove_exceptions.GuestError as error:
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: trim_volume: {error}'
            ) from error

    def record_flattened(self) -> None:
        """Tell the guest that its volume reads from no other image, so that it may be trimmed."""
        # The short timeout keeps an absent guest from delaying the others.
        self._call_checked('record_flattened', timeout_sec=self.agent_low_timeout)

    def apply_tier(self, tier: tuning.Tier | None) -> bool:
        """Send the guest the I/O rate of its tier; return whether it differs from before.

        :param tier: None for a tier that promises no rate
        """
        rate = None if tier is None else dataclasses.asdict(tier)
        # The short timeout keeps an absent guest from delaying the others.
        return bool(self._call_checked('apply_tier', timeout_sec=self.agent_low_timeout, tier=rate))

    def start_moved_server(
        self,
        replacement_id: str,
        version: str,
        config_contents: str,
        config_overrides: Mapping[str, Any],
        server_id: str | None = None,
        is_replica: bool = False,
        semi_sync: Mapping[str, Any] | None = None,
    ) -> StartProgress:
        """Have the agent of a new server start MySQL on the moved volume; do not wait for it.

        The agent starts it once for each replacement, and again after it has answered FAILED.

        :param version: of the datastore version, the tag of MySQL's image
        :param config_contents: of my.cnf, as rendered for the flavor
        :param config_overrides: the options of the configuration group
        :param server_id: of the server whose agent is meant: that of another server of the same
            instance refuses, and its answer does not count; None: the instance has only one
        :param is_replica: the server refuses writes from the first moment on
        :param semi_sync: the arguments of :meth:`set_semi_sync`, for its start; None: it is off
        """
        # Agents of earlier releases, which do not know them, can start the only server, and one
        # that does not replicate. They refuse a replica, which would accept writes.
        meant: dict[str, Any] = {} if server_id is None else {'server_id': server_id}
        if is_replica or semi_sync is not None:
            meant |= {'is_replica': is_replica, 'semi_sync_options': semi_sync}
        return self._request_start(
            'start_moved_server',
            server_id,
            replacement_id=replacement_id,
            ds_version=version,
            config_contents=config_contents,
            config_overrides=dict(config_overrides),
            **meant,
        )

    def start_replica(
        self,
        request_id: str,
        version: str,
        config_contents: str,
        config_overrides: Mapping[str, Any],
        replica_context: Mapping[str, Any],
    ) -> StartProgress:
        """Have the agent start MySQL on a fresh clone and follow the source; do not wait for it.

        The agent starts it once for each request, and again after it has answered FAILED. For the
        other parameters see :meth:`start_moved_server`.

        :param replica_context: what :meth:`get_replica_context` of the source has returned
        """
        return self._request_start(
            'start_replica',
            None,
            request_id=request_id,
            ds_version=version,
            config_contents=config_contents,
            config_overrides=dict(config_overrides),
            replica_info=dict(replica_context),
        )

    def get_replica_context(self, replica_id: str | None = None) -> dict[str, Any]:
        """Create or renew the replication user of a replica on its source, and describe the source.

        :param replica_id: None: a new user with a random name
        """
        return self._call_for_mapping('get_replica_context', replica_id=replica_id)

    def drop_replication_users(self, keep_replica_ids: Collection[str]) -> None:
        """Drop the replication users of all replicas except of those that are named."""
        self._call_checked('drop_replication_users', keep_replica_ids=sorted(keep_replica_ids))

    def get_replication_status(self, timeout_sec: int | None = None) -> dict[str, Any]:
        """Return the fields of :class:`.replication_types.ReplicationStatus`, not validated.

        :param timeout_sec: None: as is usual for short requests
        """
        # The short timeout keeps an absent guest from delaying the others.
        return self._call_for_mapping(
            'get_replication_status', timeout_sec=timeout_sec or self.agent_low_timeout
        )

    def make_read_only(self, read_only: bool) -> None:
        """Make the server refuse or accept writes; waits for running statements that write."""
        self._call_checked('make_read_only', read_only=read_only)

    def wait_for_gtid(self, gtid_set: str, timeout_sec: int) -> bool:
        """Return whether the server executes a GTID set within the time, at most 30 s."""
        return bool(
            self._call_checked(
                'wait_for_gtid',
                timeout_sec=timeout_sec + self.agent_low_timeout,
                gtid_set=gtid_set,
                wait_sec=timeout_sec,
            )
        )

    def stop_receiving(self) -> None:
        """Have a replica receive no more transactions; it applies what it has received."""
        self._call_checked('stop_receiving')

    def attach_replica(
        self,
        replica_info: Mapping[str, Any],
        slave_config: str = '',
        restart: bool = False,
    ) -> None:
        """Have a running server follow a source; it becomes read-only and is not restarted.

        Trove's method of this name logs the password of the replication user.
        """
        self._call_checked(
            'attach_replica',
            replica_info=dict(replica_info),
            slave_config=slave_config,
            restart=restart,
        )

    def detach_replica(self, for_failover: bool = False) -> None:
        """Have a replica forget its source; it becomes writable unless ``for_failover``."""
        self._call_checked('detach_replica', for_failover=for_failover)

    def enable_as_master(self, replica_source_config: str = '') -> None:
        """Make a server writable that does not follow a source any more."""
        self._call_checked('enable_as_master', replica_source_config=replica_source_config)

    def demote_replication_master(self) -> None:
        """Make a source read-only as a replica is."""
        self._call_checked('demote_replication_master')

    def release_volume(self) -> None:
        """Stop MySQL and unmount the data volume; do nothing where that is done."""
        # MySQL may take longer to end; a repetition waits for it again.
        self._call_checked('release_volume', timeout_sec=_RELEASE_TIMEOUT_SEC)

    def set_semi_sync(self, as_source: bool, as_replica: bool, timeout_ms: int) -> None:
        """Switch semi-synchronous replication on or off, without a restart.

        :param as_source: a commit waits until a replica has received it
        :param as_replica: the server acknowledges what it has received
        :param timeout_ms: after which a commit of the source does not wait any longer
        """
        self._call_checked(
            'set_semi_sync', as_source=as_source, as_replica=as_replica, timeout_ms=timeout_ms
        )

    def _request_start(
        self, method: str, server_id: str | None, /, **arguments: Any
    ) -> StartProgress:
        answer = self._call_for_mapping(method, timeout_sec=self.agent_low_timeout, **arguments)
        if server_id is not None and answer.get('server_id') != server_id.lower():
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: {method}: the agent of server '
                f'{answer.get("server_id")!r:.50} answered, expected that of server {server_id}'
            )
        state, error = answer.get('state'), answer.get('error')
        if state not in list(StartState) or not isinstance(error, str):
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: {method}: answered with the state '
                f'{state!r:.100}, expected one of {", ".join(StartState)}'
            )
        return StartProgress(StartState(state), ' '.join(error.split())[:MAX_ERROR_CHARACTERS])

    def stop_server(self) -> None:
        """Stop MySQL; return when it has stopped."""
        self._call_checked('stop_db')

    def restart_server(self) -> None:
        """Start MySQL again, whether it runs or was stopped; return when it serves."""
        self._call_checked('restart')

    def _call(self, method_name, timeout_sec, version, **kwargs):
        """Call the agent as Trove does, but do not log the answer, which may have a password."""
        try:
            client = self.client.prepare(version=version, timeout=timeout_sec)
            return client.call(self.context, method_name, **kwargs)
        except messaging.MessagingTimeout as error:
            raise trove_exceptions.GuestTimeout() from error
        except messaging.RemoteError as error:
            raise trove_exceptions.GuestError(original_message=error.value) from error
        except Exception as error:
            raise trove_exceptions.GuestError(original_message=str(error)) from error

    def _call_checked(self, method: str, timeout_sec: int | None = None, **arguments: Any) -> Any:
        timeout_sec = timeout_sec or self.agent_high_timeout
        try:
            answer = self._call(method, timeout_sec, version=self.API_BASE_VERSION, **arguments)
        except trove_exceptions.GuestTimeout as error:
            raise exceptions.GuestSilentError(
                f'guest agent of instance {self.id}: {method}: {error}'
            ) from error
        except trove_exceptions.GuestError as error:
            text = f'guest agent of instance {self.id}: {method}: {error}'
            if any(sign in text for sign in _OUTDATED):
                raise exceptions.GuestOutdatedError(
                    f'{text}: the agent is of an earlier release, and so is its guest image; '
                    'rebuild the instance on the guest image of this release'
                ) from error
            raise exceptions.GuestUnavailableError(text) from error
        # The guest is not trusted: its answer may be of any size and type.
        size = len(json.dumps(answer, default=str))
        if size > MAX_ANSWER_BYTES:
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: {method}: answered with {size} bytes, '
                f'expected up to {MAX_ANSWER_BYTES}'
            )
        return answer

    def _call_for_mapping(
        self, method: str, timeout_sec: int | None = None, **arguments: Any
    ) -> dict[str, Any]:
        answer = self._call_checked(method, timeout_sec, **arguments)
        if not isinstance(answer, dict):
            raise exceptions.GuestUnavailableError(
                f'guest agent of instance {self.id}: {method}: answered with '
                f'{type(answer).__name__}, expected a mapping'
            )
        return answer
