# SPDX-License-Identifier: Apache-2.0
"""Working under a claim: nothing is asked of the cloud once the claim is lost.

The tables refuse what a worker writes without its claim. Ceph, Cinder and the guest agent know no
claims; so each request to them is preceded by a look at the clock: a worker that was suspended, or
cut off from the database, for so long that another worker may have taken over sends no further
request.
"""

import dataclasses
from typing import Any

from trove_ceph.db.claims import Claim
from trove_ceph.strategies.backup.dependencies import BackupDependencies


def guarded(deps: BackupDependencies, claim: Claim) -> BackupDependencies:
    """Return tools that raise ClaimLostError instead of asking anybody once a claim is lost."""
    changes: dict[str, Any] = {
        name: _Guarded(getattr(deps, name), deps, claim)
        for name in ('storage', 'cinder', 'trove', 'servers')
    }
    guest = deps.guest
    changes['guest'] = lambda instance_id: _Guarded(guest(instance_id), deps, claim)
    return dataclasses.replace(deps, **changes)


class _Guarded:
    """Somebody who is asked under a claim."""

    def __init__(self, asked: Any, deps: BackupDependencies, claim: Claim):
        self._asked = asked
        self._deps = deps
        self._claim = claim

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._asked, verb)
        if not callable(found):
            return found

        def ask(*arguments: Any, **named: Any) -> Any:
            self._deps.heartbeat.check(self._claim)
            return found(*arguments, **named)

        return ask
