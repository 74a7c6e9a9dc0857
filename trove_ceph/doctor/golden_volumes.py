# SPDX-License-Identifier: Apache-2.0
"""Read the states of the golden volumes that the configuration names."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from trove_ceph import exceptions
from trove_ceph.db.trove_rows import VersionRow
from trove_ceph.doctor.golden_facts import ConfiguredVolume, HotGuests, HotPool
from trove_ceph.doctor.version_checks import GUEST_MANAGER
from trove_ceph.storage import golden
from trove_ceph.storage_service import rpcapi
from trove_ceph.strategies.guests.hot_spec import HotVolume
from trove_ceph.taskmanager import guest_factory
from trove_ceph.tiers import tier_types
from trove_ceph.trove_adapter import instance_health


def read(conf: Any, content: tier_types.TiersFile) -> tuple[ConfiguredVolume, ...]:
    """Return the golden volumes that new instances would use; none if the option has no sizes.

    :param conf: the configuration of trove-taskmanager
    """
    sizes_gib = sorted(set(conf.trove_ceph_golden.sizes_gib))
    if not sizes_gib:
        return ()
    places = sorted(set(_places(content, instance_health.list_versions())))
    volumes = [
        golden.GoldenVolume(pool, version, size_gib)
        for pool, version in places
        for size_gib in sizes_gib
    ]
    states = _find_states(conf, volumes)
    return tuple(ConfiguredVolume(one, states[one]) for one in volumes)


def read_hot(conf: Any, load_tiers: Callable[[], tier_types.TiersFile]) -> HotGuests | None:
    """Return the hot guests with their golden volumes; None: there are to be none.

    :param conf: the configuration of trove-taskmanager
    :param load_tiers: returns the content of the tiers file, which is needed only for hot guests
    :raises InvalidConfigurationError: an option names no pools of warm guests
    """
    if not conf.trove_ceph_guests.hot:
        return None
    try:
        hot = guest_factory.hot_volume(conf)
    except exceptions.InvalidConfigurationError as error:
        return HotGuests(problem=str(error))
    assert hot is not None
    versions = {
        pool.name: instance_health.find_version(pool.datastore, pool.version)
        for pool in guest_factory.pools(conf)
    }
    tier = load_tiers().find_by_type(hot.volume_type)
    sources = _sources_of_hot(hot, tier, versions) if tier else {}
    states = _find_states(conf, set(sources.values()))
    found = {name: ConfiguredVolume(one, states[one]) for name, one in sources.items()}
    pools = (
        HotPool(name, version.version if version else None, found.get(name))
        for name, version in versions.items()
    )
    return HotGuests(None, hot.volume_type, tier.name if tier else None, tuple(pools))


def _sources_of_hot(
    hot: HotVolume, tier: tier_types.Tier, versions: Mapping[str, VersionRow | None]
) -> dict[str, golden.GoldenVolume]:
    """Return the golden volume of each pool of warm guests that can have one."""
    return {
        name: golden.GoldenVolume(tier.pool, version.version, hot.size_gib)
        for name, version in versions.items()
        if version and golden.is_exact(version.version)
    }


def _places(
    content: tier_types.TiersFile, versions: tuple[VersionRow, ...]
) -> Iterator[tuple[str, str]]:
    """Yield the pools with the versions of MySQL that may be created in them."""
    for one in versions:
        is_usable = one.is_active and one.guest_manager == GUEST_MANAGER
        if not is_usable or not golden.is_exact(one.version):
            continue
        for tier in content.tiers.values():
            named = tier.datastore_versions
            if tier.purpose is not tier_types.Purpose.DATA or tier.volume_type is None:
                continue
            if not named or f'{one.datastore}/{one.name}' in named:
                yield tier.pool, one.version


def _find_states(
    conf: Any, volumes: Collection[golden.GoldenVolume]
) -> Mapping[golden.GoldenVolume, golden.State | None]:
    if not volumes:
        return {}
    storage = rpcapi.StorageAPI(rpcapi.connect(conf))
    try:
        return {one: _find_state(storage, one) for one in volumes}
    finally:
        # The doctor may watch, and reads them again and again.
        storage.close()


def _find_state(storage: rpcapi.StorageAPI, volume: golden.GoldenVolume) -> golden.State | None:
    try:
        return golden.state_of(storage.describe(volume.image))
    except exceptions.NotFoundError:
        return None
