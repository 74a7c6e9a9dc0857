# SPDX-License-Identifier: Apache-2.0
"""What inspections are held to, and what they come to. Nothing here knows MySQL or Ceph."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oslo_utils import units

from trove_ceph import exceptions

#: A position that is longer is not recorded: it is kept in Ceph and in Trove's database.
MAX_GTID_BYTES = 1024**2
#: Of one reason for a verdict.
MAX_REASON_CHARACTERS = 1000

#: Beyond the ids that systemd gives to containers.
FIRST_UID = 1_900_000_000

#: Where inspected servers run: in a virtual machine where one runs, in one in any case, or in
#: namespaces of the host.
AUTO, VM, NAMESPACES = 'auto', 'vm', 'namespaces'

#: The server recovered, has the expected transactions, and found nothing wrong in its tables.
SOUND = 'sound'
#: What is there is damaged; the disk that it was read from is proved to work.
CORRUPT = 'corrupt'
#: Something that belongs to it is not there: files, or transactions. Proved as well.
INCOMPLETE = 'incomplete'
#: The time was up before all was checked; nothing wrong was found until then.
UNFINISHED = 'unfinished'
#: What says that a backup does not restore, or not as a whole.
AGAINST = (CORRUPT, INCOMPLETE)


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What a backup was found to be.

    :param verdict: one of SOUND, CORRUPT, INCOMPLETE, UNFINISHED
    :param reasons: for a verdict other than SOUND, without what is in tables
    :param gtid_executed: the backup's position, in MySQL's own notation; empty when the source
        logged no GTIDs, None when it was not come to
    :param mysql_version: of the server that opened it
    :param data_version: of the server that wrote it last
    :param tables_checked: as a whole, with CHECK TABLE
    :param tables_in_part: of which only some was read, for they are large
    :param tables: how many there are
    :param bytes: of all tables and indexes
    :param recovery_sec: how long InnoDB took until it was ready, redo and rollback included
    :param seconds: of each phase
    :param prepared_xa: XA transactions that were prepared and neither committed nor rolled back, as
        ``XA COMMIT`` takes them; the first of ``prepared_xa_count``
    :param clone_id: Ceph's id of the clone that was looked at
    :param inspected_by: the copy of the storage service that did it
    :param isolation: how the server was kept apart from the host, ``namespace``, ``vm (kvm)`` or
        ``vm (tcg)``
    :param memory_limit: what held it to its memory: ``vm``, the memory of its virtual machine;
        ``cgroup``; or ``process`` where the host has none to give, so that each process was held to
        it by itself
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
        """Whether it is known to restore."""
        return self.verdict == SOUND

    @property
    def is_against(self) -> bool:
        """Whether it says that the backup does not restore, or not as a whole."""
        return self.verdict in AGAINST

    def __str__(self) -> str:
        checked = f'{self.tables_checked} of {self.tables} tables checked'
        if self.tables_in_part:
            checked += f' and {self.tables_in_part} in part'
        return f'{self.verdict}, {checked}, {sum(self.seconds.values()):.1f} s'


class Finding(Exception):
    """Something is wrong with the backup, or could not be found out: the inspection's verdict."""

    def __init__(self, verdict: str, reason: str):
        super().__init__(reason)
        self.verdict = verdict
        self.reason = shorten(reason)


def shorten(text: str) -> str:
    """Return a reason that can be kept: the end of one that is too long is left out."""
    if len(text) <= MAX_REASON_CHARACTERS:
        return text
    return f'{text[: MAX_REASON_CHARACTERS - 3]}...'


@dataclasses.dataclass(frozen=True)
class InspectionSettings:
    """How inspections are done here.

    :param roots: root file systems with a mysqld, by datastore version
    :param directory: where sockets, logs and mount points are made
    :param memory_bytes: what one server may take
    :param bytes_per_sec: what it may read and write; 0 is no limit
    :param time_limit_sec: for one inspection as a whole
    :param deep: check all tables, not a sample
    :param sample_tables: how many tables of the tenant's a sample has
    :param sample_bytes: what a sample reads of them in all
    :param first_uid: the first of the user and group ids of this host that confined servers have
    :param max_written_bytes: what one server may write to its clone; 0 is no limit
    :param isolation: AUTO, VM or NAMESPACES
    :param vm_image_directory: has the image of the virtual machine
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
        """Return the root file system for a datastore version, that of its series if need be.

        :raises NotInspectableError: none is configured
        """
        words = version.split('.')
        for count in range(len(words), 1, -1):
            if found := self.roots.get('.'.join(words[:count])):
                return found
        raise exceptions.NotInspectableError(
            f'MySQL {version}: no root file system is configured to start it from; known are '
            f'{", ".join(sorted(self.roots)) or "none"}'
        )


def settings_of(group: Any) -> InspectionSettings:
    """Return the settings that the options of ``[trove_ceph_verification]`` give.

    :param group: the group of oslo.config
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
