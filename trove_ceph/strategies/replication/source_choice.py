# SPDX-License-Identifier: Apache-2.0
"""Which replica becomes the source after the loss of the source, and what that choice would lose.

A replica that has all transactions that any of them has loses none. If there is no such replica,
some are missing with every choice; then the one with the most transactions is chosen.

What a replica has received counts, although it has not executed it yet: that may be the last copy,
and is discarded when the replica restarts or follows another source. So a choice is good only when
:func:`find_unexecuted` finds nothing.
"""

import functools
import operator
from collections.abc import Mapping

from trove_ceph.mysql.gtid import GtidSet


def choose(executed: Mapping[str, GtidSet], known: Mapping[str, GtidSet]) -> str:
    """Return the id of the new source; the same sets always lead to the same choice.

    Of replicas that have the same, the one that has executed most of it is chosen.

    :param executed: what each replica has executed that can be chosen, by its id; at least one
    :param known: what each replica has received or executed, also of those that do not answer now
    """
    union = functools.reduce(operator.or_, known.values(), GtidSet())
    complete = [one for one in executed if union <= known[one]]
    return min(complete or executed, key=lambda one: (-known[one].count, -executed[one].count, one))


def find_unexecuted(
    chosen: str, executed: Mapping[str, GtidSet], known: Mapping[str, GtidSet]
) -> dict[str, GtidSet]:
    """Return what replicas have received, and neither they nor the new source have executed.

    :param chosen: the id of the new source
    :param executed: see :func:`choose`; of a replica that does not answer, it is not known
    :param known: see :func:`choose`
    :returns: by the id of the replica, in their order; those that have nothing are left out
    """
    found = {
        one: known[one] - executed.get(one, GtidSet()) - executed[chosen] for one in sorted(known)
    }
    return {one: gtids for one, gtids in found.items() if gtids}
