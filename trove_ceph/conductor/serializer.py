# SPDX-License-Identifier: Apache-2.0
"""The serializer of trove-conductor, which knows who has sent a message."""

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
    """Trove's serializer, which refuses what is not encrypted under the key of one sender.

    Each context that it returns has the id of the instance that has sent it as ``instance_id``;
    None if it is from the taskmanager. It is None without ``enable_secure_rpc_messaging``, too,
    where nothing tells who has sent a message.
    """

    def open(
        self, context: Any, arguments: Mapping[str, Any]
    ) -> tuple[strict_rpc.Opened, Mapping[str, Any]]:
        """Decrypt everything, which one sender must have encrypted."""
        if not CONF.enable_secure_rpc_messaging:
            values = super()._deserialize_context(dict(context))
            strict_rpc.check_context(values)
            return strict_rpc.Opened(values), arguments
        sender_id = _sender_of(context)
        key = _find_key(sender_id)
        values = strict_rpc.decrypt(context.get('context'), key)
        strict_rpc.check_context(values)
        instance_id = None if sender_id == strict_rpc.TASKMANAGER else sender_id
        return strict_rpc.Opened(values, instance_id), {
            name: strict_rpc.Opened(strict_rpc.decrypt(_sealed(sender_id, value), key), instance_id)
            for name, value in arguments.items()
        }

    def deserialize_context(self, context: Any) -> trove_context.TroveContext:
        """Return the context of a request.

        :raises UntrustedMessageError: neither an instance nor the taskmanager has sent it
        """
        if not isinstance(context, strict_rpc.Opened):
            context, _ = self.open(context, {})
        deserialized = super().deserialize_context(context)
        deserialized.instance_id = context.sender_id
        return deserialized

    def _deserialize_context(self, context: strict_rpc.Opened) -> dict[str, Any]:
        return context.value

    def _deserialize_entity(self, context: trove_context.TroveContext, entity: Any) -> Any:
        if isinstance(entity, strict_rpc.Opened):
            return entity.value
        if not CONF.enable_secure_rpc_messaging:
            return super()._deserialize_entity(context, entity)
        sender_id = context.instance_id
        return strict_rpc.decrypt(_sealed(sender_id, entity), _find_key(sender_id))


def _sealed(sender_id: str, entity: Any) -> Any:
    """Return what is encrypted of an argument of a request, whose context has this sender."""
    try:
        envelope = json.loads(entity)
    except (ValueError, TypeError, RecursionError) as error:
        raise _unsigned() from error
    if not isinstance(envelope, dict):
        raise _unsigned()
    # Before anything is decrypted: a guest must not learn what the key of another one decrypts.
    if envelope.get(_SENDER) != sender_id:
        raise exceptions.UntrustedMessageError(f'{sender_id} has sent what it has not encrypted')
    return envelope.get('entity')


def _sender_of(envelope: Any) -> str:
    """Return the sender that an envelope names: the id of an instance, or the taskmanager."""
    if not isinstance(envelope, dict) or not isinstance(envelope.get(_SENDER), str):
        raise _unsigned()
    return envelope[_SENDER]


def _find_key(sender_id: str) -> Any:
    if sender_id == strict_rpc.TASKMANAGER:
        return CONF.taskmanager_rpc_encr_key
    try:
        return models.get_instance_encryption_key(sender_id)
    except (trove_exceptions.TroveError, ValueError, LookupError) as error:
        raise exceptions.UntrustedMessageError(
            'the key of the instance that it names cannot be read; unless it was forged, '
            "Trove's services have different inst_rpc_key_encr_key"
        ) from error


def _unsigned() -> exceptions.UntrustedMessageError:
    return exceptions.UntrustedMessageError('it names no instance whose key encrypts it')
