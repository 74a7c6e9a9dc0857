# SPDX-License-Identifier: Apache-2.0
"""Check that there is room for volumes before anything is done. Nothing is changed."""

from trove_ceph import exceptions
from trove_ceph.cinder import checks
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.strategies.backup.dependencies import BackupDependencies


def check_room(
    deps: BackupDependencies,
    subject: str,
    backend: cinder_resources.StorageBackend,
    volume_type: str,
    size_gib: int,
    count: int = 1,
) -> None:
    """Check that volumes can be created now.

    :param subject: what the message begins with
    :param backend: the Cinder back end that will have them
    :param volume_type: the name of their volume type
    :param size_gib: of each volume
    :param count: how many
    :raises NoSpaceError: a pool that would have their data or headers is full
    :raises QuotaExceededError: Cinder's quota does not allow the volumes
    """
    for pool in deps.pools_of(backend.pool):
        usage = deps.storage.usage(pool)
        if usage.full:
            raise exceptions.NoSpaceError(f'{subject}: {usage}')
    projects = [deps.cinder.project_id]
    checks.check_quota(deps.cinder, projects, subject, volume_type, size_gib, count)
