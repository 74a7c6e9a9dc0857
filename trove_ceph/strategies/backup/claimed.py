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
from trove_ceph.strategies.backup.tools import Tools


def guarded(tools: Tools, claim: Claim) -> Tools:
    """Return tools that raise ClaimLostError instead of asking anybody once a claim is lost."""
    changes: dict[str, Any] = {
        name: _Guarded(getattr(tools, name), tools, claim)
        for name in ('storage', 'cinder', 'trove', 'servers')
    }
    guest = tools.guest
    changes['guest'] = lambda instance_id: _Guarded(guest(instance_id), tools, claim)
    return dataclasses.replace(tools, **changes)


class _Guarded:
    """Somebody who is asked under a claim."""

    def __init__(self, asked: Any, tools: Tools, claim: Claim):
        self._asked = asked
        self._tools = tools
        self._claim = claim

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._asked, verb)
        if not callable(found):
            return found

        def ask(*arguments: Any, **named: Any) -> Any:
            self._tools.heartbeat.check(self._claim)
            return found(*arguments, **named)

        return ask
