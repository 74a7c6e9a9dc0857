# SPDX-License-Identifier: Apache-2.0
"""Reading and writing the tables, in verbs of what they are about."""

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import oslo_db.api
import oslo_db.exception
import sqlalchemy as sa
from oslo_db.sqlalchemy import enginefacade
from sqlalchemy import orm

from trove_ceph import exceptions
from trove_ceph.db import model, tables
from trove_ceph.db.model import State

_FIELDS = [field.name for field in dataclasses.fields(model.Backup)]
_retried = oslo_db.api.wrap_db_retry(max_retries=5, retry_on_deadlock=True)


def _now() -> datetime.datetime:
    """The time as the tables have it: in UTC, and of no zone."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None, microsecond=0)


@enginefacade.transaction_context_provider
class _Context:
    """What the transactions of one call belong to."""


class Records:
    """What is known of backups; for several threads and processes.

    Each verb is one transaction, and raises ServiceUnavailableError when the database does not
    answer or lacks the tables.

    :param facade: of oslo.db's enginefacade; by default the database of Trove's configuration
    """

    def __init__(self, facade: Any = None, clock: Callable[[], datetime.datetime] = _now):
        self._facade = facade or enginefacade.transaction_context()
        self._clock = clock

    # Looking.

    def find(self, backup_id: str) -> model.Backup | None:
        with self._reading() as session:
            return _backup(session.get(tables.Backup, backup_id))

    def get(self, backup_id: str) -> model.Backup:
        """Return a backup.

        :raises NotFoundError: it is none of ours
        """
        found = self.find(backup_id)
        if found is None:
            raise exceptions.NotFoundError(f'backup {backup_id}: is not recorded')
        return found

    def of_instance(self, instance_id: str) -> list[model.Backup]:
        """List the backups of an instance, the latest first."""
        return self._list(tables.Backup.instance_id == instance_id)

    def of_project(self, project_id: str) -> list[model.Backup]:
        """List the backups of a project, the latest first."""
        return self._list(tables.Backup.project_id == project_id)

    def of_volume(self, volume_id: str) -> list[model.Backup]:
        """List the backups of a volume, the latest first."""
        return self._list(tables.Backup.volume_id == volume_id)

    def in_vault(self, pool: str, image: str) -> list[model.Backup]:
        """List the backups with a copy in one image of a vault, the latest first."""
        return self._list(tables.Backup.vault_pool == pool, tables.Backup.vault_image == image)

    def interrupted(self, since: datetime.timedelta) -> list[model.Backup]:
        """List what nobody has carried on with for so long."""
        return self._list(
            tables.Backup.state.in_([str(state) for state in model.UNDER_WAY]),
            tables.Backup.seen_at < self._clock() - since,
        )

    # Working.

    @_retried
    def claim(self, backup_id: str, worker: str, since: datetime.timedelta) -> bool:
        """Take over a backup that nobody has carried on with for so long.

        :returns: whether it is ours; of several that try, of one alone
        """
        now = self._clock()
        with self._writing() as session:
            done = session.connection().execute(
                sa.update(tables.Backup)
                .where(
                    tables.Backup.backup_id == backup_id,
                    sa.or_(tables.Backup.worker.is_(None), tables.Backup.seen_at < now - since),
                )
                .values(worker=worker, seen_at=now)
            )
            return bool(done.rowcount)

    def beat(self, backup_id: str) -> None:
        """Show that it is being carried on with."""
        self._update(backup_id, seen_at=self._clock())

    def release(self, backup_id: str) -> None:
        """Let whoever asks next carry on; nothing if it is forgotten."""
        self._update(backup_id, worker=None)

    # Taking.

    @_retried
    def begin_taking(
        self,
        backup_id: str,
        instance_id: str,
        project_id: str,
        worker: str,
        parent_id: str | None = None,
    ) -> None:
        """Begin to take a backup, or carry on with it: then what is known of it stays.

        :param parent_id: None where Trove does not say, or not any more
        """
        now = self._clock()
        with self._writing() as session:
            row = session.get(tables.Backup, backup_id)
            if row is None:
                row = tables.Backup(backup_id=backup_id, created_at=now)
                session.add(row)
            values = {'instance_id': instance_id, 'project_id': project_id, 'worker': worker}
            times = {'seen_at': now, 'updated_at': now}
            known = {'parent_id': parent_id} if parent_id else {}
            _set(row, values | times | known | {'state': str(State.TAKING), 'error': None})

    def note_place(self, backup_id: str, place: Any, volume_id: str, size_bytes: int) -> None:
        """Write down where its snapshot will be, before it is made.

        :param place: the snapshot
        """
        self._update(
            backup_id,
            pool=place.pool,
            image=place.image,
            snapshot=place.name,
            volume_id=volume_id,
            size_bytes=size_bytes,
            cinder_snapshot_id=None,
        )

    def note_level(
        self, backup_id: str, level: str, raised_from: str | None, because: str | None
    ) -> None:
        """Write down how the server is held while the snapshot is made."""
        asked = None if raised_from is None else str(raised_from)
        self._update(backup_id, quiesce=str(level), raised_from=asked, raised_because=because)

    def note_snapshot(self, backup_id: str, size_bytes: int, quiesced_sec: float | None) -> None:
        """Write down that a snapshot was made, and held what it promises."""
        self._update(
            backup_id,
            size_bytes=size_bytes,
            quiesced_sec=quiesced_sec,
            snapshot_at=self._clock(),
        )

    def forget_snapshot(self, backup_id: str) -> None:
        """Write down that whatever snapshot there is proves nothing."""
        self._update(backup_id, snapshot_at=None, quiesced_sec=None)

    def note_taken(self, backup_id: str, snapshot: str, cinder_id: str, take_sec: float) -> None:
        """Write down that a backup is there.

        :param snapshot: its name in Ceph, which is Cinder's now
        """
        self._update(
            backup_id,
            state=str(State.TAKEN),
            snapshot=snapshot,
            cinder_snapshot_id=cinder_id,
            take_sec=take_sec,
        )

    def note_failed(self, backup_id: str, error: str) -> None:
        """Write down why there is no backup."""
        self._update(backup_id, state=str(State.FAILED), error=error, worker=None)

    # Copies and verification.

    def begin_copying(self, backup_id: str, copy: Any) -> None:
        """Write down where a copy will be, before anything is made there.

        :param copy: the snapshot that it will be
        """
        self._update(
            backup_id, vault_pool=copy.pool, vault_image=copy.image, vault_snapshot=copy.name
        )

    @_retried
    def note_copied(self, backup_id: str, moved_bytes: int, copy_sec: float) -> None:
        """Write down that the copy is complete; one that is verified stays so."""
        with self._writing() as session:
            row = session.get(tables.Backup, backup_id)
            if row is not None:
                values: dict[str, Any] = {'moved_bytes': moved_bytes, 'copy_sec': copy_sec}
                if row.state == State.TAKEN:
                    values['state'] = str(State.COPIED)
                now = self._clock()
                _set(row, values | {'copied_at': now, 'updated_at': now})

    def note_verified(
        self,
        backup_id: str,
        gtid_executed: str,
        verification: Mapping[str, Any],
        verify_sec: float,
        used_bytes: int | None = None,
    ) -> None:
        """Write down that a server was started from it, and what it held."""
        known = {} if used_bytes is None else {'used_bytes': used_bytes}
        self._update(
            backup_id,
            state=str(State.VERIFIED),
            gtid_executed=gtid_executed,
            verification=dict(verification),
            verified_at=self._clock(),
            verify_sec=verify_sec,
            **known,
        )

    # Deleting.

    def begin_deleting(self, backup_id: str, worker: str) -> None:
        """Begin to delete a backup, or carry on with it."""
        now = self._clock()
        self._update(backup_id, state=str(State.DELETING), error=None, worker=worker, seen_at=now)

    def note_not_deleted(self, backup_id: str, error: str) -> None:
        """Write down why it could not be deleted; it is tried again."""
        self._update(backup_id, error=error, worker=None)

    def forget_copy(self, backup_id: str) -> None:
        """Write down that there is no copy any more."""
        self._update(
            backup_id, vault_pool=None, vault_image=None, vault_snapshot=None, copied_at=None
        )

    @_retried
    def forget(self, backup_id: str) -> None:
        """Forget a backup; those that build upon it are complete without it."""
        with self._writing() as session:
            session.execute(
                sa.update(tables.Backup)
                .where(tables.Backup.parent_id == backup_id)
                .values(parent_id=None)
            )
            session.execute(sa.delete(tables.Backup).where(tables.Backup.backup_id == backup_id))

    # What is left of instances.

    @_retried
    def keep_volume(self, volume_id: str, instance_id: str, project_id: str) -> None:
        """Remember a volume until it is gone; harmless when repeated."""
        with self._writing() as session:
            session.merge(
                tables.KeptVolume(
                    volume_id=volume_id,
                    instance_id=instance_id,
                    project_id=project_id,
                    created_at=self._clock(),
                )
            )

    def kept_volumes(self) -> list[model.KeptVolume]:
        with self._reading() as session:
            return [
                model.KeptVolume(row.volume_id, row.instance_id, row.project_id, row.created_at)
                for row in session.scalars(sa.select(tables.KeptVolume))
            ]

    def find_kept_volume(self, volume_id: str) -> model.KeptVolume | None:
        return next((one for one in self.kept_volumes() if one.volume_id == volume_id), None)

    @_retried
    def forget_volume(self, volume_id: str) -> None:
        with self._writing() as session:
            row = tables.KeptVolume
            session.execute(sa.delete(row).where(row.volume_id == volume_id))

    @_retried
    def note_trashed(self, pool: str, image_id: str, name: str) -> None:
        """Remember an image that is about to be moved to the trash; harmless when repeated."""
        with self._writing() as session:
            session.merge(
                tables.TrashedImage(
                    pool=pool, image_id=image_id, name=name, created_at=self._clock()
                )
            )

    def trashed_images(self) -> list[model.TrashedImage]:
        with self._reading() as session:
            return [
                model.TrashedImage(row.pool, row.image_id, row.name, row.created_at)
                for row in session.scalars(sa.select(tables.TrashedImage))
            ]

    @_retried
    def forget_trashed(self, pool: str, image_id: str) -> None:
        with self._writing() as session:
            row = tables.TrashedImage
            session.execute(sa.delete(row).where(row.pool == pool, row.image_id == image_id))

    # Inside.

    def _list(self, *conditions: Any) -> list[model.Backup]:
        with self._reading() as session:
            rows = session.scalars(
                sa.select(tables.Backup)
                .where(*conditions)
                .order_by(tables.Backup.created_at.desc(), tables.Backup.backup_id)
            )
            return [found for found in map(_backup, rows) if found is not None]

    @_retried
    def _update(self, backup_id: str, **values: Any) -> None:
        with self._writing() as session:
            session.execute(
                sa.update(tables.Backup)
                .where(tables.Backup.backup_id == backup_id)
                .values(**{'updated_at': self._clock()} | values)
            )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[orm.Session]:
        with _translated(), self._facade.reader.using(_Context()) as session:
            yield session

    @contextlib.contextmanager
    def _writing(self) -> Iterator[orm.Session]:
        with _translated(), self._facade.writer.using(_Context()) as session:
            yield session


def _backup(row: tables.Backup | None) -> model.Backup | None:
    if row is None:
        return None
    values = {name: getattr(row, name) for name in _FIELDS}
    return model.Backup(**values | {'state': State(row.state)})


def _set(row: tables.Backup, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(row, name, value)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except oslo_db.exception.DBDeadlock:
        # Tried again by the verb.
        raise
    except oslo_db.exception.DBNonExistentTable as error:
        raise exceptions.ServiceUnavailableError(
            f'table {error.table}: is not there; run "trove-ceph-manage db sync"'
        ) from error
    except (oslo_db.exception.DBError, oslo_db.exception.CantStartEngineError) as error:
        raise exceptions.ServiceUnavailableError(f'the database failed: {error}') from error
