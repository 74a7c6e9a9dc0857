# SPDX-License-Identifier: Apache-2.0
"""The old server of an instance: note what it has, cut it off, and delete it."""

import datetime

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import FailoverCause, ReplacementState
from trove_ceph.db.replacement_states import Event
from trove_ceph.strategies.replacement import rules
from trove_ceph.strategies.replacement.attempt import Attempt
from trove_ceph.strategies.replacement.dependencies import InstanceFacts

LOG = logging.getLogger(__name__)


class OldServer:
    """The server that is replaced."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt

    def check(self) -> None:
        """Check that the server can be replaced.

        :raises ReplacementRefusedError: it cannot
        :raises InProgressError: Trove shows another task, which is about to end
        """
        record, deps = self._attempt.record, self._attempt.deps
        facts, now = self._attempt.find_instance(), deps.store.now()
        # An earlier release has left the task of a request.
        is_left = facts.task == record.kind.requested_task
        if facts.task in rules.OVERWRITING_TASKS and not is_left:
            self._wait_for_own_task(facts, now)
        is_forced = record.is_forced or record.kind.is_planned
        own_task = facts.task if is_left else record.kind.task
        reason = rules.why_not(facts, is_forced, now, own_task)
        if reason is not None:
            raise exceptions.ReplacementRefusedError(reason)
        if (facts.server_id, facts.volume_id) != (record.old_server_id, record.volume_id):
            raise exceptions.ReplacementRefusedError(
                f'instance {facts.instance_id}: got another server or volume after the request; '
                'repeat the request'
            )
        assert record.volume_id is not None
        deps.volumes.check(record.volume_id)

    def _wait_for_own_task(self, facts: InstanceFacts, now: datetime.datetime) -> None:
        if now - self._attempt.record.created_at < rules.OVERWRITTEN_TIMEOUT:
            raise exceptions.InProgressError(
                f'{self._attempt.record}: has the task {facts.task}',
                'waits until another request for the instance, its source or replicas is refused',
            )

    def note_facts(self) -> None:
        """Note what the new server needs, before the old one is given up.

        :raises ReplacementRefusedError: something that it needs does not exist
        """
        if self._attempt.record.image_id is None:
            self._note_facts()
        self._check_other_host()

    def _note_facts(self) -> None:
        record, deps = self._attempt.record, self._attempt.deps
        assert record.old_server_id is not None
        needs = deps.servers.find_needs(record)
        ports = deps.network.find_ports(record)
        if not ports.instance:
            raise exceptions.ReplacementRefusedError(
                f'instance {record.instance_id}: its server has no port with an address of the '
                'instance; restore a backup instead'
            )
        server = self._attempt.find_server(record.old_server_id)
        self._attempt.note(
            image_id=needs.image_id,
            availability_zone=needs.availability_zone,
            old_host=None if server is None else server.host,
            port_ids=ports.instance,
            old_management_port_ids=ports.management,
        )

    def _check_other_host(self) -> None:
        """Check that a database which is to leave its host can; it serves, and need not be stopped.

        The host itself is disabled, so that Nova does not choose it.
        """
        record, deps = self._attempt.record, self._attempt.deps
        is_move = record.cause is FailoverCause.MAINTENANCE
        if is_move and record.old_host is not None and not deps.servers.find_other_hosts(record):
            zone = f' of zone {record.availability_zone}' if record.availability_zone else ''
            # Tenants read the error, and learn the names of hosts nowhere.
            LOG.warning('%s: no other host%s than %s is up', record, zone, record.old_host)
            raise exceptions.ReplacementRefusedError(
                f'instance {record.instance_id}: no other host{zone} is up and takes new servers; '
                'an operator can enable one'
            )

    def keep_volume(self) -> None:
        """Have Nova keep the volume when the server is deleted, also by other users of Nova."""
        record = self._attempt.record
        assert record.old_server_id is not None and record.volume_id is not None
        self._attempt.deps.servers.keep_volume(record.old_server_id, record.volume_id)

    def fence(self) -> None:
        """Prove that no present client of the volume can write; from here on there is no way back.

        :raises NotFencedError: there is no proof yet
        """
        if self._attempt.record.state is ReplacementState.REQUESTED:
            self._attempt.advance(Event.FENCE)
        record = self._attempt.record
        assert record.volume_id is not None
        self._attempt.deps.volumes.fence(record.volume_id, self._attempt.confirm_claim)

    def cut_off(self) -> None:
        """Cut the agent off: it shares the topic and the key of the instance with the new one."""
        self._attempt.deps.network.cut_off(self._attempt.record.old_management_port_ids)

    def detach_deleted(self) -> None:
        """Detach the volume if the server is deleted already; otherwise Trove deletes it.

        :raises InProgressError: Nova has not detached it yet
        """
        server_id = self._attempt.record.old_server_id
        assert server_id is not None
        if self._attempt.find_server(server_id) is None:
            self._attempt.detach([server_id])

    def delete(self) -> None:
        """Delete the server, and prove again that no process can write to the volume.

        :raises NotFencedError: there is no proof yet
        :raises InProgressError: Nova has not deleted it, or has not detached the volume yet
        """
        record = self._attempt.record
        assert record.old_server_id is not None
        self._attempt.delete_server(record.old_server_id)
        self._attempt.prove_free([record.old_server_id])
        self._attempt.advance(Event.MOVE, fenced_at=self._attempt.deps.store.now())
        LOG.info('%s: the old server is deleted, and cannot write', record)
