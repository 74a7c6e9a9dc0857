# SPDX-License-Identifier: Apache-2.0
"""Checks of golden volumes, from which new instances are created."""

from collections.abc import Iterator, Sequence

from trove_ceph.doctor import remedies
from trove_ceph.doctor.check import Check, System
from trove_ceph.doctor.finding import Finding, warning
from trove_ceph.doctor.golden_facts import ConfiguredVolume
from trove_ceph.storage import golden


def check_ready(configured: Sequence[ConfiguredVolume]) -> Iterator[Finding]:
    """Yield the golden volumes that are not ready."""
    for one in configured:
        if one.state is not golden.State.READY:
            volume = one.volume
            yield warning(
                str(volume),
                one.state.value if one.state else 'does not exist',
                'ready, or guests format volumes and initialise MySQL',
                remedies.BUILD_GOLDEN_VOLUME.format(
                    pool=volume.pool, version=volume.version, size_gib=volume.size_gib
                ),
            )


CHECKS = (
    Check(
        'golden-volumes',
        System.TROVE,
        'the golden volumes of sizes_gib are ready, for each data tier and version of MySQL',
        lambda sources: sources.golden_volumes(),
        check_ready,
    ),
)
