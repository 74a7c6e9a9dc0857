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
#: Bytes of the shortest text; the keys that Trove makes have 32.
_SHORTEST = 16


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
    return encrypt_text(json.dumps(dataclasses.asdict(keys)), CONF.inst_rpc_key_encr_key)


def decrypt(encrypted_key: str) -> GuestKeys:
    """Return the keys of a record.

    :raises InvalidConfigurationError: they were encrypted with another inst_rpc_key_encr_key
    """
    text = decrypt_text(encrypted_key, CONF.inst_rpc_key_encr_key)
    try:
        return GuestKeys(**json.loads(text or ''))
    except (ValueError, TypeError) as error:
        raise exceptions.InvalidConfigurationError(
            'the keys of a warm guest cannot be decrypted; is [DEFAULT] inst_rpc_key_encr_key the '
            'same on all taskmanagers?'
        ) from error


def encrypt_text(text: str, key: str) -> str:
    """Return printable ASCII characters as Trove stores the key of an instance."""
    found = crypto_utils.encode_data(crypto_utils.encrypt_data(text, key))
    return found.decode() if isinstance(found, bytes) else str(found)


def decrypt_text(encrypted: str, key: str) -> str | None:
    """Return what :func:`encrypt_text` was given; None: it was encrypted under another key.

    Nothing authenticates the cipher text. But decrypted with another key it is random, so that 16
    bytes or more of it are printable with a probability of less than one in 10 million.
    """
    try:
        data = crypto_utils.decode_data(encrypted)
        found = crypto_utils.decrypt_data(data, key)
    except (ValueError, TypeError, IndexError):
        return None
    is_whole = len(found) >= max(_SHORTEST, len(data) - 2 * crypto_utils.IV_BYTE_COUNT)
    is_text = all(0x20 <= one < 0x7F for one in found)
    return found.decode('ascii') if is_whole and is_text else None
