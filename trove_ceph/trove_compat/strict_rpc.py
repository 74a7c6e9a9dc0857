# SPDX-License-Identifier: Apache-2.0
"""RPC servers of Trove that refuse what nobody with a key has sent.

A server of Trove that has a key accepts plain text all the same, and calls whatever class the
notification in the context of a message names. So everyone who reaches the bus, such as root on any
guest, could command each service and each agent, and run code in them.

Trove has no option for the serializer of its servers. Therefore :func:`use` replaces one function
of Trove in the memory of this process: the one that makes a server.
"""

import functools
from collections.abc import Mapping
from typing import Any

import oslo_messaging as messaging
from oslo_serialization import jsonutils
from trove import rpc
from trove.common import crypto_utils, notification
from trove.common.rpc import secure_serializer

from trove_ceph import exceptions

_make_server = rpc.get_server


class StrictSerializer(secure_serializer.SecureSerializer):
    """Trove's serializer of taskmanagers and agents, which refuses plain text if it has a key."""

    def _deserialize_context(self, context: Any) -> dict[str, Any]:
        if self._key is not None:
            context = decrypt(_member(context, 'context'), self._key)
        check_context(context)
        return context

    def _deserialize_entity(self, _context: Any, entity: Any) -> Any:
        return entity if self._key is None else decrypt(entity, self._key)


def use(serializer: type) -> None:
    """Make all RPC servers that Trove creates in this process from now on use a serializer."""
    rpc.get_server = functools.partial(_get_server, serializer)


def decrypt(text: Any, key: Any) -> Any:
    """Return the value that Trove has encrypted.

    :raises UntrustedMessageError: it was not encrypted under this key
    """
    try:
        return jsonutils.loads(crypto_utils.decrypt_data(crypto_utils.decode_data(text), key))
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise exceptions.UntrustedMessageError(
            'A message on the bus of Trove is not encrypted under the key of its receiver or '
            'sender: it is refused. Check taskmanager_rpc_encr_key and inst_rpc_key_encr_key, '
            "which all of Trove's services share; otherwise it was forged"
        ) from error


def check_context(context: Any) -> None:
    """Check the context of a request, as a mapping, before Trove reads it.

    :raises UntrustedMessageError: it is no context, or its notification is none of Trove's
    """
    if not isinstance(context, dict):
        raise exceptions.UntrustedMessageError('A message on the bus of Trove has no context')
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
            f'A message on the bus of Trove has a notification of the class {path!r}, which is '
            "not Trove's: it is refused"
        )


def _member(mapping: Any, name: str) -> Any:
    return mapping.get(name) if isinstance(mapping, Mapping) else None


def _get_server(
    ours: type,
    target: messaging.Target,
    endpoints: list[Any],
    key: str | None,
    serializer: Any = None,
    secure_serializer: type = secure_serializer.SecureSerializer,
) -> Any:
    if not issubclass(ours, secure_serializer):
        raise exceptions.UnsupportedTroveError(
            f'Trove serves {target.topic} with {secure_serializer.__name__}, for which '
            f'{ours.__name__} is no replacement'
        )
    return _make_server(target, endpoints, key, serializer, ours)
