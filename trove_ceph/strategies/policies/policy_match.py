# SPDX-License-Identifier: Apache-2.0
"""Which policy an instance has: a pure function."""

import dataclasses
from collections.abc import Iterable, Mapping

from trove_ceph.db.policy_record import BackupPolicy, Scope


@dataclasses.dataclass(frozen=True)
class Subject:
    """An instance, as far as policies differ by it.

    :param tier: the name of the tier that its volume is on; None outside of the tiers
    """

    instance_id: str
    datastore: str
    version: str
    tier: str | None = None


def index(policies: Iterable[BackupPolicy]) -> Mapping[tuple[Scope, str], BackupPolicy]:
    """Return policies by what they are for."""
    return {(one.scope, one.target): one for one in policies}


def policy_of(
    policies: Mapping[tuple[Scope, str], BackupPolicy], subject: Subject
) -> BackupPolicy | None:
    """Return the most specific policy of an instance, and no other.

    That is the instance's own, then that of its version of the datastore, of its datastore, and of
    its tier. One that is disabled is as specific as others: the instance then has none.
    """
    for scope, target in (
        (Scope.INSTANCE, subject.instance_id),
        (Scope.DATASTORE, f'{subject.datastore}/{subject.version}'),
        (Scope.DATASTORE, subject.datastore),
        (Scope.TIER, subject.tier),
    ):
        if target is not None and (found := policies.get((scope, target))) is not None:
            return found if found.enabled else None
    return None
