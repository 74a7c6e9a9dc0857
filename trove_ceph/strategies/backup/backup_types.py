# SPDX-License-Identifier: Apache-2.0
"""Values that describe backups and the instances they are taken of."""

import dataclasses
import datetime

from trove_ceph.enums import QuiesceLevel, UnsafeAction, VerifyWhen


@dataclasses.dataclass(frozen=True)
class Instance:
    """An instance, as Trove records it.

    :param volume_id: None until Trove has created the volume
    :param server_id: Nova's id; None until Trove has created the server
    :param datastore: the name of the datastore; ``version`` is the name of its version
    :param is_building: its creation is under way; its guest agent may not answer yet
    :param is_deleting: its deletion has been requested
    :param has_our_guest_agent: its datastore version names a guest manager of trove_ceph. Backups
        of other instances (a stock agent or another datastore) stay with Trove's own code
    :param source_id: of the instance that it follows; None: it is no replica
    :param created_at: when its creation was requested, in UTC without time zone
    """

    id: str
    project_id: str
    volume_id: str | None
    server_id: str | None = None
    datastore: str = ''
    version: str = ''
    is_building: bool = False
    is_deleting: bool = False
    is_deleted: bool = False
    has_our_guest_agent: bool = True
    source_id: str | None = None
    created_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True)
class TroveBackup:
    """A backup, as Trove records it.

    :param parent_id: the requested parent. Once the backup has begun, our own record has it
    :param is_deleted: tenants no longer see it
    :param datastore: the name of its datastore; ``version`` is the name of its version
    :param snapshot_id: the id of the Cinder snapshot that tenants see; None: it is not complete
    """

    id: str
    project_id: str
    instance_id: str
    name: str
    description: str
    parent_id: str | None = None
    is_deleted: bool = False
    datastore: str = ''
    version: str = ''
    snapshot_id: str | None = None

    @property
    def is_shown(self) -> bool:
        """Whether tenants see it as complete."""
        return self.snapshot_id is not None and not self.is_deleted


@dataclasses.dataclass(frozen=True)
class BackupSettings:
    """The operator's settings of backups.

    :param levels: by datastore, and by ``datastore/version``
    :param limit_sec: after this time a quiesced server resumes by itself
    :param copy: copy each backup to the vault
    :param vault_quota_gib: the space that the copies of one project may occupy in the vault;
        0: no limit
    """

    level: QuiesceLevel = QuiesceLevel.NONE
    levels: dict[str, QuiesceLevel] = dataclasses.field(default_factory=dict)
    unsafe_action: UnsafeAction = UnsafeAction.REFUSE
    limit_sec: int = 20
    copy: bool = False
    verify: VerifyWhen = VerifyWhen.NEVER
    vault_quota_gib: int = 0

    def level_of(self, instance: Instance) -> QuiesceLevel:
        """Return the quiesce level for backups of an instance."""
        version = f'{instance.datastore}/{instance.version}'
        return self.levels.get(version, self.levels.get(instance.datastore, self.level))
