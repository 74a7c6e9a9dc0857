# SPDX-License-Identifier: Apache-2.0
"""Sign the requests to a service and its replies, so that the bus cannot forge them.

The services are the storage service and the agent of a guest that waits for an instance.

A message is a JSON text with its HMAC-SHA256 and the id of the key. The signature is verified over
the bytes as received, before they are parsed. It covers the verb, all arguments, the nonce, the
times of issue and expiry, and the copy of the service that the request is for. The signature of a
reply covers that of its request, so a reply cannot answer another request.

A request is executed once. Each copy of the service stores the nonces of the requests that have not
expired. It does not know which requests another copy has accepted, or which were accepted before it
was started. Therefore a verb that changes something is executed only if the request names this copy
and this run of it. A request without such an address gets the address in reply, and the caller
sends it again with another nonce. So a copy refuses every change that was requested before it was
started. Replaying a verb that only reads changes nothing.

A refusal is not signed: a caller that receives one has no answer, and does not know whether the
request, or a duplicate of it, was executed.
"""

import dataclasses
import enum
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trove_ceph import exceptions

FORMAT = 1
#: The shortest secret of a key.
KEY_BYTES = 32
#: The longest that a request may be valid.
MAX_LIFETIME_SEC = 600
_NONCE_BYTES = 16


class Purpose(enum.StrEnum):
    """The purpose of a signature, which is invalid for any other purpose."""

    REQUEST = 'trove_ceph.storage.request'
    REPLY = 'trove_ceph.storage.reply'


class Refusal(enum.StrEnum):
    """The reason for which a message is refused."""

    MALFORMED = 'malformed'
    NO_KEYS = 'no-keys'
    UNKNOWN_KEY = 'unknown-key'
    BAD_SIGNATURE = 'bad-signature'
    EXPIRED = 'expired'
    FROM_THE_FUTURE = 'from-the-future'
    OTHER_RECIPIENT = 'other-recipient'
    REPLAYED = 'replayed'


EXPLANATIONS = {
    Refusal.MALFORMED: 'it is not a signed message of this version',
    Refusal.NO_KEYS: 'the service cannot use its key file',
    Refusal.UNKNOWN_KEY: 'its key is neither the current nor the previous one of the service',
    Refusal.BAD_SIGNATURE: 'its signature is wrong: it was forged, or changed in transit',
    Refusal.EXPIRED: 'it has expired; check that the clocks of service and caller agree',
    Refusal.FROM_THE_FUTURE: 'it was issued in the future; check that the clocks of service and '
    'caller agree',
    Refusal.OTHER_RECIPIENT: 'it is for another copy of the service, or for one that has ended',
    Refusal.REPLAYED: 'the same request was accepted before',
}


class RefusedError(Exception):
    """A message is refused."""

    def __init__(self, reason: Refusal, detail: str = ''):
        super().__init__(f'{EXPLANATIONS[reason]}{f" ({detail})" if detail else ""}')
        self.reason = reason


class UnansweredError(Exception):
    """A request has no authentic answer; it may have been executed."""


@dataclasses.dataclass(frozen=True)
class Key:
    """A secret with a public id."""

    id: str
    secret: bytes = dataclasses.field(repr=False)
    created_at: str = ''


@dataclasses.dataclass(frozen=True)
class Keys:
    """The keys of a service, such as the content of a key file.

    :param previous: accepted but not used to sign; None before the first rotation
    """

    current: Key
    previous: Key | None = None

    def find(self, key_id: str) -> Key | None:
        """Return the key with an id, or None."""
        return next(
            (one for one in (self.current, self.previous) if one and one.id == key_id), None
        )

    def load(self) -> 'Keys':
        """Return these keys: keys in memory are a source as a key file is."""
        return self


class KeySource(Protocol):
    """Where signers and verifiers get the keys for each message."""

    def load(self) -> Keys:
        """Return the present keys.

        :raises KeyFileError: the key file is not usable
        """


@dataclasses.dataclass(frozen=True)
class Address:
    """One run of one copy of the service.

    :param server: its queue on the message bus
    :param run_id: random, new at each start
    """

    server: str
    run_id: str


