# SPDX-License-Identifier: Apache-2.0
"""Send signed requests to the storage service and accept only signed replies."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import oslo_messaging as messaging

from trove_ceph import exceptions, message_auth
from trove_ceph.storage_service import serializer, transport

#: The RPC method of the service; the verb is in the signed request.
METHOD = 'request'
#: The verb that tells the version. A service of version N.0 does not know it.
VERSION_VERB = 'version'
#: A copy of the service that sends no heartbeat for so long has died.
_SILENT_SEC = 30


class _OtherVersionError(Exception):
    """The service does not support the version of a request, by its unsigned reply."""


class SignedClient:
    """A client of oslo.messaging whose ``call`` signs requests and verifies replies.

    :param target: topic, exchange and version of the service
    :param timeout_sec: how long to wait for an answer; the service refuses the request after that
    :param now: seconds since the epoch
    """

    def __init__(
        self,
        connection: transport.Connection,
        target: messaging.Target,
        timeout_sec: float,
        now: Callable[[], float] = time.time,
    ):
        self._caller = message_auth.Caller(connection.keys, now)
        self._bus = messaging.get_rpc_client(connection.transport, target)
        self._target = target
        self._timeout_sec = timeout_sec

    def call(self, _context: Mapping[str, Any], verb: str, **arguments: Any) -> Any:
        """Send a request and return the answer.

        A verb that changes something takes two requests: the first reply names the copy of the
        service to address.

        :raises UnauthenticatedReplyError: the reply is not the service's answer to this request
        :raises VersionMismatchError: the service does not support the version of the target
        :raises TroveCephError: the answer is this error
        """
        try:
            return self._answer(verb, arguments)
        except _OtherVersionError as error:
            raise exceptions.VersionMismatchError(
                f'{verb}: {self._mismatch(self._find_version())}'
            ) from error

    def _answer(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        encoded = {name: serializer.encode(value) for name, value in arguments.items()}
        reply = self._request(verb, encoded, None)
        if 'address' in reply:
            reply = self._request(verb, encoded, message_auth.Address(**reply['address']))
        if 'error' in reply:
            raise exceptions.error_class(reply['error'])(reply['message'])
        if 'result' not in reply:
            raise exceptions.UnauthenticatedReplyError(f'{verb}: the reply has no result')
        return serializer.decode(reply['result'])

    def _find_version(self) -> str | None:
        """Return the version of the service, from its signed reply; None if none is near."""
        needed = _parse(self._target.version)[0]
        for major in (needed, needed - 1, needed + 1):
            try:
                reply = self._request(VERSION_VERB, {}, None, version=f'{major}.0')
            except _OtherVersionError:
                continue
            return str(reply.get('result', f'{major}.0'))
        return None

    def _mismatch(self, found: str | None) -> str:
        service, needed = self._target.topic, self._target.version
        if found is None:
            return (
                f'{service} has no RPC version near {needed}, which this caller needs; install one '
                'release of trove-ceph for the service and its callers'
            )
        if _parse(found)[0] > _parse(needed)[0]:
            return (
                f'{service} has RPC version {found}, and this caller needs {needed}; upgrade and '
                'restart the caller, trove-taskmanager or trove-ceph-manage'
            )
        # Another copy of the service than the one that refused may have answered.
        which = 'a copy of it is older' if _parse(found) >= _parse(needed) else 'it is older'
        return (
            f'{service} has RPC version {found}, and this caller needs {needed} or a later minor '
            f'version; {which}: upgrade and restart each {service}'
        )

    def _request(
        self,
        verb: str,
        arguments: Mapping[str, Any],
        address: message_auth.Address | None,
        **options: Any,
    ) -> dict[str, Any]:
        options['timeout'] = self._timeout_sec
        if address is not None:
            options['server'] = address.server
            if self._timeout_sec > _SILENT_SEC:
                options['call_monitor_timeout'] = _SILENT_SEC

        def send(message: dict[str, str]) -> Any:
            return self._send(verb, message, options)

        try:
            return self._caller.call(send, verb, arguments, self._timeout_sec, address)
        except message_auth.UnansweredError as error:
            raise exceptions.UnauthenticatedReplyError(f'{verb}: {error}') from error

    def _send(self, verb: str, message: dict[str, str], options: Mapping[str, Any]) -> Any:
        try:
            return self._bus.prepare(**options).call({}, METHOD, message=message)
        except messaging.UnsupportedVersion as error:
            raise _OtherVersionError(str(error)) from error
        except messaging.RemoteError as error:
            if error.exc_type == messaging.UnsupportedVersion.__name__:
                raise _OtherVersionError(error.value) from error
            # Only a service of another version answers so.
            raise exceptions.UnauthenticatedReplyError(
                f'{verb}: the reply is an unsigned error, {error.exc_type}; check that the service '
                'is of the same release'
            ) from error
        except messaging.MessagingException:
            raise
        except Exception as error:
            # oslo.messaging raises any built-in exception that a message names.
            raise exceptions.UnauthenticatedReplyError(
                f'{verb}: the reply is an unsigned error, {type(error).__name__}'
            ) from error


def _parse(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split('.'))
