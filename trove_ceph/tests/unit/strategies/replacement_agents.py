# SPDX-License-Identifier: Apache-2.0
"""Guest agents and replicas in memory, for replacements of a server."""

from trove_ceph import exceptions
from trove_ceph.db.guest_record import GuestState
from trove_ceph.strategies.replacement.dependencies import StartProgress, StartState
from trove_ceph.tests.unit.strategies.replacement_cloud import OLD


class Agents:
    """The guest agents and MySQL."""

    def __init__(self, world):
        self._world = world

    def renew_queues(self, instance_id):
        # A new agent whose queue is deleted hears nothing any more.
        self._world.has_forgotten = True
        self._world.deaf |= {one for one in self._listening() if one != OLD}

    def stop_server(self, instance_id):
        self._check_old()
        if self._world.stop_error is not None:
            raise self._world.stop_error
        self._world.serving.discard(OLD)

    def restart_server(self, instance_id):
        self._check_old()
        self._world.serving.add(OLD)

    def start_moved_server(self, record):
        world = self._world
        listening = self._listening()
        assert OLD not in listening, 'the old agent could take the message'
        assert world.has_forgotten, 'the new agent gets the requests for the old one'
        if not listening - world.deaf or world.agent_looks > 0:
            world.agent_looks -= 1
            raise world.agent_error('the agent did not answer')
        (server_id,) = listening
        if world.start_answers:
            return world.start_answers.pop(0)
        if world.servers[server_id].flavor in world.unfit_flavors:
            return StartProgress(StartState.FAILED, 'cannot allocate memory')
        assert server_id in world.ceph.writers(), 'MySQL starts on a fenced volume'
        world.serving.add(server_id)
        return StartProgress(StartState.SERVING)

    def _listening(self):
        """Return the servers whose agents have the identity of the instance."""
        world = self._world
        bound = {one.server_id for one in world.guests.values() if one.state is GuestState.BOUND}
        return {
            server_id
            for server_id, one in world.servers.items()
            if one.status == 'ACTIVE'
            and (one.replacement_id or server_id in bound or server_id == OLD)
            and any(
                port.device == server_id and port.is_up and port.kind != 'instance'
                for port in world.ports.values()
            )
        }

    def _check_old(self):
        if OLD not in self._listening():
            raise exceptions.GuestUnavailableError('the agent did not answer')


class Successors:
    """The replicas of the instance; the failover of a source may prefer one of them."""

    def __init__(self, world):
        self._world = world

    def has_replicas(self, instance_id):
        return self._world.has_replicas

    def take_over(self, record, served_until, notes):
        world = self._world
        if world.is_given_up:
            assert record.promoted_id == 'replica', 'the new source was not noted'
        else:
            self._give_up_source(notes)
        if world.is_successor_silent:
            raise exceptions.NewSourceSilentError('replica: is the source now, and is silent')

    def _give_up_source(self, notes):
        world = self._world
        if not world.has_taken_over:
            self._have_replica_accept_writes(notes)
        if world.is_unfinished:
            raise exceptions.OperationUnfinishedError('the replica does not answer')
        notes.note_promoted('replica')
        world.at('is about to give the source up')
        world.is_given_up = True

    def _have_replica_accept_writes(self, notes):
        world = self._world
        if not world.is_replica_fit:
            raise exceptions.SourceNotChangedError('source: no replica is fit')
        only = set(world.ceph.clients)
        world.at('listed the clients of the source')
        notes.confirm_claim()
        world.at('is about to fence')
        world.ceph.fence(only)
        notes.note_fenced()
        if world.is_replica_lost:
            raise exceptions.SourceNotChangedError('source: the replica does not answer')
        notes.confirm_claim()
        world.at('is about to accept writes')
        world.has_taken_over = True

    def is_taking_over(self, instance_id):
        return self._world.is_taking_over

    def follow_again(self, instance_id):
        assert not self._world.has_taken_over
        assert self._world.service_status == 'HEALTHY', 'the source does not accept writes yet'
        self._world.has_followed_again = True
