# SPDX-License-Identifier: Apache-2.0
"""What is said of backups, and of what they are taken of."""

import dataclasses

from trove_ceph.enums import QuiesceLevel, UnsafeAction, VerifyWhen


@dataclasses.dataclass(frozen=True)
class Instance:
    """An instance as Trove has it.

    :param volume_id: None before it has one
    :param server_id: Nova's; None before it has one
    :param datastore: the name of its datastore, with ``version``
    :param is_deleting: it will be deleted soon, or is
    :param has_our_guest_agent: its datastore version names a guest manager of trove_ceph; with
        another one, a stock agent or another datastore, backups are Trove's own
    """

    id: str
    project_id: str
    volume_id: str | None
    server_id: str | None = None
    datastore: str = ''
    version: str = ''
    is_deleting: bool = False
    is_deleted: bool = False
    has_our_guest_agent: bool = True


@dataclasses.dataclass(frozen=True)
class TroveBackup:
    """A backup as Trove has it.

    :param parent_id: which was asked for; of one that was begun it is in our own record
    :param is_deleted: tenants do not see it any more
    :param datastore: the name of the datastore that it is of, with ``version``
    :param snapshot_id: Cinder's, which tenants are shown that it is; None: it is not complete
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
    """How backups are taken, as an operator has it.

    :param levels: of datastores, and of ``datastore/version``
    :param limit_sec: after which a server that is held goes on by itself
    :param copy: each is copied to the vault
    :param vault_quota_gib: how much of the vault the copies of one project may occupy; 0: all of it
    """

    level: QuiesceLevel = QuiesceLevel.NONE
    levels: dict[str, QuiesceLevel] = dataclasses.field(default_factory=dict)
    unsafe_action: UnsafeAction = UnsafeAction.REFUSE
    limit_sec: int = 20
    copy: bool = False
    verify: VerifyWhen = VerifyWhen.NEVER
    vault_quota_gib: int = 0

    def level_of(self, instance: Instance) -> QuiesceLevel:
        """Return the level that backups of an instance have."""
        version = f'{instance.datastore}/{instance.version}'
        return self.levels.get(version, self.levels.get(instance.datastore, self.level))
