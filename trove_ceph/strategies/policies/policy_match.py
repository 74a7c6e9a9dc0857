# SPDX-License-Identifier: Apache-2.0
"""Find the policy that applies to an instance: a pure function."""

import dataclasses
from collections.abc import Iterable, Mapping

from trove_ceph.db.policy_record import BackupPolicy, Scope


@dataclasses.dataclass(frozen=True)
class Subject:
    """The properties of an instance by which policies are chosen.

    :param tier: the name of its volume's tier; None if the volume is on no tier
    """

    instance_id: str
    datastore: str
    version: str
    tier: str | None = None


def index(policies: Iterable[BackupPolicy]) -> Mapping[tuple[Scope, str], BackupPolicy]:
    """Return policies by their scope and target."""
    return {(one.scope, one.target): one for one in policies}


def policy_of(
    policies: Mapping[tuple[Scope, str], BackupPolicy], subject: Subject
) -> BackupPolicy | None:
    """Return the most specific policy for an instance; None if there is none.

    The order is: the policy of the instance, of its datastore version, of its datastore, and of its
    tier. A disabled policy takes part in this order: if it is the most specific one, the instance
    has no policy.
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
