# SPDX-License-Identifier: Apache-2.0
"""Checks of what the tiers file describes, by the plan of ``trove-ceph-manage tiers``."""

import collections
from collections.abc import Iterable, Iterator

from trove_ceph.db.backup_record import BackupRecord, RecordState
from trove_ceph.doctor import remedies
from trove_ceph.doctor.check import Check, System
from trove_ceph.doctor.finding import Finding, error, warning
from trove_ceph.doctor.record_facts import Records
from trove_ceph.tiers import (
    caps,
    changes,
    desired,
    planning_ceph,
    planning_cloud,
    resources,
    tier_types,
)

Content = tier_types.TiersFile


def check_pools(facts: tuple[Content, resources.CephState]) -> Iterator[Finding]:
    """Yield where profiles, CRUSH rules and pools differ from the tiers file."""
    content, ceph = facts
    yield from _differences(planning_ceph.plan(content, desired.derive(content, ceph), ceph))


def check_types(
    facts: tuple[Content, resources.CinderState],
) -> Iterator[Finding]:
    """Yield where volume types, QoS specs and back ends differ from the tiers file."""
    content, cinder = facts
    yield from _differences(planning_cloud.plan_cinder(desired.derive(content, None), cinder))


def check_versions(
    facts: tuple[Content, resources.TroveState, resources.CinderState],
) -> Iterator[Finding]:
    """Yield the datastore versions with other volume types than the tiers file says."""
    content, trove, cinder = facts
    yield from _differences(planning_cloud.plan_trove(desired.derive(content, None), trove, cinder))


def check_backends(
    facts: tuple[Content, resources.CinderState, str],
) -> Iterator[Finding]:
    """Yield the back ends of tiers that store their volumes elsewhere than in the tier's pool."""
    content, cinder, fsid = facts
    for tier in content.tiers.values():
        if tier.volume_type is None:
            continue
        for backend in cinder.rbd_backends:
            if backend.name != tier.volume_type.backend:
                continue
            command = remedies.VOLUME_BACKENDS
            if backend.pool != tier.pool:
                observed, expected = f'pool {backend.pool}', f'rbd_pool = {tier.pool}'
                yield error(f'back end {backend.name}', observed, expected, command)
            if backend.fsid != fsid:
                observed, expected = f'cluster {backend.fsid}', f'cluster {fsid}'
                yield error(f'back end {backend.name}', observed, expected, command)


def check_caps(facts: tuple[Content, resources.CephState]) -> Iterator[Finding]:
    """Yield the cephx users that may do less than they must, or anything."""
    content, ceph = facts
    for user in desired.derive(content, ceph).users:
        thing = f'cephx user {user.name}'
        found = ceph.users.get(user.name)
        if found is None:
            yield error(thing, 'does not exist', 'caps of its role', remedies.TIERS_APPLY)
            continue
        present, needed = caps.grants(found.caps), caps.grants(user.caps)
        if lacks := sorted(needed - present):
            yield error(thing, 'lacks caps', ', '.join(lacks), remedies.TIERS_APPLY)
        more = sorted(present - needed)
        if user.exclusive and more:
            expected = 'only the caps that the tiers file declares'
            yield warning(thing, f'has {", ".join(more)}', expected, remedies.TIERS_APPLY)
        elif any('allow *' in grant for grant in more):
            expected = 'the caps of its role: mark it "exclusive: true" in the tiers file'
            yield warning(thing, f'has {", ".join(more)}', expected, remedies.TIERS_APPLY)


def check_backups(facts: tuple[Content, Records]) -> Iterator[Finding]:
    """Yield the pools of no tier in which backups are, so that they cannot be deleted."""
    content, records = facts
    known = {tier.pool for tier in content.tiers.values()}
    found: dict[str, list[BackupRecord]] = collections.defaultdict(list)
    for one in records.backups:
        for pool in {place.pool for place in (one.location, one.copy) if place} - known:
            found[pool].append(one)
    for pool, backups in sorted(found.items()):
        deleted = [one for one in backups if one.state is RecordState.DELETING]
        level = error if deleted else warning
        yield level(
            f'pool {pool}',
            f'{len(backups)} backups are in it, of which {len(deleted)} are to be deleted',
            'a tier with this pool, without which they can neither be used nor deleted',
            remedies.add_tier(pool),
        )


def _differences(
    found: Iterable[changes.Change | changes.Finding],
) -> Iterator[Finding]:
    for one in found:
        if isinstance(one, changes.Finding):
            level = error if one.fatal else warning
            yield level('tiers', one.text, 'as in the tiers file', remedies.TIERS_PLAN)
            continue
        thing = f'{one.kind.value} {one.name}'
        if one.creates:
            yield error(thing, 'does not exist', 'as in the tiers file', remedies.TIERS_APPLY)
        elif one.removes:
            yield warning(thing, 'is not used any more', 'removed', remedies.TIERS_APPLY)
        else:
            observed = f'{one.attribute}: {changes.difference(one)}'
            yield warning(thing, observed, 'as in the tiers file', remedies.TIERS_APPLY)


CHECKS = (
    Check(
        'pools',
        System.CEPH,
        'pools, CRUSH rules and device classes are as in the tiers file',
        lambda sources: (sources.tiers(), sources.ceph()),
        check_pools,
    ),
    Check(
        'caps',
        System.CEPH,
        'cephx users have the caps of their roles',
        lambda sources: (sources.tiers(), sources.ceph()),
        check_caps,
    ),
    Check(
        'volume-types',
        System.OPENSTACK,
        'volume types and QoS specs are as in the tiers file, and their back ends are up',
        lambda sources: (sources.tiers(), sources.cinder()),
        check_types,
    ),
    Check(
        'back-ends',
        System.OPENSTACK,
        'the back ends of tiers use the pools of their tiers, in this cluster',
        lambda sources: (sources.tiers(), sources.cinder(), sources.fsid()),
        check_backends,
    ),
    Check(
        'datastore-versions',
        System.TROVE,
        'datastore versions may use the volume types that the tiers file gives them',
        lambda sources: (sources.tiers(), sources.associations(), sources.cinder()),
        check_versions,
    ),
    Check(
        'tiers-of-backups',
        System.BACKUPS,
        'the pools of all backups and copies are those of tiers',
        lambda sources: (sources.tiers(), sources.records()),
        check_backups,
    ),
)
