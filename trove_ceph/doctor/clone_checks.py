# SPDX-License-Identifier: Apache-2.0
"""Checks of the images from which the volumes of instances read."""

from collections.abc import Iterator, Sequence

from trove_ceph.doctor import remedies
from trove_ceph.doctor.check import Check, System
from trove_ceph.doctor.clone_facts import ClonedVolume
from trove_ceph.doctor.finding import Finding, Level
from trove_ceph.doctor.record_facts import Records


def check_replicas(records: Records) -> Iterator[Finding]:
    """Yield the replicas whose clones are so deep that none can be made of them."""
    for one in records.replicas:
        yield from _depth(
            f'replica {one.instance_id}',
            one.clone_depth or 0,
            'its own',
            records.limits.clone_depth,
            'it cannot be a source',
            remedies.REPROVISION.format(id=one.instance_id),
        )


def check_sources(facts: tuple[Records, Sequence[ClonedVolume]]) -> Iterator[Finding]:
    """Yield the other instances whose volumes are so deep that they can have no replica."""
    records, volumes = facts
    for one in volumes:
        yield from _depth(
            f'instance {one.instance_id}',
            one.clone_depth,
            str(one.image),
            records.limits.clone_depth,
            'it cannot have replicas',
            remedies.FLATTEN.format(image=one.image),
        )


def check_room(volumes: Sequence[ClonedVolume]) -> Iterator[Finding]:
    """Yield the volumes that are to be flattened, and have no room for it."""
    for one in volumes:
        if one.why_waiting is not None:
            yield Finding(
                Level.WARNING,
                f'instance {one.instance_id}',
                one.why_waiting,
                'room for its data; until then its volume needs the images above it',
                remedies.OSD_FILL,
            )


def _depth(
    thing: str, depth: int, image: str, limit: int, consequence: str, command: str
) -> Iterator[Finding]:
    if depth >= limit - 1:
        yield Finding(
            Level.ERROR if depth >= limit else Level.WARNING,
            thing,
            f'{depth} images above {image}',
            f'less than most_clone_depth = {limit}, or {consequence}',
            command,
        )


CHECKS = (
    Check(
        'clone-depth',
        System.TROVE,
        'replicas are less deep than most_clone_depth',
        lambda sources: sources.records(),
        check_replicas,
    ),
    Check(
        'source-depth',
        System.TROVE,
        'so are the volumes of all other instances, such as restored ones',
        lambda sources: (sources.records(), sources.cloned_volumes()),
        check_sources,
    ),
    Check(
        'flatten-room',
        System.TROVE,
        'volumes that are to be flattened have room for it',
        lambda sources: sources.cloned_volumes(),
        check_room,
    ),
)
