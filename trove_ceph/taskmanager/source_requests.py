# SPDX-License-Identifier: Apache-2.0
"""Trove's requests to promote, eject and detach, as far as all instances are ours."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from oslo_log import log as logging
from trove.common import notification

from trove_ceph import exceptions, operation_events
from trove_ceph.db import claims, source_marks
from trove_ceph.db.roles import Role
from trove_ceph.operation_events import Operation
from trove_ceph.strategies.backup import queue_worker, tenant_errors
from trove_ceph.strategies.replication.source_dependencies import Member
from trove_ceph.taskmanager import lost_changes
from trove_ceph.taskmanager.source_changes import SourceChanges
from trove_ceph.trove_adapter import replication_rows

LOG = logging.getLogger(__name__)

_RESUMED = (
    Role.PROMOTE_REPLICA,
    Role.EJECT_SOURCE,
    Role.DETACH_REPLICA,
    Role.CHANGE_SOURCE,
    Role.TAKE_OVER,
)


class SourceRequests:
    """The requests; each method returns False if it is Trove's own, and then has done nothing.

    :param get_changes: returns what carries out the requests; called at each, since the services
        need not be up when the process starts
    :param is_ours: returns whether an instance has our guest agent, and its volume is on a tier
    """

    def __init__(self, get_changes: Callable[[], SourceChanges], is_ours: Callable[[str], bool]):
        self._get_changes = get_changes
        self._is_ours = is_ours
        self._rows = replication_rows.ReplicationRows()
        self._marks = source_marks.SourceMarkStore()

    def promote(self, context: Any, replica_id: str) -> bool:
        """Make a replica the source, and the source its replica."""
        replica = self._rows.find(replica_id)
        if replica is None or not self._are_ours(replica.source_id or replica_id):
            return False
        with self._shown(context, Operation.REPLICA_PROMOTE, replica_id):
            self._get_changes().promote(replica_id)
        return True

    def eject(self, context: Any, source_id: str) -> bool:
        """Give up a source for one of its replicas."""
        if not self._are_ours(source_id):
            return False
        with self._shown(context, Operation.REPLICA_EJECT_SOURCE, source_id):
            self._get_changes().eject(source_id)
        return True

    def detach(self, context: Any, replica_id: str) -> bool:
        """Make a replica an instance of its own."""
        if not self._is_ours(replica_id):
            return False
        with self._shown(context, Operation.REPLICA_DETACH, replica_id):
            self._get_changes().detach(replica_id)
        return True

    def forget(self, instance_id: str) -> None:
        """Forget an instance that is being deleted, if it is a replica.

        A promotion of it ends before. Only the errors below keep the instance from being deleted.

        :raises DeletionRefusedError: others follow it, or it accepts writes instead of its source
        :raises OperationUnfinishedError: it is not known whether it does; a taskmanager goes on
        :raises ServiceUnavailableError: the database does not answer
        """
        found = self._rows.find(instance_id)
        if found is None:
            return
        if found.source_id is None and not self._rows.list_replicas(instance_id):
            return
        try:
            self._get_changes().forget(instance_id)
        except (exceptions.DeletionRefusedError, exceptions.OperationUnfinishedError):
            raise
        except exceptions.TroveCephError as error:
            LOG.warning('Replica %s: is deleted, and not forgotten yet: %s', instance_id, error)

    def resume_replicas(self, source_id: str) -> None:
        """See :meth:`.SourceChanges.resume_replicas`."""
        self._get_changes().resume_replicas(source_id)

    def handle_marks(self, threads: queue_worker.WorkerThreads) -> None:
        """Do what the changes of sources have left to do, in threads; see :mod:`.marked_sources`.

        :raises ServiceUnavailableError: the database does not answer
        """
        if marks := self._marks.list():
            self._get_changes().handle_marks(marks, threads)

    def end_lost(self) -> None:
        """End the tasks of requests that were lost; see :mod:`.lost_changes`.

        Without any, the services are not needed.

        :raises TroveCephError: a service does not answer
        """
        old = self._rows.list_changing(lost_changes.LOST_AFTER)
        if ours := [one for one in old if self._carries_out(one)]:
            self._get_changes().end_lost(ours)

    def _carries_out(self, member: Member) -> bool:
        """Return whether what an instance has as its task is ours."""
        if member.task == 'DETACHING':
            return self._is_ours(member.instance_id)
        return self._are_ours(member.source_id or member.instance_id)

    @property
    def resumptions(self) -> Mapping[Role, Callable[[claims.Claim], None]]:
        """What continues the operations of workers that died, by their roles."""
        return {role: functools.partial(self._resume, role) for role in _RESUMED}

    def _resume(self, role: Role, claim: claims.Claim) -> None:
        self._get_changes().resumptions[role](claim)

    def _are_ours(self, source_id: str) -> bool:
        members = [source_id, *(one.instance_id for one in self._rows.list_replicas(source_id))]
        return all(map(self._is_ours, members))

    @staticmethod
    @contextlib.contextmanager
    def _shown(context: Any, operation: Operation, instance_id: str) -> Iterator[None]:
        """Notify of the end, and show tenants an error of the block."""
        with (
            notification.EndNotification(context),
            tenant_errors.translated_errors(f'instance {instance_id}'),
            operation_events.reported(operation, instance_id=instance_id),
        ):
            yield
