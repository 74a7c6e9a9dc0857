# SPDX-License-Identifier: Apache-2.0
"""How many guests a pool should have, and what to do about the difference; pure functions."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Counts:
    """The guests of a pool that no instance has.

    :param ready: those that are too old included
    :param old: ready guests that are to be replaced because of their age
    :param retired: those whose servers are being deleted
    """

    booting: int = 0
    ready: int = 0
    old: int = 0
    retired: int = 0


@dataclasses.dataclass(frozen=True)
class Change:
    """What to do now.

    :param boot: number of guests to boot
    :param retire: number of ready guests to retire, the oldest first
    """

    boot: int = 0
    retire: int = 0


def wanted_size(requests: int, demand_share: float, least: int, most: int) -> int:
    """Return how many guests a pool should have.

    :param requests: guests that were requested lately, refused requests included
    """
    return min(max(math.ceil(requests * demand_share), least), most)


def change(size: int, most: int, counts: Counts) -> Change:
    """Return how a pool gets to its size.

    The pool never has more than ``most`` servers because of it, those being deleted included. The
    replacement of an old guest is booted first and the old one retired when it is ready; if there
    is no room for that, one old guest is retired at a time.
    """
    servers = counts.booting + counts.ready + counts.retired
    missing = max(0, size - (counts.booting + counts.ready - counts.old))
    room = max(0, most - servers)
    surplus = max(0, counts.ready - size)
    if counts.old and missing and not (room or counts.booting or counts.retired):
        surplus = max(surplus, 1)
    return Change(boot=min(missing, room), retire=surplus)
