# SPDX-License-Identifier: Apache-2.0
"""The clients and settings that policies need."""

import dataclasses
import datetime
from collections.abc import Callable, Iterable
from typing import Protocol

from trove_ceph.db import backups, claims, heartbeat, policies
from trove_ceph.strategies.backup import backup_types, options


@dataclasses.dataclass(frozen=True)
class ShownBackup:
    """A backup, as tenants see it.

    :param is_running: it is being taken, or waits for that
    :param is_completed: it is complete
    """

    backup_id: str
    created_at: datetime.datetime
    is_running: bool = False
    is_completed: bool = False


class Trove(Protocol):
    """The requests to Trove that tenants can make too, made in the tenants' name."""

    def list_instances(self) -> list[backup_types.Instance]:
        """List the instances that are not deleted."""

    def request_backup(
        self,
        instance: backup_types.Instance,
        name: str,
        description: str,
        requested: options.BackupOptions,
    ) -> str:
        """Request a backup of an instance and return its id.

        :raises TroveCephError: Trove refuses it, for example because the quota is used up
        """

    def request_deletion(self, backup_id: str, project_id: str, again: bool = False) -> None:
        """Request the deletion of a backup; do nothing if it is gone.

        :param again: it was requested before, without effect
        :raises TroveCephError: Trove refuses it
        """

    def find_named(self, instance_id: str, name: str) -> ShownBackup | None:
        """Return the backup of an instance that has this name."""

    def find(self, backup_id: str) -> ShownBackup | None:
        """Return a backup; None if it is gone."""

    def fail_backup(self, backup_id: str) -> None:
        """Show a backup as failed; do nothing if it is gone."""


@dataclasses.dataclass(frozen=True)
class PolicyDependencies:
    """The dependencies of the scheduler of policies.

    :param tiers: returns the names of the tiers of instances, by the instances' ids; instances on
        no tier are left out
    :param trim: requests that the guest agent of an instance trims the volume, unless it did so
        recently; does not wait
    :param worker: the name and the rules under which this process claims records
    :param heartbeat: renews the claims of this process
    :param is_on_tier: returns whether the volume of an instance is on the back end of a tier; if it
        is not, Trove takes its backups by itself
    :param least_interval_min: in minutes; a policy with a shorter interval runs at this one
    """

    policies: policies.PolicyStore
    records: backups.BackupStore
    trove: Trove
    tiers: Callable[[Iterable[backup_types.Instance]], dict[str, str]]
    trim: Callable[[str], None]
    worker: claims.Claimant
    heartbeat: heartbeat.Heartbeat
    is_on_tier: Callable[[str], bool]
    least_interval_min: int = 1
