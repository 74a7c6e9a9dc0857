# SPDX-License-Identifier: Apache-2.0
"""What has to change, and why it cannot: pure functions of what should be and what is.

Nothing is ever deleted, except QoS specs of our own making that no volume type has. The order is
safe: objects come after those they refer to, and what takes something away comes after all that
adds.
"""

from collections.abc import Iterator

from trove_ceph.tiers import caps, desired, planning_ceph, planning_cloud, resources, tier_types
from trove_ceph.tiers.changes import Change, Finding, Kind, Plan, Risk

_ORDER = list(Kind)
_TAKES_AWAY = {Risk.LOWERS_REDUNDANCY, Risk.REVOKES_ACCESS}


def plan(content: tier_types.TiersFile, observed: resources.Observed) -> Plan:
    """Return what has to change in the systems that were observed."""
    wanted = desired.derive(content, observed.ceph)
    findings: list[Change | Finding] = []
    if observed.ceph:
        findings += planning_ceph.plan(content, wanted, observed.ceph)
        findings += _users(wanted, observed.ceph)
    if observed.cinder:
        findings += planning_cloud.plan_cinder(wanted, observed.cinder)
    if observed.trove:
        findings += planning_cloud.plan_trove(wanted, observed.trove, observed.cinder)
    changes = [found for found in findings if isinstance(found, Change)]
    others = [found for found in findings if not isinstance(found, Change)]
    return Plan(
        changes=tuple(sorted(changes, key=_rank)),
        problems=tuple(found.text for found in others if found.fatal),
        notes=(*content.notes, *(found.text for found in others if not found.fatal)),
    )


def _rank(change: Change) -> tuple[bool, int]:
    takes_away = change.removes or bool(_TAKES_AWAY & set(change.risks))
    return takes_away, _ORDER.index(change.kind)


def _users(wanted: resources.Desired, ceph: resources.CephState) -> Iterator[Change | Finding]:
    for user in wanted.users:
        found = ceph.users.get(user.name)
        if found is None:
            yield Change(Kind.USER, user.name, None, None, user)
            continue
        before, needed = caps.grants(found.caps), caps.grants(user.caps)
        more = before - needed
        after = needed if user.exclusive else before | needed
        if before != after:
            risks = (Risk.REVOKES_ACCESS,) if before - after else ()
            yield Change(Kind.USER, user.name, 'caps', before, after, risks)
        if more and not user.exclusive:
            yield Finding(
                f'cephx user {user.name} keeps caps that the file does not declare: '
                f'{", ".join(sorted(more))}',
                fatal=False,
            )
