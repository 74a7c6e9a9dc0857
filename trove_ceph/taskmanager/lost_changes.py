# SPDX-License-Identifier: Apache-2.0
"""End the tasks of promotions, ejections and detachments that nothing carries out.

Trove's API sets the task of an instance and of its replicas, and then asks the taskmanager. If that
request is lost, or its replica is deleted before it begins, no row shows that there was one. No
other operation could begin on these instances.
"""

from collections.abc import Sequence

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.roles import Role
from trove_ceph.strategies.replication import group
from trove_ceph.strategies.replication.source_dependencies import Member
from trove_ceph.taskmanager.source_work import SourceWork

LOG = logging.getLogger(__name__)

#: A request may wait for a taskmanager that is being restarted.
_LOST_SEC = 900
_LOST = 'the request to promote, eject or detach was lost; nothing was changed; repeat it'


class LostChanges:
    """The tasks that this process has seen."""

    def __init__(self, work: SourceWork):
        self._work = work
        self._seen: dict[str, float] = {}

    def end(self, changing: Sequence[Member]) -> None:
        """End the tasks that this process has seen for 15 minutes without an operation.

        :param changing: all instances with the task of a promotion, an ejection or a detachment
        """
        now = self._work.deps.clock()
        self._seen = {
            one.instance_id: self._seen.get(one.instance_id, now)
            for one in changing
            if not self._is_busy(one)
        }
        lost = [one for one in changing if now - self._seen.get(one.instance_id, now) >= _LOST_SEC]
        for source_id in sorted({one.source_id or one.instance_id for one in lost}):
            try:
                self._end(source_id, {one.instance_id for one in lost})
            except exceptions.TroveCephError as error:
                LOG.warning('Source %s: tasks without an operation stay: %s', source_id, error)

    def _is_busy(self, member: Member) -> bool:
        ids = {member.instance_id, member.source_id or member.instance_id}
        return any(self._work.store.find_role(one) is not None for one in ids)

    def _end(self, source_id: str, lost: set[str]) -> None:
        with self._work.operations.if_free(Role.CHANGE_SOURCE, source_id) as claim:
            if claim is None:
                return
            deps = self._work.guarded(claim)
            members = group.members_of(deps, source_id)
            ids = {one.instance_id for one in members} - {source_id}
            # The one that is promoted or detached has the claim on its source only later.
            if any(self._work.store.find_role(one) is not None for one in ids):
                return
            ended = [one for one in members if one.instance_id in lost]
            group.end_tasks(deps, ended)
            for one in ended:
                # The next request has a time of its own.
                self._seen.pop(one.instance_id, None)
                LOG.warning('Instance %s: %s', one.instance_id, _LOST)
                group.add_fault(deps, one.instance_id, _LOST)
