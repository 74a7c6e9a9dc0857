# SPDX-License-Identifier: Apache-2.0
"""Send no request to the cloud once the worker's claim is lost.

The tables refuse a write by a worker that has lost its claim. Ceph, Cinder and the guest agent know
nothing of claims, so the clock is checked before each request to them. A worker that was suspended,
or cut off from the database, for so long that another worker may have resumed its work sends no
further request.
"""

import dataclasses
from typing import Any

from trove_ceph.db import heartbeat
from trove_ceph.db.claims import Claim
from trove_ceph.strategies.backup.dependencies import BackupDependencies


def guarded(deps: BackupDependencies, claim: Claim) -> BackupDependencies:
    """Return dependencies that raise ClaimLostError instead of a request once a claim is lost."""
    changes: dict[str, Any] = {
        name: Guarded(getattr(deps, name), deps.heartbeat, claim)
        for name in ('storage', 'cinder', 'trove', 'servers')
    }
    guest = deps.guest
    changes['guest'] = lambda instance_id: Guarded(guest(instance_id), deps.heartbeat, claim)
    return dataclasses.replace(deps, **changes)


class Guarded:
    """A client whose every call first checks a claim, and raises ClaimLostError if it is lost.

    :param beating: the heartbeat that renews the claim
    """

    def __init__(self, client: Any, beating: heartbeat.Heartbeat, claim: Claim):
        self._client = client
        self._heartbeat = beating
        self._claim = claim

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            self._heartbeat.check(self._claim)
            return attribute(*arguments, **named)

        return call
