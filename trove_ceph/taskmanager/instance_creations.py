# SPDX-License-Identifier: Apache-2.0
"""Show an instance as failed if its taskmanager dies while it creates the instance.

Trove keeps the request in the memory of the process, and refuses to delete an instance in BUILD: a
tenant could neither use nor delete it. Each creation therefore holds a claim. Once the claim's
worker is dead, another one shows the instance as failed, unless its server was already created: it
then becomes ACTIVE by itself.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db import claims, heartbeat, instance_creations

LOG = logging.getLogger(__name__)

_FAULT = (
    'The task manager stopped while it created this instance. '
    'Delete the instance and create it again.'
)


class Trove(Protocol):
    """Trove's table of instances."""

    def fail_creation(self, instance_id: str, fault: str) -> bool:
        """Show an instance in BUILD as failed; return False if it is in another state."""


class InstanceCreations:
    """The claims on instances that are being created.

    :param worker: the name of this process in claims
    :param heartbeat: renews the claims of this process
    """

    def __init__(
        self,
        store: instance_creations.InstanceCreationStore,
        trove: Trove,
        worker: claims.Claimant,
        heartbeat: heartbeat.Heartbeat,
    ):
        self._store = store
        self._trove = trove
        self._worker = worker
        self._heartbeat = heartbeat

    @contextlib.contextmanager
    def claimed(self, instance_ids: Sequence[str]) -> Iterator[None]:
        """Hold the claims of instances while the block creates them.

        If the database refuses the claims, the block runs without them: a creation must not fail
        for want of a later clean-up.
        """
        held = [claim for claim in map(self._begin, instance_ids) if claim is not None]
        try:
            yield
        finally:
            for claim in held:
                self._finish(claim)

    def fail_interrupted(self) -> None:
        """Show as failed each instance whose worker died while it created the instance."""
        for instance_id in self._store.list_interrupted(self._worker):
            claim = self._store.take_over(instance_id, self._worker)
            if claim is None:
                continue
            if self._trove.fail_creation(instance_id, _FAULT):
                LOG.warning(
                    'Instance %s: its taskmanager died while it created the instance, which is now '
                    'in ERROR',
                    instance_id,
                )
            self._store.finish(claim)

    def _begin(self, instance_id: str) -> claims.Claim | None:
        try:
            return self._heartbeat.acquire(lambda: self._store.begin(instance_id, self._worker))
        except exceptions.TroveCephError as error:
            LOG.warning(
                'Instance %s stays in BUILD if this process dies now: %s', instance_id, error
            )
            return None

    def _finish(self, claim: claims.Claim) -> None:
        self._heartbeat.drop(claim)
        try:
            self._store.finish(claim)
        except exceptions.TroveCephError as error:
            LOG.warning('The %s is released when it expires: %s', claim, error)