@dataclasses.dataclass(frozen=True)
class Request:
    """A request with a valid signature.

    :param arguments: as the serializer encoded them
    :param issued_at: seconds since the epoch, as ``expires_at``
    :param address: None when any copy of the service may answer
    :param mac: its signature, which the signature of its reply covers
    """

    verb: str
    arguments: Mapping[str, Any]
    key_id: str
    nonce: str
    issued_at: float
    expires_at: float
    address: Address | None
    mac: str


class Caller:
    """Signs requests and verifies the replies."""

    def __init__(self, keys: KeySource, now: Callable[[], float] = time.time):
        self._keys = keys
        self._now = now

    def sign(
        self,
        verb: str,
        arguments: Mapping[str, Any],
        lifetime_sec: float,
        address: Address | None = None,
    ) -> tuple[dict[str, str], Request]:
        """Return a signed message, and the request to verify its reply with.

        :raises KeyFileError: the key file is not usable
        """
        key = self._keys.load().current
        issued_at = self._now()
        nonce = secrets.token_hex(_NONCE_BYTES)
        expires_at = issued_at + min(lifetime_sec, MAX_LIFETIME_SEC)
        content = {
            'format': FORMAT,
            'verb': verb,
            'arguments': arguments,
            'nonce': nonce,
            'issued_at': issued_at,
            'expires_at': expires_at,
            'address': address and dataclasses.asdict(address),
        }
        message = _sign(key, Purpose.REQUEST, content)
        times = (issued_at, expires_at)
        return message, Request(verb, arguments, key.id, nonce, *times, address, message['mac'])

    def open_reply(self, message: Any, request: Request) -> dict[str, Any]:
        """Return the content of a reply.

        :raises RefusedError: it is not the service's answer to this request
        """
        _, content = _open(self._keys, Purpose.REPLY, message)
        answered = (content.get('nonce'), content.get('request'))
        if answered != (request.nonce, request.mac):
            raise RefusedError(Refusal.REPLAYED, 'it answers another request')
        return content

    def call(
        self,
        send: Callable[[dict[str, str]], Any],
        verb: str,
        arguments: Mapping[str, Any],
        lifetime_sec: float,
        address: Address | None = None,
    ) -> dict[str, Any]:
        """Sign a request, send it, and return the content of the reply.

        :param send: sends a message and returns the reply; its errors are raised
        :raises UnansweredError: the reply is not the service's answer to this request
        :raises KeyFileError: the key file is not usable
        """
        message, request = self.sign(verb, arguments, lifetime_sec, address)
        reply = send(message)
        if isinstance(reply, dict) and 'refused' in reply:
            raise UnansweredError(
                f'a reply without signature refuses the request: {_explain(reply["refused"])}'
            )
        try:
            return self.open_reply(reply, request)
        except RefusedError as error:
            raise UnansweredError(f'the reply is not authentic: {error}') from error


class Verifier:
    """Verifies the requests to one copy of the service and signs its replies.

    :param server: the name of the copy on the message bus
    :param skew_sec: maximum difference of a caller's clock
    """

    def __init__(
        self,
        keys: KeySource,
        server: str,
        skew_sec: float,
        now: Callable[[], float] = time.time,
    ):
        self._keys = keys
        self._skew_sec = skew_sec
        self._now = now
        self._nonces = Nonces()
        self.address = Address(server, secrets.token_hex(_NONCE_BYTES))

    def accept(self, message: Any) -> Request:
        """Return a request that may be answered; call ``finish`` after the answer.

        A duplicate is refused only after the first was answered: otherwise, when a broker delivers
        a message twice, the refusal might arrive before the answer.

        :raises RefusedError: it is forged, changed, expired, for another copy, or a replay
        """
        mac, content = _open(self._keys, Purpose.REQUEST, message)
        request = _request(message['key_id'], mac, content)
        now = self._now()
        if request.issued_at > now + self._skew_sec:
            raise RefusedError(Refusal.FROM_THE_FUTURE, f'by {request.issued_at - now:.0f} s')
        lifetime = request.expires_at - request.issued_at
        if now > request.expires_at + self._skew_sec or not 0 <= lifetime <= MAX_LIFETIME_SEC:
            raise RefusedError(Refusal.EXPIRED, f'{now - request.expires_at:.0f} s ago')
        if request.address not in (None, self.address):
            raise RefusedError(Refusal.OTHER_RECIPIENT)
        # After that time a replay is refused as expired.
        if not self._nonces.begin(request.nonce, request.expires_at + self._skew_sec, now):
            self._nonces.wait(request.nonce, MAX_LIFETIME_SEC)
            raise RefusedError(Refusal.REPLAYED)
        return request

    def finish(self, request: Request) -> None:
        """Record that a request was answered."""
        self._nonces.finish(request.nonce)

    def sign_reply(self, request: Request, answer: Mapping[str, Any]) -> dict[str, str]:
        """Return a reply signed with the key of the request, which the caller has.

        :raises RefusedError: that key is no longer in the key file
        """
        key = _load(self._keys).find(request.key_id)
        if key is None:
            raise RefusedError(Refusal.UNKNOWN_KEY, request.key_id)
        content = {'format': FORMAT, 'nonce': request.nonce, 'request': request.mac, **answer}
        return _sign(key, Purpose.REPLY, content)


