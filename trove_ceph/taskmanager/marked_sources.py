# SPDX-License-Identifier: Apache-2.0
"""Do what the change of a source has left to do, as the marks of instances tell.

A new source that did not answer accepts writes as soon as it does. An ejected one stays off: Nova
may refuse to power its server off, or start it again, such as with its host.

Each mark is handled under the claim on its instance, so it never meets another operation.
"""

import functools
from collections.abc import Mapping

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.claims import Claim
from trove_ceph.db.roles import Role
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.strategies.backup import queue_worker
from trove_ceph.strategies.replication import unfinished_source
from trove_ceph.strategies.replication.source_dependencies import (
    EJECTION_ERROR,
    Member,
    SourceDependencies,
    task_at_rest,
)
from trove_ceph.taskmanager.source_work import SourceWork

LOG = logging.getLogger(__name__)

#: Nova kills a guest that has not ended a minute after it was told to. Its host may be down longer.
_OFF_SPACING_SEC = 60
#: For so long after the ejection, a request that Trove's taskmanager had begun before may still
#: end: a restart of MySQL, a reboot, or a change of the flavor. Trove then ends the task, whatever
#: it is.
_OTHERS_END_SEC = 3600


class MarkedSources:
    """The marked instances on which this process works."""

    def __init__(self, work: SourceWork):
        self._work = work
        self._due: dict[str, float] = {}
        # The ejected sources that had no task when they were looked at last.
        self._reset: set[str] = set()

    def start_due(
        self, marks: Mapping[str, SourceMark], threads: queue_worker.WorkerThreads
    ) -> None:
        """Handle the marks that are due, as long as threads are free; call it every 10 s.

        :param marks: all marks
        """
        now = self._work.deps.clock()
        self._due = {one: at for one, at in self._due.items() if one in marks}
        for instance_id, mark in marks.items():
            if now < self._due.get(instance_id, now):
                continue
            if threads.start(functools.partial(self._attempt, instance_id)) and not (
                mark.is_unfinished
            ):
                self._due[instance_id] = now + _OFF_SPACING_SEC

    def _attempt(self, instance_id: str) -> None:
        try:
            with self._work.operations.if_free(
                Role.CHANGE_SOURCE, instance_id, {Role.CHANGE_SOURCE}
            ) as claim:
                if claim is not None:
                    self._handle(claim)
        except exceptions.TroveCephError as error:
            LOG.warning('Instance %s: will be looked at again: %s', instance_id, error)

    def _handle(self, claim: Claim) -> None:
        deps, instance_id = self._work.guarded(claim), claim.resource_id
        mark = deps.marks.find(instance_id)
        # Before the row, whose task that of an operation is until the operation has ended.
        is_busy = deps.find_task(instance_id) is not None
        member = deps.rows.find(instance_id)
        if member is None:
            deps.marks.remove(instance_id)
        elif mark is None or is_busy or member.task == 'DELETING':
            return
        elif mark is SourceMark.EJECTED:
            self._keep_off(deps, member)
        else:
            self._finish(deps, member, mark)

    @staticmethod
    def _finish(deps: SourceDependencies, member: Member, mark: SourceMark) -> None:
        """Have a new source accept writes.

        :raises GuestUnavailableError: it does not answer
        """
        if member.source_id is not None:
            # Another replica became the source instead, or somebody has made it a replica since.
            deps.rows.replace_task(member.instance_id, [task_at_rest(mark)], 'NONE')
            deps.marks.remove(member.instance_id)
            return
        replicas = deps.rows.list_replicas(member.instance_id)
        if deps.choices.find([one.instance_id for one in replicas]):
            # Its ejection may have made that one the source.
            return
        unfinished_source.finish(deps, member, mark)

    def _keep_off(self, deps: SourceDependencies, member: Member) -> None:
        """Cut off an ejected source that runs, and have its server powered off."""
        instance_id = member.instance_id
        if member.task == 'NONE':
            age_sec = deps.marks.age_sec(instance_id)
            if age_sec is not None and age_sec < _OTHERS_END_SEC:
                LOG.warning('Instance %s: was ejected, and gets its task back', instance_id)
                deps.rows.replace_task(instance_id, ['NONE'], EJECTION_ERROR)
                return
            # Twice, since Trove ends a change of the access rules without a task.
            if instance_id not in self._reset:
                self._reset.add(instance_id)
                return
            LOG.warning('Instance %s: was ejected, and an operator has reset it', instance_id)
            deps.marks.remove(instance_id)
            self._reset.discard(instance_id)
            return
        self._reset.discard(instance_id)
        if member.server_id is None or member.task != EJECTION_ERROR:
            return
        if deps.is_server_off(member.server_id):
            return
        LOG.warning('Instance %s: is ejected, and its server is not off', instance_id)
        assert member.volume_id is not None
        try:
            # A server that Nova has started anew meanwhile has opened the volume again.
            deps.volumes.fence(member.volume_id, functools.partial(_confirm, deps, member))
        except exceptions.NotFencedError as error:
            LOG.error('Instance %s: is ejected, and may write again: %s', instance_id, error)
        # The fence may have taken minutes.
        _confirm(deps, member)
        deps.stop_server(member.server_id)


def _confirm(deps: SourceDependencies, member: Member) -> None:
    """Return if an ejected source has not been given another use since.

    :raises ClaimLostError: it has; its server, and the clients of its volume, may be others
    """
    found = deps.rows.find(member.instance_id)
    if found != member or deps.marks.find(member.instance_id) is not SourceMark.EJECTED:
        raise exceptions.ClaimLostError(
            f'instance {member.instance_id}: is not ejected any more; it is not cut off'
        )
