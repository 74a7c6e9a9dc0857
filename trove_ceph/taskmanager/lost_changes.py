# SPDX-License-Identifier: Apache-2.0
"""End the tasks of promotions, ejections and detachments that nothing carries out.

Trove's API sets the task of an instance and of its replicas, and then asks the taskmanager. If that
request is lost, or its replica is deleted before it begins, no row shows that there was one. No
other operation could begin on these instances.

An ejection that begins after its task was ended is refused (:mod:`.source_changes`): the source may
be healthy again.
"""

import datetime
from collections.abc import Iterable

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.roles import Role
from trove_ceph.strategies.replication import group
from trove_ceph.strategies.replication.source_dependencies import CHANGE_TASKS, Member
from trove_ceph.taskmanager.source_work import SourceWork

LOG = logging.getLogger(__name__)

#: The age of the task. A request may wait for a taskmanager that is being restarted.
LOST_AFTER = datetime.timedelta(minutes=15)
_LOST = 'the request to promote, eject or detach was lost; nothing was changed; repeat it'


class LostChanges:
    """The tasks without an operation."""

    def __init__(self, work: SourceWork):
        self._work = work

    def end(self, old: Iterable[Member]) -> None:
        """End the tasks without an operation.

        :param old: the instances that have such a task for at least :data:`LOST_AFTER`
        """
        by_source: dict[str, set[str]] = {}
        for one in old:
            by_source.setdefault(one.source_id or one.instance_id, set()).add(one.instance_id)
        for source_id, ids in sorted(by_source.items()):
            try:
                self._end(source_id, ids)
            except exceptions.TroveCephError as error:
                LOG.warning('Source %s: tasks without an operation stay: %s', source_id, error)

    def _end(self, source_id: str, ids: set[str]) -> None:
        with self._work.operations.if_free(Role.CHANGE_SOURCE, source_id) as claim:
            if claim is None:
                return
            deps = self._work.guarded(claim)
            members = group.members_of(deps, source_id)
            # One that is promoted or detached has its own claim before that on its source.
            others = {one.instance_id for one in members} - {source_id}
            if any(self._work.store.find_role(one) is not None for one in others):
                return
            # Read again: another taskmanager may have ended them.
            lost = [one for one in members if one.instance_id in ids and one.task in CHANGE_TASKS]
            group.end_tasks(deps, lost)
            for one in lost:
                LOG.warning('Instance %s: %s', one.instance_id, _LOST)
                group.add_fault(deps, one.instance_id, _LOST)
