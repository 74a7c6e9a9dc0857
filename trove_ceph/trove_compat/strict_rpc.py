# SPDX-License-Identifier: Apache-2.0
"""RPC servers and clients of Trove that refuse messages which their key does not decrypt.

A server of Trove that has a key accepts plain text all the same, and calls whatever class the
notification in the context of a message names. So everyone who reaches the bus, such as root on any
guest, could command each service and each agent, and run code in them.

Trove has no option for this. Therefore :func:`use` and :func:`use_for_answers` replace functions of
Trove in the memory of this process: those that make a server and a client.

Trove's cipher does not authenticate. A sender who learns which messages a key decrypts can write
a valid one. So a server does not answer a message that it refuses, and sends answers only to queues
that guests cannot read.
"""

import dataclasses
import functools
import inspect
import json
from collections.abc import Mapping
from typing import Any, Protocol, cast

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_log import log as logging
from oslo_messaging.rpc import dispatcher
from oslo_service import periodic_task
from trove import rpc
from trove.common import crypto_utils, notification
from trove.common.rpc import secure_serializer as stock

from trove_ceph import exceptions

LOG = logging.getLogger(__name__)

_stock_get_server, _stock_get_client = rpc.get_server, rpc.get_client
#: Of the queues in which services wait for answers. The permissions of guests exclude them.
_ANSWERS = 'reply_'
#: Trove makes longer keys. What was encrypted under another key often decrypts to none at all.
_LEAST_KEY_CHARACTERS = 16
#: Of a text in a message, which is not trusted.
_MAX_TEXT = 100
#: The sender of what the taskmanager reports to the conductor; no instance has such an id.
TASKMANAGER = 'trove-taskmanager'


@dataclasses.dataclass(frozen=True)
class Opened:
    """A part of a request that is decrypted, and may have an effect; no message contains one.

    :param sender_id: of the instance whose key has encrypted it, if the serializer knows
    """

    value: Any = dataclasses.field(repr=False)
    sender_id: str | None = None


class Serializer(Protocol):
    """What a strict server needs of its serializer, which accepts what it has opened."""

    def open(self, context: Any, arguments: Mapping[str, Any]) -> tuple[Opened, Mapping[str, Any]]:
        """Decrypt the context and the arguments of a request, as they have arrived.

        :raises UntrustedMessageError: it must have no effect
        """


class StrictSerializer(stock.SecureSerializer):
    """Trove's serializer of taskmanagers and agents, which refuses plain text if it has a key."""

    def open(self, context: Any, arguments: Mapping[str, Any]) -> tuple[Opened, Mapping[str, Any]]:
        """Decrypt everything, which must be encrypted under the key, if the server has one."""
        opened = Opened(self._deserialize_context(context))
        return opened, {
            name: Opened(self._deserialize_entity(None, value)) for name, value in arguments.items()
        }

    def _deserialize_context(self, context: Any) -> dict[str, Any]:
        if isinstance(context, Opened):
            return context.value
        if self._key is not None:
            context = decrypt(_member(context, 'context'), self._key)
        check_context(context)
        return context

    def _deserialize_entity(self, _context: Any, entity: Any) -> Any:
        if isinstance(entity, Opened):
            return entity.value
        return entity if self._key is None else decrypt(entity, self._key)


def use(serializer: type, has_answers: bool) -> None:
    """Make all RPC servers that Trove creates in this process from now on strict.

    :param serializer: a class of serializers of Trove that is a :class:`Serializer`
    :param has_answers: whether there are callers that wait for an answer
    """
    rpc.get_server = functools.partial(_get_server, serializer, has_answers)


def guard(server: Any, serializer: Serializer, topic: str, has_answers: bool) -> None:
    """Make an RPC server strict, before it is started.

    :param server: of oslo.messaging
    :param topic: for the log
    :param has_answers: as of :func:`use`
    """
    server.dispatcher.access_policy = _OwnMethods()
    server.dispatcher = _StrictDispatcher(server.dispatcher, serializer, topic, has_answers)


def use_in_taskmanager(conf: cfg.ConfigOpts) -> None:
    """Make all RPC servers and clients of a taskmanager strict.

    Trove's own snapshots are reported to the conductor by the taskmanager, in plain text unless it
    has the two options that agents have.

    :param conf: Trove's configuration
    """
    use(StrictSerializer, has_answers=False)
    use_for_answers()
    if conf.enable_secure_rpc_messaging:
        conf.set_override('guest_id', TASKMANAGER)
        conf.set_override('instance_rpc_encr_key', conf.taskmanager_rpc_encr_key)


