# SPDX-License-Identifier: Apache-2.0
"""The clients and settings that the operations on backups need."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from trove_ceph import waiting
from trove_ceph.cinder import client, wait
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.db import backups, claims, heartbeat
from trove_ceph.mysql import tuning
from trove_ceph.storage import image_types
from trove_ceph.storage_service import rpcapi
from trove_ceph.strategies.backup import background, backup_types


class Trove(Protocol):
    """Trove's own tables, which hold what tenants see."""

    def find_instance(self, instance_id: str) -> backup_types.Instance | None:
        """Return an instance, even a deleted one."""

    def find_instance_of_volume(self, volume_id: str) -> backup_types.Instance | None:
        """Return the instance that has a volume and is not deleted."""

    def set_volume(self, instance_id: str, volume_id: str | None) -> None:
        """Set the volume of an instance; do nothing if the instance is deleted."""

    def check_volume_quota(self, instance_id: str, size_gib: int) -> None:
        """Check that the volume of an instance may be that large by the quota of its project.

        :raises ReplicaRefusedError: it would grow beyond the quota
        """

    def find_backup(self, backup_id: str) -> backup_types.TroveBackup | None:
        """Return a backup, even a deleted one."""

    def list_new_backups(self) -> list[backup_types.TroveBackup]:
        """List backups that have not begun."""

    def list_running_backups(self) -> list[str]:
        """List the ids of the backups that have not begun, or are shown as being taken."""

    def begin_backup(self, backup_id: str) -> None:
        """Show a backup as being taken, and without a parent, whose deletion would delete it.

        :raises RecordNotFoundError: the backup is deleted
        """

    def complete_backup(self, backup_id: str, snapshot_id: str, size_gib: int) -> None:
        """Show a backup as complete, with the location of its snapshot.

        :raises RecordNotFoundError: the backup is deleted
        """

    def fail_backup(self, backup_id: str) -> None:
        """Show a backup as failed."""

    def fail_deletion(self, backup_id: str) -> None:
        """Show that the deletion of a backup failed."""

    def delete_backup(self, backup_id: str) -> None:
        """Mark a backup as deleted; harmless when repeated."""

    def count_backup(self, project_id: str) -> None:
        """Add one backup to the used quota of a project."""


class Guest(Protocol):
    """The guest agent of one instance; each call raises GuestUnavailableError when it fails."""

    def check_backup_settings(self) -> Mapping[str, Any]: ...

    def quiesce_for_backup(
        self, backup_id: str, token: str, level: str, limit_sec: int
    ) -> Mapping[str, Any]: ...

    def release_after_backup(self, backup_id: str, token: str) -> Mapping[str, Any]: ...

    def trim_volume(self, max_age_sec: int) -> None: ...

    def record_flattened(self) -> None: ...

    def apply_tier(self, tier: tuning.Tier | None) -> bool: ...


class Begin(Protocol):
    """Starts a request in the background of an operation, as :func:`background.begin` does."""

    def __call__(self, request: Callable[[], Any]) -> Callable[[], Any]: ...


class Servers(Protocol):
    """Nova."""

    def keep_volume(self, server_id: str, volume_id: str) -> None:
        """Keep a volume when its Nova server is deleted; do nothing if it is not attached.

        :raises ServiceUnavailableError: Nova refused
        """


@dataclasses.dataclass(frozen=True)
class BackupDependencies:
    """The dependencies of the operations on backups.

    :param find_image: returns the image of a volume; None if the volume is on no tier
    :param pools_of: returns the pools in which the images of a pool have their data and headers
    :param guest: returns the client of the guest agent of an instance, by the instance's id
    :param worker: the name and the rules under which this process claims records
    :param heartbeat: renews the claims of this process
    :param vault: returns the pool for copies; raises InvalidTiersError if there is none
    :param begin: starts a request in the background
    """

    storage: rpcapi.StorageAPI
    cinder: client.Cinder
    records: backups.BackupStore
    trove: Trove
    servers: Servers
    guest: Callable[[str], Guest]
    find_image: Callable[[cinder_resources.Volume], image_types.ImageRef | None]
    pools_of: Callable[[str], Sequence[str]]
    worker: claims.Claimant
    heartbeat: heartbeat.Heartbeat
    vault: Callable[[], str]
    policy: backup_types.BackupSettings = dataclasses.field(
        default_factory=backup_types.BackupSettings
    )
    wait_limits: wait.WaitLimits = dataclasses.field(default_factory=wait.WaitLimits)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    begin: Begin = background.begin

    def deadline(self, timeout_sec: float) -> waiting.Deadline:
        """Return a deadline that starts now."""
        return waiting.Deadline(timeout_sec, self.clock, self.sleep)
