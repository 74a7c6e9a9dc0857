# SPDX-License-Identifier: Apache-2.0
"""The plan: pure functions of the desired and the observed state.

Nothing is ever deleted, except QoS specs of our own that no volume type uses. The order is safe:
objects come after those they refer to, and removals and revocations come last.
"""

from collections.abc import Iterator

from trove_ceph.tiers import caps, desired, planning_ceph, planning_cloud, resources, tier_types
from trove_ceph.tiers.changes import Change, Finding, Kind, Plan, Risk

_ORDER = list(Kind)
_REDUCING = {Risk.LOWERS_REDUNDANCY, Risk.REVOKES_ACCESS}


def plan(content: tier_types.TiersFile, observed: resources.Observed) -> Plan:
    """Return the plan for the systems that were observed."""
    target = desired.derive(content, observed.ceph)
    findings: list[Change | Finding] = []
    if observed.ceph:
        findings += planning_ceph.plan(content, target, observed.ceph)
        findings += _users(target, observed.ceph)
    if observed.cinder:
        findings += planning_cloud.plan_cinder(target, observed.cinder)
    if observed.trove:
        findings += planning_cloud.plan_trove(target, observed.trove, observed.cinder)
    changes = [found for found in findings if isinstance(found, Change)]
    others = [found for found in findings if not isinstance(found, Change)]
    return Plan(
        changes=tuple(sorted(changes, key=_rank)),
        problems=tuple(found.text for found in others if found.fatal),
        notes=tuple(found.text for found in others if not found.fatal),
    )


def _rank(change: Change) -> tuple[bool, int]:
    reduces = change.removes or bool(_REDUCING & set(change.risks))
    return reduces, _ORDER.index(change.kind)


def _users(target: resources.Desired, ceph: resources.CephState) -> Iterator[Change | Finding]:
    for user in target.users:
        found = ceph.users.get(user.name)
        if found is None:
            yield Change(Kind.USER, user.name, None, None, user)
            continue
        before, needed = caps.grants(found.caps), caps.grants(user.caps)
        undeclared = before - needed
        after = needed if user.exclusive else before | needed
        if before != after:
            risks = (Risk.REVOKES_ACCESS,) if before - after else ()
            yield Change(Kind.USER, user.name, 'caps', before, after, risks)
        if undeclared and not user.exclusive:
            yield Finding(
                f'cephx user {user.name} keeps caps that the file does not declare: '
                f'{", ".join(sorted(undeclared))}',
                fatal=False,
            )
