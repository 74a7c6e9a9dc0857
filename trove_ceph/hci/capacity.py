# SPDX-License-Identifier: Apache-2.0
"""What the pool of the databases can hold, with its copies on different hosts."""

from collections.abc import Sequence

from trove_ceph.reference_figures import MOST_FILL, NEARFULL


def usable_bytes(hosts: Sequence[int], copies: int) -> float:
    """Return what fits if the devices could be filled; 0 if there are fewer hosts than copies.

    A host has one copy of an object at most. So one that is larger than its share has a rest of
    which nothing can be used: it has a copy of everything, and the others have the other copies.

    :param hosts: the size of the devices for data of each host
    """
    rest = sorted(hosts)
    while rest and rest[-1] > sum(rest) / copies:
        rest.pop()
        copies -= 1
    return sum(rest) / copies


def most_bytes(hosts: Sequence[int], copies: int) -> float:
    """Return what the pool is to hold at most, before copies.

    That is 80 % (QCT 2015), and what the other hosts hold below Ceph's nearfull when they have
    healed the loss of the largest one. Where they are too few for all copies, they heal nothing.
    """
    most = usable_bytes(hosts, copies) * MOST_FILL
    left = sorted(hosts)[:-1]
    if len(left) < copies:
        return most
    return min(most, usable_bytes(left, copies) * NEARFULL)
