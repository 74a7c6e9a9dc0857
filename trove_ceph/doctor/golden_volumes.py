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
    places = sorted(set(_places(content, instance_health.list_versions())))
    volumes = [
        golden.GoldenVolume(pool, version, size_gib)
        for pool, version in places
        for size_gib in sizes_gib
    ]
    connection = rpcapi.connect(conf)
    try:
        storage = rpcapi.StorageAPI(connection)
        return tuple(ConfiguredVolume(one, _find_state(storage, one)) for one in volumes)
    finally:
        # The doctor may watch, and reads them again and again.
        connection.transport.cleanup()


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
