# SPDX-License-Identifier: Apache-2.0
"""The settings and results of inspections, independent of MySQL and Ceph."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oslo_utils import units

from trove_ceph import exceptions

#: A longer GTID set is not recorded, since it is stored in Ceph and in Trove's database.
MAX_GTID_BYTES = 1024**2
#: Limit of one reason for a verdict.
MAX_REASON_CHARACTERS = 1000

#: Above the ids that systemd allocates to containers.
FIRST_UID = 1_900_000_000

#: The modes of isolation: a virtual machine if one runs on this host, otherwise namespaces; always
#: a virtual machine; always namespaces of this host.
AUTO, VM, NAMESPACES = 'auto', 'vm', 'namespaces'

#: The server recovered, has the expected transactions and found no damage in its tables.
SOUND = 'sound'
#: Data is damaged; the disk that it was read from is proved to work.
CORRUPT = 'corrupt'
#: Files or transactions are missing; the disk is proved to work.
INCOMPLETE = 'incomplete'
#: The time was up before everything was checked; no damage was found until then.
UNFINISHED = 'unfinished'
#: The verdicts that a backup does not restore completely.
AGAINST = (CORRUPT, INCOMPLETE)


@dataclasses.dataclass(frozen=True)
class Inspection:
    """The result of an inspection.

    :param verdict: one of SOUND, CORRUPT, INCOMPLETE, UNFINISHED
    :param reasons: for a verdict other than SOUND, without data from tables
    :param gtid_executed: the backup's position, in MySQL's own notation; empty when the source
        logged no GTIDs, None when the inspection ended before it was read
    :param mysql_version: of the server that opened the backup
    :param data_version: of the server that wrote the data last
    :param tables_checked: number of tables checked completely, with CHECK TABLE
    :param tables_in_part: number of large tables of which only a part was read
    :param tables: number of all tables
    :param bytes: size of all tables and indexes
    :param recovery_sec: how long InnoDB took until it was ready, redo and rollback included
    :param seconds: duration of each phase
    :param prepared_xa: XA transactions that were prepared and neither committed nor rolled back, as
        ``XA COMMIT`` takes them; the first of ``prepared_xa_count``
    :param clone_id: Ceph's id of the inspected clone
    :param inspected_by: the copy of the storage service that ran the inspection
    :param isolation: how the server was isolated from the host: ``namespace``, ``vm (kvm)`` or
        ``vm (tcg)``
    :param memory_limit: what limited the memory: ``vm``, the memory of the virtual machine;
        ``cgroup``; or ``process`` on a host without usable control groups, where the limit applies
        to each process alone
    """

    verdict: str
    reasons: tuple[str, ...] = ()
    gtid_executed: str | None = None
    mysql_version: str | None = None
    data_version: str | None = None
    tables_checked: int = 0
    tables_in_part: int = 0
    tables: int = 0
    bytes: int = 0
    recovery_sec: float | None = None
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    prepared_xa: tuple[str, ...] = ()
    prepared_xa_count: int = 0
    clone_id: str | None = None
    inspected_by: str | None = None
    isolation: str | None = None
    memory_limit: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the backup is proved to restore."""
        return self.verdict == SOUND

    @property
    def is_against(self) -> bool:
        """Whether the backup is proved not to restore completely."""
        return self.verdict in AGAINST

    def __str__(self) -> str:
        checked = f'{self.tables_checked} of {self.tables} tables checked'
        if self.tables_in_part:
            checked += f' and {self.tables_in_part} in part'
        return f'{self.verdict}, {checked}, {sum(self.seconds.values()):.1f} s'


class NotSoundError(Exception):
    """The inspection has a finding: a verdict other than SOUND, with its reason."""

    def __init__(self, verdict: str, reason: str):
        super().__init__(reason)
        self.verdict = verdict
        self.reason = shorten(reason)


def shorten(text: str) -> str:
    """Return a reason cut to MAX_REASON_CHARACTERS."""
    if len(text) <= MAX_REASON_CHARACTERS:
        return text
    return f'{text[: MAX_REASON_CHARACTERS - 3]}...'


@dataclasses.dataclass(frozen=True)
class InspectionSettings:
    """The settings of inspections on this host.

    :param roots: root file systems with a mysqld, by datastore version
    :param directory: where sockets, logs and mount points are created
    :param memory_bytes: memory limit of one server
    :param bytes_per_sec: limit of its reads and writes; 0 is no limit
    :param time_limit_sec: limit of one inspection as a whole
    :param deep: check all tables, not a sample
    :param sample_tables: number of the tenant's tables in a sample
    :param sample_bytes: how much a sample reads of all its tables together
    :param first_uid: the first of the uids and gids of this host that confined servers run as
    :param max_written_bytes: how much one server may write to its clone; 0 is no limit
    :param isolation: AUTO, VM or NAMESPACES
    :param vm_image_directory: the directory of the virtual machine image
    :param vm_accelerator: ``kvm`` or ``tcg``
    """

    roots: Mapping[str, Path]
    directory: Path
    memory_bytes: int
    bytes_per_sec: int
    time_limit_sec: int
    deep: bool
    sample_tables: int
    sample_bytes: int
    first_uid: int = FIRST_UID
    max_written_bytes: int = 0
    isolation: str = NAMESPACES
    vm_image_directory: Path = Path('/var/lib/trove-ceph/inspection-image')
    vm_accelerator: str = 'kvm'

    def root_for(self, version: str) -> Path:
        """Return the root file system for a datastore version, or else for its series.

        :raises NotInspectableError: no root file system is configured for either
        """
        words = version.split('.')
        for count in range(len(words), 1, -1):
            if found := self.roots.get('.'.join(words[:count])):
                return found
        raise exceptions.NotInspectableError(
            f'MySQL {version}: no root file system is configured (option mysqld_roots); '
            f'configured are {", ".join(sorted(self.roots)) or "none"}'
        )


def settings_of(group: Any) -> InspectionSettings:
    """Return the settings from the options of ``[trove_ceph_verification]``.

    :param group: the oslo.config option group
    """
    return InspectionSettings(
        roots={version: Path(path) for version, path in group.mysqld_roots.items()},
        directory=Path(group.directory),
        memory_bytes=group.memory_mib * units.Mi,
        bytes_per_sec=group.mib_per_sec * units.Mi,
        time_limit_sec=group.time_limit_sec,
        deep=group.deep,
        sample_tables=group.sample_tables,
        sample_bytes=group.sample_mib * units.Mi,
        first_uid=group.first_uid,
        max_written_bytes=group.max_written_mib * units.Mi,
        isolation=group.isolation,
        vm_image_directory=Path(group.vm_image_directory),
        vm_accelerator=group.vm_accelerator,
    )
