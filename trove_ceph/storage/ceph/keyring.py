# SPDX-License-Identifier: Apache-2.0
"""Find the key of a Ceph user where Ceph's own clients find it."""

import configparser
import glob
from pathlib import Path

import rados

from trove_ceph import exceptions


def find_key(conf: str, user: str) -> str:
    """Return the key of a user as base64 text; it must not be logged.

    :param conf: path of the cluster's ceph.conf, which names the key, its file or the keyring
    :param user: cephx name with its type
    :raises StorageError: there is no key of this user, or it cannot be read
    """
    try:
        # It only reads the file; it does not connect.
        cluster = rados.Rados(name=user, conffile=conf)
        try:
            key, keyfile, keyring = map(cluster.conf_get, ('key', 'keyfile', 'keyring'))
        finally:
            cluster.shutdown()
        if key:
            return key
        if keyfile:
            return Path(keyfile).read_text().strip()
        return _from_keyring(keyring or '', user)
    except (rados.Error, OSError, configparser.Error) as error:
        raise exceptions.StorageError(f'the key of {user} cannot be read: {error}') from error


def _from_keyring(names: str, user: str) -> str:
    for name in names.replace(';', ',').split(','):
        for path in glob.glob(name.strip()):
            keyring = configparser.ConfigParser(interpolation=None, strict=False)
            # Ceph indents the keys of a section.
            text = Path(path).read_text()
            keyring.read_string('\n'.join(line.strip() for line in text.splitlines()))
            if found := keyring.get(user, 'key', fallback=None):
                return found
    raise exceptions.StorageError(f'no keyring of {names} has a key of {user}')
