# SPDX-License-Identifier: Apache-2.0
"""Options that a tenant has persisted with SET PERSIST: they override those of my.cnf.

They are in the data directory, so a clone has those of its source.
"""

import json
import posixpath
from collections.abc import Collection
from typing import Any

from oslo_log import log as logging
from trove.guestagent.common import operating_system

from trove_ceph import exceptions
from trove_ceph.guestagent import flushed_files, server

LOG = logging.getLogger(__name__)

FILE = 'mysqld-auto.cnf'
# That of MySQL itself.
_MODE = 0o640


def remove(app: server.MySqlServer, data_dir: str, names: Collection[str]) -> None:
    """Remove options from the file of a server that is stopped; idempotent.

    :raises ServerFailedError: the file is damaged, so MySQL would not start either
    """
    path = posixpath.join(data_dir, FILE)
    if not operating_system.exists(path, as_root=True):
        return
    before = operating_system.read_file(path, as_root=True)
    try:
        after = without(before, names)
    except ValueError as error:
        raise exceptions.ServerFailedError(f'{path}: is damaged: {error}') from error
    if after == before:
        return
    # MySQL does not start with a file that a crash has emptied.
    owner = (int(app.database_service_uid), int(app.database_service_gid))
    flushed_files.replace(path, after, owner, _MODE)
    LOG.info('Removed the persisted ones of the options %s from %s', ', '.join(names), path)


def without(text: str, names: Collection[str]) -> str:
    """Return the content of the file without options; as it was if it has none of them.

    The file has groups of options, which differ between versions of MySQL, and within a group an
    object for each option.

    :raises ValueError: it is not JSON
    """
    content = json.loads(text)
    kept = _without(content, names)
    return text if kept == content else json.dumps(kept)


def _without(value: Any, names: Collection[str]) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without(kept, names) for name, kept in value.items() if name not in names}