class Nonces:
    """The nonces of requests that have not expired; safe for several threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._known: dict[str, tuple[float, threading.Event]] = {}
        self._dropped_until = float('-inf')

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, nonce: str, expires_at: float, now: float) -> bool:
        """Store a nonce; return False if it is known, or may have been dropped.

        If the clock is set back, expired requests become valid again after their nonces were
        dropped.
        """
        with self._mutex:
            for old in [one for one, (until, _) in self._known.items() if until < now]:
                self._dropped_until = max(self._dropped_until, self._known.pop(old)[0])
            if nonce in self._known or expires_at <= self._dropped_until:
                return False
            self._known[nonce] = (expires_at, threading.Event())
            return True

    def finish(self, nonce: str) -> None:
        """Wake the threads that wait for the answer to this request."""
        with self._mutex:
            found = self._known.get(nonce)
        if found:
            found[1].set()

    def wait(self, nonce: str, timeout_sec: float) -> None:
        """Wait until a request was answered."""
        with self._mutex:
            found = self._known.get(nonce)
        if found:
            found[1].wait(timeout_sec)


def _explain(code: object) -> str:
    try:
        return EXPLANATIONS[Refusal(str(code))]
    except ValueError:
        return 'for an unknown reason'


def _sign(key: Key, purpose: Purpose, content: Mapping[str, Any]) -> dict[str, str]:
    text = json.dumps(content, sort_keys=True, separators=(',', ':'), allow_nan=False)
    return {'key_id': key.id, 'content': text, 'mac': _mac(key, purpose, text)}


def _mac(key: Key, purpose: Purpose, text: str) -> str:
    signed = f'{purpose}\n{key.id}\n{text}'.encode()
    return hmac.new(key.secret, signed, hashlib.sha256).hexdigest()


def _open(keys: KeySource, purpose: Purpose, message: Any) -> tuple[str, dict[str, Any]]:
    """Return the signature and the content of a message, after verifying the signature."""
    if not isinstance(message, dict):
        raise RefusedError(Refusal.MALFORMED)
    key_id, text, mac = (message.get(name) for name in ('key_id', 'content', 'mac'))
    if not (isinstance(key_id, str) and isinstance(text, str) and isinstance(mac, str)):
        raise RefusedError(Refusal.MALFORMED)
    key = _load(keys).find(key_id)
    if key is None:
        raise RefusedError(Refusal.UNKNOWN_KEY)
    try:
        is_valid = hmac.compare_digest(_mac(key, purpose, text), mac)
    except (TypeError, UnicodeEncodeError):
        # No signer produces such a signature or text.
        is_valid = False
    if not is_valid:
        raise RefusedError(Refusal.BAD_SIGNATURE)
    content = json.loads(text)
    if content.get('format') != FORMAT:
        raise RefusedError(Refusal.MALFORMED)
    return mac, content


def _load(keys: KeySource) -> Keys:
    try:
        return keys.load()
    except exceptions.KeyFileError as error:
        raise RefusedError(Refusal.NO_KEYS, str(error)) from error


def _request(key_id: str, mac: str, content: Mapping[str, Any]) -> Request:
    try:
        address = content['address']
        return Request(
            verb=content['verb'],
            arguments=content['arguments'],
            key_id=key_id,
            nonce=content['nonce'],
            issued_at=float(content['issued_at']),
            expires_at=float(content['expires_at']),
            address=Address(**address) if address else None,
            mac=mac,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RefusedError(Refusal.MALFORMED) from error
