# SPDX-License-Identifier: Apache-2.0
"""What the operations on backups ask of others."""

import dataclasses
import datetime
import time
from collections.abc import Callable, Mapping
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
    """Trove's own tables: what tenants see."""

    def find_instance(self, instance_id: str) -> backup_types.Instance | None:
        """Return an instance, a deleted one too."""

    def set_volume(self, instance_id: str, volume_id: str | None) -> None:
        """Say which volume an instance has; nothing if it is deleted."""

    def find_backup(self, backup_id: str) -> backup_types.TroveBackup | None:
        """Return a backup, a deleted one too."""

    def list_new_backups(self, since: datetime.timedelta) -> list[backup_types.TroveBackup]:
        """List what was asked for so long ago, and is not shown as being taken."""

    def begin_backup(self, backup_id: str) -> None:
        """Show it as being taken, complete by itself: deleting its parent must not delete it.

        :raises RecordNotFoundError: it is deleted
        """

    def complete_backup(self, backup_id: str, snapshot_id: str, size_gib: int) -> None:
        """Show it as complete, and where it is.

        :raises RecordNotFoundError: it is deleted
        """

    def fail_backup(self, backup_id: str) -> None:
        """Show that it could not be taken."""

    def fail_deletion(self, backup_id: str) -> None:
        """Show that it could not be deleted."""

    def delete_backup(self, backup_id: str) -> None:
        """Show it no more; harmless when repeated."""

    def count_backup(self, project_id: str) -> None:
        """Count one more backup against a project's quota."""


class Guest(Protocol):
    """The guest agent of one instance; each raises GuestUnavailableError when it fails."""

    def check_backup_settings(self) -> Mapping[str, Any]: ...

    def quiesce_for_backup(
        self, backup_id: str, token: str, level: str, limit_sec: int
    ) -> Mapping[str, Any]: ...

    def release_after_backup(self, backup_id: str, token: str) -> Mapping[str, Any]: ...

    def trim_volume(self, max_age_sec: int) -> None: ...

    def apply_tier(self, tier: tuning.Tier | None) -> bool: ...


class Begin(Protocol):
    """Begins a request beside the steps of an operation, as :func:`background.begin` does."""

    def __call__(self, request: Callable[[], Any]) -> Callable[[], Any]: ...


class Servers(Protocol):
    """Nova."""

    def keep_volume(self, server_id: str, volume_id: str) -> None:
        """Have a volume not be deleted with its server; nothing if it is not attached.

        :raises ServiceUnavailableError: Nova refused
        """


@dataclasses.dataclass(frozen=True)
class BackupDependencies:
    """Whom the operations ask.

    :param place: where the image of a volume lies; None where it is none of our tiers'
    :param guest: the guest agent of an instance, by its id
    :param worker: who is working, in the records
    :param heartbeat: shows that this process is alive
    :param begin: begins a request that others need not wait for
    :param vault: the pool that copies go to; raises InvalidTiersError where there is none
    """

    storage: rpcapi.StorageAPI
    cinder: client.Cinder
    records: backups.BackupStore
    trove: Trove
    servers: Servers
    guest: Callable[[str], Guest]
    place: Callable[[cinder_resources.Volume], image_types.ImageRef | None]
    worker: claims.Claimant
    heartbeat: heartbeat.Heartbeat
    vault: Callable[[], str]
    policy: backup_types.BackupSettings = dataclasses.field(
        default_factory=backup_types.BackupSettings
    )
    patience: wait.WaitLimits = dataclasses.field(default_factory=wait.WaitLimits)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    begin: Begin = background.begin

    def deadline(self, timeout_sec: float) -> waiting.Deadline:
        """Return the end of a wait that begins now."""
        return waiting.Deadline(timeout_sec, self.clock, self.sleep)
