# SPDX-License-Identifier: Apache-2.0
"""Print what a shell needs to use the cloud."""

import json
import shlex

from driver.errors import LabError


def credentials(settings, identity: str) -> dict[str, str]:
    """Return the OS_* variables of an identity (``tenant`` or ``admin``).

    :raises LabError: if the cloud was never brought up.
    """
    path = settings.root / 'etc' / 'credentials.json'
    try:
        return json.loads(path.read_text())[identity]
    except FileNotFoundError:
        raise LabError('there is no cloud yet: run make lab first') from None


def show(settings, args) -> int:
    """Print exports for the OS_* variables and the clients' PATH."""
    for name, value in credentials(settings, args.identity).items():
        print(f'export {name}={shlex.quote(value)}')
    clients = shlex.quote(str(settings.root / 'venv' / 'bin'))
    print(f'case ":$PATH:" in *:{clients}:*) ;; *) export PATH={clients}:"$PATH" ;; esac')
    return 0
