# SPDX-License-Identifier: Apache-2.0
"""Print the environment variables for a shell that uses the cloud."""

import json
import os
import shlex

from driver.errors import LabError


def credentials(settings, identity: str) -> dict[str, str]:
    """Return the OS_* variables of an identity (``tenant`` or ``admin``).

    :raises LabError: the cloud was never brought up.
    """
    path = settings.root / 'etc' / 'credentials.json'
    try:
        return json.loads(path.read_text())[identity]
    except FileNotFoundError:
        raise LabError('there is no cloud yet: run make lab first') from None


def of_manage(settings) -> dict[str, str]:
    """Return the variables that replace options of ``trove-ceph-manage``."""
    etc = settings.root / 'etc'
    trove = [etc / 'trove' / 'trove.conf']
    # The task manager's own configuration, once it is installed.
    trove += [path for path in [etc / 'trove-taskmanager.conf'] if path.exists()]
    return {
        'CEPH_CONF': str(etc / 'ceph' / 'ceph.conf'),
        'TROVE_CEPH_TIERS_FILE': str(etc / 'ceph' / 'tiers.yaml'),
        'TROVE_CEPH_TROVE_CONF': os.pathsep.join(map(str, trove)),
        'TROVE_CEPH_STORAGE_CONF': str(etc / 'trove-ceph' / 'trove-ceph-storage.conf'),
    }


def show(settings, args) -> int:
    """Print exports of OS_*, the clients' PATH and, for the administrator, manage's variables."""
    variables = credentials(settings, args.identity)
    if args.identity == 'admin':
        variables |= of_manage(settings)
    for name, value in variables.items():
        print(f'export {name}={shlex.quote(value)}')
    clients = shlex.quote(str(settings.root / 'venv' / 'bin'))
    print(f'case ":$PATH:" in *:{clients}:*) ;; *) export PATH={clients}:"$PATH" ;; esac')
    return 0
