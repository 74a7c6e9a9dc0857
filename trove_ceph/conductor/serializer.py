# SPDX-License-Identifier: Apache-2.0
"""The serializer of trove-conductor, which knows the guest that has sent a message."""

import json
from collections.abc import Mapping
from typing import Any

from trove.common import cfg
from trove.common import context as trove_context
from trove.common import exception as trove_exceptions
from trove.common.rpc import conductor_host_serializer
from trove.instance import models

from trove_ceph import exceptions
from trove_ceph.trove_compat import strict_rpc

CONF = cfg.CONF

_SENDER = 'csz-instance-id'


class ConductorSerializer(conductor_host_serializer.ConductorHostSerializer):
    """Trove's serializer, which refuses what is not encrypted under the key of one instance.

    Each context that it returns has the id of that instance as ``instance_id``; None without
    ``enable_secure_rpc_messaging``, where nothing tells who has sent a message.
    """

    def authenticate(self, context: Any, arguments: Mapping[str, Any]) -> None:
        """Check that one instance has encrypted everything."""
        self._deserialize_context(dict(context))
        if CONF.enable_secure_rpc_messaging:
            for value in arguments.values():
                _open_entity(context[_SENDER], value)

    def deserialize_context(self, context: Any) -> trove_context.TroveContext:
        """Return the context of a request.

        :raises UntrustedMessageError: no instance has sent it
        """
        deserialized = super().deserialize_context(context)
        deserialized.instance_id = context[_SENDER] if CONF.enable_secure_rpc_messaging else None
        return deserialized

    def _deserialize_context(self, context: Any) -> dict[str, Any]:
        if CONF.enable_secure_rpc_messaging:
            values = _open(context, 'context')
        else:
            values = super()._deserialize_context(context)
        strict_rpc.check_context(values)
        return values

    def _deserialize_entity(self, context: trove_context.TroveContext, entity: Any) -> Any:
        if not CONF.enable_secure_rpc_messaging:
            return super()._deserialize_entity(context, entity)
        return _open_entity(context.instance_id, entity)


def _open_entity(sender_id: str, entity: Any) -> Any:
    """Decrypt an argument of a request whose context an instance has encrypted."""
    try:
        envelope = json.loads(entity)
    except (ValueError, TypeError, RecursionError) as error:
        raise _unsigned() from error
    # Before anything is decrypted: a guest must not learn what the key of another one decrypts.
    if isinstance(envelope, dict) and envelope.get(_SENDER) != sender_id:
        raise exceptions.UntrustedMessageError(
            f'instance {sender_id} has sent what it has not encrypted'
        )
    return _open(envelope, 'entity')


def _open(envelope: Any, name: str) -> Any:
    """Decrypt a member of an envelope under the key of the instance that it names."""
    if not isinstance(envelope, dict) or not isinstance(envelope.get(_SENDER), str):
        raise _unsigned()
    try:
        key = models.get_instance_encryption_key(envelope[_SENDER])
    except (trove_exceptions.TroveError, ValueError, LookupError) as error:
        raise exceptions.UntrustedMessageError(
            'the key of the instance that it names cannot be read; unless it was forged, '
            "Trove's services have different inst_rpc_key_encr_key"
        ) from error
    return strict_rpc.decrypt(envelope.get(name), key)


def _unsigned() -> exceptions.UntrustedMessageError:
    return exceptions.UntrustedMessageError('it names no instance whose key encrypts it')
