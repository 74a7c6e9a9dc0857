# SPDX-License-Identifier: Apache-2.0
"""The UUID of a server, in a file of the data directory that MySQL creates if it is missing."""

import configparser
import posixpath

from trove.guestagent.common import operating_system

FILE = 'auto.cnf'


def find(data_dir: str) -> str | None:
    """Return the UUID with which the server starts; None: it makes a new one."""
    path = posixpath.join(data_dir, FILE)
    if not operating_system.exists(path, as_root=True):
        return None
    content = configparser.ConfigParser(interpolation=None)
    try:
        content.read_string(operating_system.read_file(path, as_root=True))
        return content['auto'].get('server-uuid') or None
    except (configparser.Error, KeyError):
        # A crash may leave it empty.
        return None


def remove(data_dir: str) -> None:
    """Have the server make a new UUID when it starts; idempotent."""
    path = posixpath.join(data_dir, FILE)
    operating_system.remove(path, force=True, recursive=False, as_root=True)