def use_for_answers() -> None:
    """Make all RPC clients that Trove creates in this process refuse answers in plain text."""
    rpc.get_client = _get_client


def decrypt(text: Any, key: Any) -> Any:
    """Return the value that Trove has encrypted.

    :raises UntrustedMessageError: it was not encrypted under this key
    """
    try:
        if len(key) < _LEAST_KEY_CHARACTERS:
            raise ValueError('no key')
        return json.loads(crypto_utils.decrypt_data(crypto_utils.decode_data(text), key))
    except (ValueError, TypeError, AttributeError, IndexError, RecursionError):
        # Without the cause, which tells what it was decrypted to.
        raise exceptions.UntrustedMessageError(
            'it is not encrypted under the key of its receiver or sender; unless it was forged, '
            f"Trove's services have different keys, or keys of less than {_LEAST_KEY_CHARACTERS} "
            'characters'
        ) from None


def check_context(context: Any) -> None:
    """Check the context of a request, as a mapping, before Trove reads it.

    :raises UntrustedMessageError: it is no context, or its notification is none of Trove's
    """
    if not isinstance(context, dict):
        raise exceptions.UntrustedMessageError('it has no context')
    if serialized := context.get('trove_notification'):
        check_notification(serialized)


def check_notification(serialized: Any) -> None:
    """Check that a serialized notification is one of Trove's own, since Trove calls its class.

    :raises UntrustedMessageError: it is not
    """
    path = str(_member(serialized, 'notification_classname'))
    module, _, name = path.rpartition('.')
    found = getattr(notification, name, None) if module == notification.__name__ else None
    if not isinstance(found, type) or not issubclass(found, notification.DBaaSAPINotification):
        raise exceptions.UntrustedMessageError(
            f"it has a notification of the class {path[:_MAX_TEXT]!r}, which is not Trove's"
        )


def _member(mapping: Any, name: str) -> Any:
    return mapping.get(name) if isinstance(mapping, Mapping) else None


class _OwnMethods(dispatcher.RPCAccessPolicyBase):
    """Allows the methods of the class of an endpoint, and not what it has for itself."""

    def is_allowed(self, endpoint: Any, method: str) -> bool:
        # A manager has Trove's configuration as ``conf``, which is empty after it was called.
        return (
            not method.startswith('_')
            and inspect.isfunction(inspect.getattr_static(type(endpoint), method, None))
            and not hasattr(periodic_task.PeriodicTasks, method)
        )


class _StrictDispatcher:
    """Has a server act on a message, and answer it, only if it is authentic."""

    def __init__(self, behind: Any, serializer: Serializer, topic: str, has_answers: bool):
        self._behind, self._serializer = behind, serializer
        self._topic, self._has_answers = topic, has_answers

    def dispatch(self, incoming: Any) -> Any:
        """Return the answer to a message; None: it has none."""
        if not (self._has_answers and str(getattr(incoming, 'reply_q', '')).startswith(_ANSWERS)):
            _silence(incoming)
        arguments = incoming.message.get('args')
        try:
            context, opened = self._serializer.open(
                incoming.ctxt, arguments if isinstance(arguments, Mapping) else {}
            )
        except exceptions.UntrustedMessageError as error:
            LOG.warning('Refused a message in the queue %s: %s', self._topic, error)
            _silence(incoming)
            return None
        incoming.ctxt, incoming.message = context, {**incoming.message, 'args': opened}
        return self._behind.dispatch(incoming)


def _silence(incoming: Any) -> None:
    """Send neither an answer nor signs of life to the sender of a message."""
    incoming.reply = incoming.heartbeat = lambda *_arguments, **_named: None
    incoming.client_timeout = None


def _get_server(
    ours: type,
    has_answers: bool,
    target: messaging.Target,
    endpoints: list[Any],
    key: str | None,
    serializer: Any = None,
    secure_serializer: type = stock.SecureSerializer,
) -> Any:
    if not issubclass(ours, secure_serializer):
        raise exceptions.UnsupportedTroveError(
            f'Trove serves {target.topic} with {secure_serializer.__name__}, for which '
            f'{ours.__name__} is no replacement'
        )
    server = _stock_get_server(target, endpoints, key, serializer, ours)
    guard(server, cast(Any, ours)(None, key), target.topic, has_answers)
    return server


def _get_client(
    target: messaging.Target,
    key: str | None,
    version_cap: str | None = None,
    serializer: Any = None,
    secure_serializer: type = stock.SecureSerializer,
) -> Any:
    if secure_serializer is stock.SecureSerializer:
        secure_serializer = StrictSerializer
    return _stock_get_client(target, key, version_cap, serializer, secure_serializer)
