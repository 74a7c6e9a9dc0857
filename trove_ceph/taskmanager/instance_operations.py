# SPDX-License-Identifier: Apache-2.0
"""Recover instances whose taskmanager died while it created or deleted them.

Trove keeps the request in the memory of the process. An instance would stay in BUILD for ever, in
which Trove refuses to delete it, or in SHUTDOWN. Each creation and each deletion therefore holds a
claim. Once the claim's worker is dead, another one shows an instance in BUILD as failed, unless its
server was already created (it then becomes ACTIVE by itself), and resumes a deletion.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db import claims, heartbeat, instance_operations
from trove_ceph.db.roles import Role
from trove_ceph.strategies.backup import queue_worker

LOG = logging.getLogger(__name__)

_FAULT = (
    'The task manager stopped while it created this instance. '
    'Delete the instance and create it again.'
)


class Trove(Protocol):
    """Trove's table of instances."""

    def fail_creation(self, instance_id: str, fault: str) -> bool:
        """Show an instance in BUILD as failed; return False if it is in another state."""


class InstanceOperations:
    """The claims on instances that are being created or deleted.

    :param worker: the name of this process in claims
    :param heartbeat: renews the claims of this process
    """

    def __init__(
        self,
        store: instance_operations.InstanceOperationStore,
        trove: Trove,
        worker: claims.Claimant,
        heartbeat: heartbeat.Heartbeat,
    ):
        self._store = store
        self._trove = trove
        self._worker = worker
        self._heartbeat = heartbeat

    @contextlib.contextmanager
    def claimed(self, role: Role, instance_ids: Sequence[str]) -> Iterator[None]:
        """Hold the claims of instances while the block creates or deletes them.

        If the database refuses the claims, the block runs without them: an operation must not fail
        for want of a later recovery.
        """
        begin = functools.partial(self._begin, role)
        held = [claim for claim in map(begin, instance_ids) if claim is not None]
        try:
            yield
        finally:
            for claim in held:
                self._finish(claim)

    def recover(
        self, resume_deletion: Callable[[str], None], threads: queue_worker.WorkerThreads
    ) -> None:
        """Show interrupted creations as failed, and resume interrupted deletions.

        :param resume_deletion: deletes an instance, in one of the threads
        """
        for role, instance_id in self._store.list_interrupted(self._worker):
            if role is Role.CREATE_INSTANCE:
                self._fail(instance_id)
            else:
                threads.start(functools.partial(self._resume, instance_id, resume_deletion))

    def _fail(self, instance_id: str) -> None:
        claim = self._store.take_over(Role.CREATE_INSTANCE, instance_id, self._worker)
        if claim is None:
            return
        if self._trove.fail_creation(instance_id, _FAULT):
            LOG.warning(
                'Instance %s: its taskmanager died while it created the instance, which is now in '
                'ERROR',
                instance_id,
            )
        self._store.finish(claim)

    def _resume(self, instance_id: str, delete: Callable[[str], None]) -> None:
        role = Role.DELETE_INSTANCE
        claim = self._heartbeat.acquire(
            lambda: self._store.take_over(role, instance_id, self._worker)
        )
        if claim is None:
            return
        LOG.warning('Instance %s: resume its deletion, whose taskmanager died', instance_id)
        try:
            delete(instance_id)
        except Exception as error:
            LOG.warning(
                'Instance %s: its deletion failed; request it again: %s', instance_id, error
            )
        finally:
            self._finish(claim)

    def _begin(self, role: Role, instance_id: str) -> claims.Claim | None:
        try:
            return self._heartbeat.acquire(
                lambda: self._store.begin(role, instance_id, self._worker)
            )
        except exceptions.TroveCephError as error:
            LOG.warning(
                'Instance %s: no other taskmanager takes over if this one dies: %s',
                *(instance_id, error),
            )
            return None

    def _finish(self, claim: claims.Claim) -> None:
        self._heartbeat.drop(claim)
        try:
            self._store.finish(claim)
        except exceptions.TroveCephError as error:
            LOG.warning('The %s is released when it expires: %s', claim, error)
