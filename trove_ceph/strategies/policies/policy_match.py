# SPDX-License-Identifier: Apache-2.0
"""Find the policy that applies to an instance: a pure function."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from trove_ceph.db.policy_record import Scope


class Policy(Protocol):
    """A policy of any kind, such as :class:`.policy_record.BackupPolicy`."""

    @property
    def scope(self) -> Scope: ...

    @property
    def target(self) -> str: ...

    @property
    def enabled(self) -> bool: ...


PolicyT = TypeVar('PolicyT', bound=Policy)


@dataclasses.dataclass(frozen=True)
class Subject:
    """The properties of an instance by which policies are chosen.

    :param tier: the name of its volume's tier; None if the volume is on no tier
    """

    instance_id: str
    datastore: str
    version: str
    tier: str | None = None


def index(policies: Iterable[PolicyT]) -> Mapping[tuple[Scope, str], PolicyT]:
    """Return policies by their scope and target."""
    return {(one.scope, one.target): one for one in policies}


def policy_of(policies: Mapping[tuple[Scope, str], PolicyT], subject: Subject) -> PolicyT | None:
    """Return the most specific policy for an instance; None if there is none.

    The order is: the policy of the instance, of its datastore version, of its datastore, and of its
    tier. A disabled policy takes part in this order: if it is the most specific one, the instance
    has no policy.
    """
    found = next(iter(matching(policies, subject)), None)
    return found if found is not None and found.enabled else None


def matching(policies: Mapping[tuple[Scope, str], PolicyT], subject: Subject) -> list[PolicyT]:
    """Return the policies whose target an instance belongs to, the most specific first."""
    targets = (
        (Scope.INSTANCE, subject.instance_id),
        (Scope.DATASTORE, f'{subject.datastore}/{subject.version}'),
        (Scope.DATASTORE, subject.datastore),
        (Scope.TIER, subject.tier),
    )
    return [
        policies[scope, target]
        for scope, target in targets
        if target is not None and (scope, target) in policies
    ]
