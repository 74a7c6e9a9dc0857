# SPDX-License-Identifier: Apache-2.0
"""The taskmanager's calls to the agents of waiting guests, see :mod:`.guestagent.waiting_messages`.

Trove's serializer accepts plain text, so it authenticates nothing: an answer counts only with a
signature by the key that the guest shares with the control plane.
"""

import dataclasses
from typing import Any

import oslo_messaging as messaging
from trove import rpc

from trove_ceph import exceptions, message_auth
from trove_ceph.db.guest_record import GuestRecord
from trove_ceph.guestagent import waiting_messages
from trove_ceph.guestagent.waiting_messages import LoadState, Verb
from trove_ceph.strategies.guests.dependencies import PingAnswer
from trove_ceph.trove_adapter import guest_keys

#: A live agent answers within a second; an emulated processor takes several.
PING_TIMEOUT_SEC = 15
_MAX_TEXT = 1000


class WaitingGuestAPI:
    """The agents of waiting guests.

    Each verb raises GuestUnavailableError when the agent refuses, or no authentic answer arrives;
    GuestOutdatedError, if the agent is of an earlier version.

    :param context: of the taskmanager's administrator
    :param bind_timeout_sec: how long a guest may take to write the files of an instance
    """

    def __init__(self, context: Any, bind_timeout_sec: float = 60):
        self._context = context
        self._bind_timeout_sec = bind_timeout_sec

    def ping(self, guest: GuestRecord) -> PingAnswer:
        """Ask an agent whether its guest can be bound."""
        answer = self._call(guest, Verb.PING, {}, PING_TIMEOUT_SEC)
        return PingAnswer(
            can_bind=answer.get('can_bind') is True,
            reason=str(answer.get('reason', ''))[:_MAX_TEXT],
            version=str(answer.get('version', ''))[:_MAX_TEXT],
            load=_load_state(answer.get('load')),
        )

    def load(self, guest: GuestRecord, load: waiting_messages.Load) -> None:
        """Have a guest start MySQL on a volume, in the background; idempotent."""
        address = self._address(guest)
        answer = self._call(guest, Verb.LOAD, dataclasses.asdict(load), PING_TIMEOUT_SEC, address)
        if answer.get('loading') is not True:
            raise exceptions.GuestUnavailableError(
                f'{guest}: load: expected loading, found {answer}'
            )

    def bind(self, guest: GuestRecord, binding: waiting_messages.Binding) -> None:
        """Have a guest replace its identity by that of an instance; it does so once."""
        # The address is of this run of the agent, which knows what it has answered.
        address = self._address(guest)
        arguments = dataclasses.asdict(binding)
        answer = self._call(guest, Verb.BIND, arguments, self._bind_timeout_sec, address)
        if answer.get('bound') is not True:
            raise exceptions.GuestUnavailableError(f'{guest}: bind: expected bound, found {answer}')

    def _address(self, guest: GuestRecord) -> message_auth.Address:
        answer = self._call(guest, Verb.PING, {}, PING_TIMEOUT_SEC)
        try:
            return message_auth.Address(**answer['address'])
        except (KeyError, TypeError) as error:
            raise exceptions.GuestUnavailableError(
                f'{guest}: ping: the answer has no address'
            ) from error

    def _call(
        self,
        guest: GuestRecord,
        verb: Verb,
        arguments: dict[str, Any],
        timeout_sec: float,
        address: message_auth.Address | None = None,
    ) -> dict[str, Any]:
        keys = guest_keys.decrypt(guest.encrypted_key)
        caller = message_auth.Caller(waiting_messages.signing_keys(guest.guest_id, keys.signing))

        def send(message: dict[str, str]) -> Any:
            return self._send(guest, verb, keys.rpc, message, timeout_sec)

        try:
            answer = caller.call(send, verb, arguments, timeout_sec, address)
        except message_auth.UnansweredError as error:
            raise exceptions.GuestUnavailableError(f'{guest}: {verb}: {error}') from error
        if 'error' in answer:
            reason = str(answer['error'])[:_MAX_TEXT]
            raise exceptions.GuestUnavailableError(f'{guest}: {verb}: {reason}')
        return answer

    def _send(
        self, guest: GuestRecord, verb: Verb, key: str, message: dict[str, str], timeout_sec: float
    ) -> Any:
        target = messaging.Target(
            topic=waiting_messages.topic(guest.guest_id), version=waiting_messages.VERSION
        )
        try:
            client = rpc.get_client(target, key=key, version_cap=waiting_messages.VERSION)
            return client.prepare(timeout=timeout_sec).call(
                self._context, str(verb), message=message
            )
        except (messaging.RemoteError, messaging.UnsupportedVersion) as error:
            kind = getattr(error, 'exc_type', type(error).__name__)
            if kind != messaging.UnsupportedVersion.__name__:
                raise exceptions.GuestUnavailableError(
                    f'{guest}: {verb}: {kind}: {error}'
                ) from error
            raise exceptions.GuestOutdatedError(
                f'{guest}: {verb}: its agent is older than version {waiting_messages.VERSION} of '
                'the messages of waiting guests; build the guest image of this release and '
                'register it with the datastore version'
            ) from error
        except Exception as error:
            # oslo.messaging raises any built-in exception that a message names.
            raise exceptions.GuestUnavailableError(
                f'{guest}: {verb}: {type(error).__name__}: {error}'
            ) from error


def _load_state(text: Any) -> LoadState:
    try:
        return LoadState(text)
    except ValueError:
        return LoadState.NONE
