# SPDX-License-Identifier: Apache-2.0
"""Read the states of the golden volumes that the configuration names."""

from collections.abc import Iterator
from typing import Any

from trove_ceph import exceptions
from trove_ceph.db.trove_rows import VersionRow
from trove_ceph.doctor.backup_checks import GUEST_MANAGER
from trove_ceph.doctor.golden_facts import ConfiguredVolume
from trove_ceph.storage import golden
from trove_ceph.storage_service import rpcapi
from trove_ceph.tiers import tier_types
from trove_ceph.trove_adapter import instance_health


def read(conf: Any, content: tier_types.TiersFile) -> tuple[ConfiguredVolume, ...]:
    """Return the golden volumes that new instances would use; none if the option has no sizes.

    :param conf: the configuration of trove-taskmanager
    """
    sizes_gib = sorted(set(conf.trove_ceph_golden.sizes_gib))
    if not sizes_gib:
        return ()
    storage = rpcapi.StorageAPI(rpcapi.connect(conf))
    found = []
    for pool, version in sorted(set(_places(content, instance_health.list_versions()))):
        for size_gib in sizes_gib:
            volume = golden.GoldenVolume(pool, version, size_gib)
            found.append(ConfiguredVolume(volume, _find_state(storage, volume)))
    return tuple(found)


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


def _find_state(storage: rpcapi.StorageAPI, volume: golden.GoldenVolume) -> golden.State | None:
    try:
        return golden.state_of(storage.describe(volume.image))
    except exceptions.NotFoundError:
        return None
