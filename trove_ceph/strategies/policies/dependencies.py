# SPDX-License-Identifier: Apache-2.0
"""What policies ask of others."""

import dataclasses
import datetime
from collections.abc import Callable, Iterable
from typing import Protocol

from trove_ceph.db import backups, claims, heartbeat, policies
from trove_ceph.strategies.backup import backup_types, options


@dataclasses.dataclass(frozen=True)
class Seen:
    """What tenants see of a backup.

    :param is_running: it is being taken, or is to be
    :param is_completed: it is there
    """

    backup_id: str
    created_at: datetime.datetime
    is_running: bool = False
    is_completed: bool = False


class Trove(Protocol):
    """Trove, asked for the same as tenants ask its API, and in their name."""

    def list_instances(self) -> list[backup_types.Instance]:
        """List the instances that are not deleted."""

    def ask_for_backup(
        self,
        instance: backup_types.Instance,
        name: str,
        description: str,
        asked: options.BackupOptions,
    ) -> str:
        """Ask for a backup of an instance and return its id.

        :raises TroveCephError: it is refused, for example because the quota is used up
        """

    def ask_for_deletion(self, backup_id: str, project_id: str, again: bool = False) -> None:
        """Ask for the deletion of a backup; nothing if it is gone.

        :param again: it was asked for before, and nothing came of it

        :raises TroveCephError: it is refused
        """

    def find_named(self, instance_id: str, name: str) -> Seen | None:
        """Return the backup of an instance that has a name."""

    def find(self, backup_id: str) -> Seen | None:
        """Return a backup; None if it is gone."""

    def give_up(self, backup_id: str) -> None:
        """Show that a backup could not be taken; nothing if it is gone."""


@dataclasses.dataclass(frozen=True)
class PolicyDependencies:
    """Whom policies ask.

    :param tiers: tells the tiers of instances, by the instances' ids; those on none are left out
    :param trim: asks the guest agent of an instance to trim the volume unless it did lately; does
        not wait for it
    :param worker: who is working, in the tables
    :param heartbeat: shows that this process is alive
    :param least_interval_min: minutes; a policy with a shorter interval is run with this one
    """

    policies: policies.PolicyStore
    records: backups.BackupStore
    trove: Trove
    tiers: Callable[[Iterable[backup_types.Instance]], dict[str, str]]
    trim: Callable[[str], None]
    worker: claims.Claimant
    heartbeat: heartbeat.Heartbeat
    least_interval_min: int = 1
