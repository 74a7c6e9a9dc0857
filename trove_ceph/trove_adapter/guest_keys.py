# SPDX-License-Identifier: Apache-2.0
"""The keys of a waiting guest's agent, as the configuration of the guest and its record have them.

Both are random, belong to one guest, and are useless once the guest is bound.
"""

import dataclasses
import json
import secrets

from trove.common import cfg, crypto_utils

from trove_ceph import exceptions

CONF = cfg.CONF


@dataclasses.dataclass(frozen=True)
class GuestKeys:
    """The keys of one guest.

    :param rpc: the text with which Trove's serializer encrypts messages
    :param signing: 32 bytes in hexadecimal, with which messages are signed
    """

    rpc: str = dataclasses.field(repr=False)
    signing: str = dataclasses.field(repr=False)


def make() -> GuestKeys:
    """Return new random keys."""
    return GuestKeys(rpc=secrets.token_hex(32), signing=secrets.token_hex(32))


def encrypt(keys: GuestKeys) -> str:
    """Return keys as the record stores them, encrypted as Trove encrypts those of instances."""
    text = json.dumps(dataclasses.asdict(keys))
    found = crypto_utils.encode_data(crypto_utils.encrypt_data(text, CONF.inst_rpc_key_encr_key))
    return found.decode() if isinstance(found, bytes) else str(found)


def decrypt(encrypted_key: str) -> GuestKeys:
    """Return the keys of a record.

    :raises InvalidConfigurationError: they were encrypted with another inst_rpc_key_encr_key
    """
    try:
        data = crypto_utils.decode_data(encrypted_key)
        text = crypto_utils.decrypt_data(data, CONF.inst_rpc_key_encr_key)
        return GuestKeys(**json.loads(text))
    except (ValueError, TypeError, IndexError) as error:
        raise exceptions.InvalidConfigurationError(
            'the keys of a warm guest cannot be decrypted; is [DEFAULT] inst_rpc_key_encr_key the '
            'same on all taskmanagers?'
        ) from error
