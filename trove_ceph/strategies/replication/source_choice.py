# SPDX-License-Identifier: Apache-2.0
"""Which replica becomes the source after the loss of the source.

A replica that has all transactions that any of them has loses none. If there is no such replica,
some are missing with every choice; then the one with the most transactions is chosen.
"""

import functools
import operator
from collections.abc import Mapping

from trove_ceph.mysql.gtid import GtidSet


def choose(executed: Mapping[str, GtidSet], known: Mapping[str, GtidSet]) -> str:
    """Return the id of the new source; the same sets always lead to the same choice.

    :param executed: what each replica has executed, by its id; at least one
    :param known: what each replica has received or executed
    """
    union = functools.reduce(operator.or_, known.values(), GtidSet())
    complete = [one for one, gtids in executed.items() if union <= gtids]
    return min(complete or executed, key=lambda one: (-executed[one].count, one))
