# SPDX-License-Identifier: Apache-2.0
"""Removing what belongs to nobody, one after the other, each looked at again just before."""

import contextlib
import datetime
from collections.abc import Sequence
from typing import Any

from trove_ceph import exceptions, steps
from trove_ceph.cinder import deletion
from trove_ceph.gc import judging, seeing
from trove_ceph.gc.claims import Claims
from trove_ceph.gc.model import Kind, Orphan
from trove_ceph.storage import model as storage_model
from trove_ceph.strategies.backup import reclaiming
from trove_ceph.strategies.backup.tools import Tools


class Collector:
    """Finds and removes.

    :param pools: whose images are looked at
    :param min_age: what is younger is let alone
    :param now: the time of day
    """

    def __init__(
        self,
        tools: Tools,
        pools: Sequence[str],
        min_age: datetime.timedelta,
        now: datetime.datetime,
    ):
        self._tools = tools
        self._pools = pools
        self._before = now - min_age
        self._there: seeing.Objects

    def find(self) -> list[Orphan]:
        """List what belongs to nobody."""
        self._there = seeing.see(self._tools, self._pools)
        return list(self._judge().find())

    def remove(self, orphan: Orphan, include_unknown: bool = False) -> None:
        """Remove one that was found; harmless when repeated.

        :param include_unknown: what our Trove has never heard of as well
        :raises BusyError: it may not be removed, or not any more
        """
        found = self._judge().judge(orphan.kind, orphan.target)
        if found is None:
            raise exceptions.BusyError(f'{orphan}: is somebody\'s now')
        if stays := found.stays_because(include_unknown):
            raise exceptions.BusyError(f'{orphan}: {stays}')
        steps.run(f'removal of {orphan}', removal(self._tools, orphan), None)

    def finish(self) -> None:
        """Delete for good what was moved to the trash and nothing reads from."""
        reclaiming.purge_trashed(self._tools)

    def _judge(self) -> judging.Judge:
        return judging.Judge(self._tools, self._there, Claims(self._tools), self._before)


def removal(tools: Tools, orphan: Orphan) -> list[steps.Step[Any]]:
    """Return the steps that remove something, which take no notice of their context."""
    if orphan.kind is Kind.VOLUME:
        return deletion.VolumeDeletion(
            tools.storage, tools.cinder, orphan.target.id, tools.patience
        ).steps()
    return [steps.Step('remove it', lambda _: _remove(tools, orphan), commits=True)]


def _remove(tools: Tools, orphan: Orphan) -> None:
    target, records = orphan.target, tools.records
    with contextlib.suppress(exceptions.NotFoundError):
        match orphan.kind:
            case Kind.IMAGE:
                reclaiming.trash(tools, target.image, target.image_id)
            case Kind.TRASHED_IMAGE:
                _note_trashed(tools, target)
            case Kind.SNAPSHOT:
                tools.storage.remove_snapshot(target.place)
            case Kind.VOLUME_SNAPSHOT:
                tools.cinder.delete_snapshot(target.id)
                tools.patience.until_gone(tools.cinder.find_snapshot, target.id)
            case Kind.JOB:
                tools.storage.cancel(target.operation_id)
            case Kind.BACKUP_RECORD:
                _forget_backup(tools, target.backup_id)
            case Kind.VOLUME_RECORD:
                records.forget_volume(target.volume_id)
            case Kind.TRASH_RECORD:
                records.forget_trashed(target.pool, target.image_id)


def _forget_backup(tools: Tools, backup_id: str) -> None:
    claim = tools.records.begin_deleting(backup_id, tools.worker)
    if claim is not None:
        tools.records.forget(claim)
    elif (record := tools.records.find(backup_id)) is not None:
        raise exceptions.BusyError(f'backup {backup_id}: {record.claimed_by} works on it')


def _note_trashed(tools: Tools, trashed: storage_model.TrashedImage) -> None:
    """Have the task manager delete an image for good once nothing reads from it."""
    tools.records.note_trashed(trashed.pool, trashed.image_id, trashed.name)
