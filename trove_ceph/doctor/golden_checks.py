# SPDX-License-Identifier: Apache-2.0
"""Checks of golden volumes, from which new instances and hot guests get their volumes."""

from collections.abc import Collection, Iterator, Sequence

from trove_ceph.doctor import remedies
from trove_ceph.doctor.check import Check, System
from trove_ceph.doctor.finding import Finding, error, warning
from trove_ceph.doctor.golden_facts import ConfiguredVolume, HotGuests, HotPool
from trove_ceph.doctor.settings import Service
from trove_ceph.doctor.sources import Sources
from trove_ceph.storage import golden

_GROUP = 'trove_ceph_guests'


def check_ready(configured: Sequence[ConfiguredVolume]) -> Iterator[Finding]:
    """Yield the golden volumes that are not ready."""
    for one in configured:
        yield from _unready(one, 'guests format volumes and initialise MySQL')


def check_hot(facts: tuple[HotGuests, Collection[str]] | None) -> Iterator[Finding]:
    """Yield what keeps guests from getting hot.

    :param facts: with the names of Cinder's volume types; None: no guest is to be hot
    """
    if facts is None:
        return
    hot, types = facts
    option = f'{Service.TROVE} [{_GROUP}] hot_volume'
    if hot.problem is not None:
        expected = f'a volume, or {Service.TROVE} does not start'
        yield error(option, hot.problem, expected, _edit('hot_volume'))
    elif hot.tier is None:
        observed = f'volume type {hot.volume_type}, which no tier has'
        yield warning(option, observed, 'that of a tier, or guests stay warm', _edit('hot_volume'))
    elif hot.volume_type not in types:
        observed = f'volume type {hot.volume_type}, which Cinder does not have'
        expected = f'that of tier {hot.tier}, or guests stay warm'
        yield warning(option, observed, expected, remedies.TIERS_APPLY)
    for pool in hot.pools:
        yield from _cold(pool)


def _cold(pool: HotPool) -> Iterator[Finding]:
    thing = f'pool of warm guests {pool.name}'
    if pool.version is None:
        observed = 'its datastore version does not exist, or is not active'
        yield warning(thing, observed, 'an active version, or it has no guests', _edit('pools'))
    elif not golden.is_exact(pool.version):
        expected = 'three numbers, such as 9.7.4, or its guests stay warm'
        yield warning(thing, f'MySQL {pool.version}', expected, remedies.UPDATE_VERSION)
    elif pool.source is not None:
        yield from _unready(pool.source, f'guests of pool {pool.name} stay warm')


def _unready(one: ConfiguredVolume, consequence: str) -> Iterator[Finding]:
    if one.state is not golden.State.READY:
        volume = one.volume
        yield warning(
            str(volume),
            one.state.value if one.state else 'does not exist',
            f'ready, or {consequence}',
            remedies.BUILD_GOLDEN_VOLUME.format(
                pool=volume.pool, version=volume.version, size_gib=volume.size_gib
            ),
        )


def _edit(option: str) -> str:
    return remedies.edit(option, _GROUP, (Service.TROVE,))


def _gather_hot(sources: Sources) -> tuple[HotGuests, Collection[str]] | None:
    hot = sources.hot_guests()
    return None if hot is None else (hot, sources.cinder().types)


CHECKS = (
    Check(
        'golden-volumes',
        System.TROVE,
        'the golden volumes of sizes_gib are ready, for each data tier and version of MySQL',
        lambda sources: sources.golden_volumes(),
        check_ready,
    ),
    Check(
        'hot-guests',
        System.TROVE,
        'if guests are to be hot, hot_volume names the volume type of a tier, and its golden '
        'volume is ready for each pool of warm guests',
        _gather_hot,
        check_hot,
    ),
)
