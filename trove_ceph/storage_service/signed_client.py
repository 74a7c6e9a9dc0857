# SPDX-License-Identifier: Apache-2.0
"""Ask the storage service with signed requests, and believe signed replies alone."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import oslo_messaging as messaging

from trove_ceph import exceptions
from trove_ceph.storage_service import message_auth, serializer, transport

#: What the service's end of the bus is called; the verb is within the signed request.
METHOD = 'request'
#: A copy of the service that does not show for so long that it is at work has died.
_SILENT_SEC = 30


class SignedClient:
    """A client of oslo.messaging, to whose ``call`` the signatures are added.

    :param target: topic, exchange and version of the service
    :param timeout_sec: how long an answer is waited for; the service begins nothing after that
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
        self._timeout_sec = timeout_sec

    def call(self, _context: Mapping[str, Any], verb: str, **arguments: Any) -> Any:
        """Ask, and return the answer.

        A verb that changes something is asked for twice: the first reply says which copy of the
        service to address.

        :raises UnauthenticatedReplyError: what came is not the service's answer to this request
        :raises TroveCephError: the error that the answer is
        """
        encoded = {name: serializer.encode(value) for name, value in arguments.items()}
        reply = self._ask(verb, encoded, None)
        if 'address' in reply:
            reply = self._ask(verb, encoded, message_auth.Address(**reply['address']))
        if 'error' in reply:
            raise exceptions.error_class(reply['error'])(reply['message'])
        if 'result' not in reply:
            raise exceptions.UnauthenticatedReplyError(f'{verb}: the reply holds no answer')
        return serializer.decode(reply['result'])

    def _ask(
        self, verb: str, arguments: Mapping[str, Any], address: message_auth.Address | None
    ) -> dict[str, Any]:
        options: dict[str, Any] = {'timeout': self._timeout_sec}
        if address is not None:
            options['server'] = address.server
            if self._timeout_sec > _SILENT_SEC:
                options['call_monitor_timeout'] = _SILENT_SEC
        message, request = self._caller.sign(verb, arguments, self._timeout_sec, address)
        try:
            reply = self._bus.prepare(**options).call({}, METHOD, message=message)
        except messaging.RemoteError as error:
            # The service never answers so, except where it has another version.
            raise exceptions.UnauthenticatedReplyError(
                f'{verb}: the reply is an unsigned error, {error.exc_type}; is the service of the '
                'same release?'
            ) from error
        except messaging.MessagingException:
            raise
        except Exception as error:
            # oslo.messaging makes any built-in exception that a message names.
            raise exceptions.UnauthenticatedReplyError(
                f'{verb}: the reply is an unsigned error, {type(error).__name__}'
            ) from error
        return self._open(verb, reply, request)

    def _open(self, verb: str, reply: Any, request: message_auth.Request) -> dict[str, Any]:
        if isinstance(reply, dict) and 'refused' in reply:
            explanation = _explain(reply['refused'])
            raise exceptions.UnauthenticatedReplyError(
                f'{verb}: the request was refused, says a reply without signature: {explanation}'
            )
        try:
            return self._caller.open_reply(reply, request)
        except message_auth.RefusedError as error:
            raise exceptions.UnauthenticatedReplyError(
                f'{verb}: the reply is not the service\'s: {error}'
            ) from error


def _explain(code: object) -> str:
    try:
        return message_auth.EXPLANATIONS[message_auth.Refusal(str(code))]
    except ValueError:
        return 'for no known reason'
