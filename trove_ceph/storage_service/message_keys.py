# SPDX-License-Identifier: Apache-2.0
"""The key file: the secrets with which the storage service and its callers sign messages.

It holds a current key and, after a rotation, the previous one. Service and callers sign with the
current key and accept both, so the file can be replaced on one host after the other. Only its owner
may read it; without a usable file no message is sent, accepted or answered.
"""

import contextlib
import datetime
import json
import os
import re
import secrets
import stat
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from trove_ceph import exceptions, message_auth

_ID = re.compile(r'[0-9A-Za-z-]{1,64}')


class KeyFile:
    """A key file, read again after it is replaced.

    :param path: must exist before the first message, and belong to its reader or to root
    """

    def __init__(self, path: str):
        self.path = path
        self._mutex = threading.Lock()
        self._version: tuple[int, ...] = ()
        self._keys: message_auth.Keys | None = None

    def load(self) -> message_auth.Keys:
        """Return the current content of the file.

        :raises KeyFileError: the file is missing, damaged, or readable by others
        """
        with self._mutex, _opened(self.path) as descriptor:
            found = os.fstat(descriptor)
            _check_owner(self.path, found)
            version = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
            if self._keys is None or version != self._version:
                self._keys = _parse(self.path, os.read(descriptor, 1 << 16))
                self._version = version
            return self._keys


def create(path: str) -> message_auth.Keys:
    """Write a key file with one new key.

    :raises KeyFileError: the file exists, or it cannot be written
    """
    if os.path.lexists(path):
        raise exceptions.KeyFileError(f'{path}: exists; rotate it to replace its key')
    return _write(path, message_auth.Keys(_new_key()))


def rotate(path: str) -> message_auth.Keys:
    """Create a key: the current one becomes the previous one, which replaces the older one.

    :raises KeyFileError: there is no usable file, or it cannot be written
    """
    return _write(path, message_auth.Keys(_new_key(), KeyFile(path).load().current))


def retire(path: str) -> message_auth.Keys:
    """Drop the previous key; messages signed with it are refused from now on.

    :raises KeyFileError: there is no usable file, or it cannot be written
    """
    return _write(path, message_auth.Keys(KeyFile(path).load().current))


def _new_key() -> message_auth.Key:
    now = datetime.datetime.now(datetime.UTC)
    key_id = f'{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}'
    return message_auth.Key(
        key_id, secrets.token_bytes(message_auth.KEY_BYTES), now.isoformat(timespec='seconds')
    )


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError as error:
        raise exceptions.KeyFileError(
            f'{path}: cannot be read by user id {os.geteuid()}; give it a copy of its own: '
            'install -m 0600 -o USER'
        ) from error
    except OSError as error:
        raise exceptions.KeyFileError(
            f'{path}: cannot be read: {error.strerror}; create it with "trove-ceph-manage storage '
            'keys create", and give service and callers the same file'
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_owner(path: str, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISREG(found.st_mode):
        raise exceptions.KeyFileError(f'{path}: is not a regular file')
    if mode & 0o077:
        raise exceptions.KeyFileError(
            f'{path}: has mode {mode:04o}; only its owner may have access, such as with 0600'
        )
    reader = os.geteuid()
    if reader != 0 and found.st_uid not in (0, reader):
        raise exceptions.KeyFileError(
            f'{path}: belongs to user id {found.st_uid}, must belong to {reader} or to root'
        )


def _parse(path: str, content: bytes) -> message_auth.Keys:
    try:
        document = json.loads(content)
        previous = document.get('previous')
        keys = message_auth.Keys(
            _parse_key(document['current']), _parse_key(previous) if previous else None
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # The message of the parser might quote the secret.
        raise exceptions.KeyFileError(
            f'{path}: is damaged ({type(error).__name__}); restore it or create a new one'
        ) from None
    if keys.previous and keys.previous.id == keys.current.id:
        raise exceptions.KeyFileError(f'{path}: both keys have the id {keys.current.id}')
    return keys


def _parse_key(document: Any) -> message_auth.Key:
    key = message_auth.Key(
        document['id'], bytes.fromhex(document['secret']), document['created_at']
    )
    if not _ID.fullmatch(key.id) or len(key.secret) < message_auth.KEY_BYTES:
        raise ValueError
    return key


def _write(path: str, keys: message_auth.Keys) -> message_auth.Keys:
    document = {
        name: {'id': key.id, 'secret': key.secret.hex(), 'created_at': key.created_at}
        for name, key in (('current', keys.current), ('previous', keys.previous))
        if key is not None
    }
    directory = os.path.dirname(path) or '.'
    try:
        # mkstemp creates it with mode 0600; readers see the old file or the complete new one.
        descriptor, temporary = tempfile.mkstemp(prefix='.keys-', dir=directory)
        try:
            with os.fdopen(descriptor, 'w') as file:
                json.dump(document, file, indent=2)
                file.write('\n')
                file.flush()
                os.fsync(file.fileno())
            if os.path.exists(path):
                owner = os.stat(path)
                os.chown(temporary, owner.st_uid, owner.st_gid)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise exceptions.KeyFileError(f'{path}: cannot be written: {error.strerror}') from error
    return keys
