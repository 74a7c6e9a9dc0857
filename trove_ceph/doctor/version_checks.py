# SPDX-License-Identifier: Apache-2.0
"""Checks of datastore versions: their guest managers, their replication and their MySQL.

An update of a version that leaves out its guest manager gives it Trove's own. Its instances are
those of another guest agent from then on: no policy, failover or re-provisioning has them any more.
"""

import collections
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from trove_ceph.db.policy_record import Scope
from trove_ceph.db.trove_rows import VersionRow
from trove_ceph.doctor import remedies
from trove_ceph.doctor.check import Check, System
from trove_ceph.doctor.cloud_facts import AgentImage
from trove_ceph.doctor.finding import Finding, error, warning
from trove_ceph.doctor.record_facts import Records
from trove_ceph.doctor.sources import Sources

LEAST_MYSQL = (8, 4)
GUEST_MANAGER = 'trove_ceph.guestagent.manager.Manager'
REPLICATION = 'trove_ceph.guestagent.replication.CloneReplication'


def check_versions(records: Records) -> Iterator[Finding]:
    """Yield the versions of MySQL that lack our guest manager, or are too old.

    One with another manager is ours if some of its instances are. Others are left to Trove.
    """
    lost = _lost_by_version(records)
    for one in records.versions:
        if _is_ours(one):
            if one.is_active:
                yield from _judge(one)
        elif count := lost.get((one.datastore, one.name)):
            observed = f'{count} of its instances have backups, replicas or a policy of their own'
            yield _foreign(one, observed)


def check_images(facts: tuple[Sequence[VersionRow], Collection[AgentImage]]) -> Iterator[Finding]:
    """Yield the versions whose image has our guest agent, and that name another manager."""
    versions, images = facts
    for one in versions:
        if any(_has(one, image) for image in images):
            yield _foreign(one, 'its image has the guest agent of trove_ceph')


def lost_instances(records: Records) -> Collection[str]:
    """Return the ids of the instances that are ours, although their version names another manager.

    The proof is what only such an instance gets: a backup, a replica, or a policy for it or for its
    version. A policy for a datastore or a tier leaves out the instances of Trove's own versions.
    """
    known = {one.instance_id for one in records.backups}
    known |= {each for one in records.replicas for each in (one.instance_id, one.source_id)}
    targets = {(one.scope, one.target) for one in records.policies}
    return {
        one.instance_id
        for one in records.instances
        if not one.has_our_guest_agent
        and (
            one.instance_id in known
            or (Scope.INSTANCE, one.instance_id) in targets
            or (Scope.DATASTORE, f'{one.datastore}/{one.version}') in targets
        )
    }


def _lost_by_version(records: Records) -> Mapping[tuple[str, str], int]:
    lost = lost_instances(records)
    return collections.Counter(
        (one.datastore, one.version) for one in records.instances if one.instance_id in lost
    )


def _is_ours(version: VersionRow) -> bool:
    return version.guest_manager.startswith('trove_ceph.')


def _has(version: VersionRow, image: AgentImage) -> bool:
    """Return whether Trove boots instances of a version from an image, by its id or its tags."""
    if version.image_id:
        return version.image_id == image.image_id
    return bool(version.image_tags) and set(version.image_tags) <= set(image.tags)


def _foreign(version: VersionRow, observed: str) -> Finding:
    return error(
        _thing(version),
        f'guest manager {version.guest_manager or "of Trove"}; {observed}',
        f'{GUEST_MANAGER}, or its databases have no backups by policies, failover or care of '
        'replicas',
        remedies.UPDATE_VERSION,
    )


def _judge(version: VersionRow) -> Iterator[Finding]:
    thing = _thing(version)
    if version.guest_manager != GUEST_MANAGER:
        yield error(thing, version.guest_manager, GUEST_MANAGER, remedies.UPDATE_VERSION)
    if version.replication != REPLICATION:
        observed = f'replication strategy {version.replication or "of Trove"}'
        yield warning(thing, observed, REPLICATION, remedies.UPDATE_VERSION)
    number = re.match(r'(\d+)\.(\d+)', version.version)
    if number and tuple(map(int, number.groups())) < LEAST_MYSQL:
        least = '.'.join(map(str, LEAST_MYSQL))
        yield warning(
            thing, f'MySQL {version.version}', f'{least} or later', remedies.UPDATE_VERSION
        )


def _thing(version: VersionRow) -> str:
    return f'datastore version {version.datastore}/{version.name}'


def _gather_images(sources: Sources) -> tuple[Sequence[VersionRow], Collection[AgentImage]]:
    """Return the active versions of other managers that have no lost instances, and our images.

    Glance is not asked if there are no such versions.
    """
    records = sources.records()
    lost = _lost_by_version(records)
    found = [
        one
        for one in records.versions
        if one.is_active and not _is_ours(one) and (one.datastore, one.name) not in lost
    ]
    return found, sources.agent_images() if found else ()


CHECKS = (
    Check(
        'mysql-versions',
        System.TROVE,
        'datastore versions name our guest manager and replication strategy; MySQL 8.4 or later',
        lambda sources: sources.records(),
        check_versions,
    ),
    Check(
        'guest-images',
        System.TROVE,
        'images with our guest agent are those of datastore versions with our guest manager',
        _gather_images,
        check_images,
    ),
)
