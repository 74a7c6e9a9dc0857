# SPDX-License-Identifier: Apache-2.0
"""Nova, Cinder, Ceph, guest agents and MySQL in memory, for the re-provisioning of a replica.

They behave where it matters as the real ones. Nova does not detach a volume from a server that
runs as long as its guest uses it. A server that starts runs MySQL on whatever volume it has, with
the identity that the data has. An agent whose pool is lost does not answer.
"""

import dataclasses

from trove_ceph import exceptions
from trove_ceph.db.replica_record import ReplicaState
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.strategies.replacement.dependencies import (
    InstanceFacts,
    StartProgress,
    StartState,
)
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState

REPLICA, SOURCE, SERVER, OLD = 'replica', 'source', 'server', 'volume-old'
SOURCE_UUID = '00000000-0000-0000-0000-00000000000a'
REPLICA_UUID = '00000000-0000-0000-0000-00000000000b'
FRESH_UUID = '00000000-0000-0000-0000-00000000000c'


@dataclasses.dataclass
class Volume:
    """A volume with its data.

    :ivar executed: how many transactions of the source the data has
    :ivar password: with which the data follow the source; None: they follow none
    :ivar servers: that have the volume
    :ivar is_lost: the pool does not answer
    :ivar is_forgotten: nothing continues its detachment, as after a restart of nova-compute
    """

    executed: int
    uuid: str = SOURCE_UUID
    password: int | None = None
    servers: set[str] = dataclasses.field(default_factory=set)
    status: str = 'available'
    is_lost: bool = False
    is_forgotten: bool = False
    size_gib: int = 1


class Servers:
    """Nova, with the server of the replica."""

    def __init__(self, world):
        self._world = world

    def find(self, server_id):
        world = self._world
        if world.becomes and world.record().state is ReplicaState.EXCHANGING:
            world.server_status, world.becomes = world.becomes, None
        if world.is_blocked() and world.passes('repair_looks'):
            world.server_status = {'PAUSED': 'ACTIVE'}.get(world.server_status, world.server_status)
        if world.has_server:
            facts = {'task': world.server_task, 'fault': 'a fault of host-7'}
            return ServerFacts(server_id, server_id, world.server_status, **facts)
        return None

    def find_volumes(self, server_id):
        world = self._world
        for volume_id, volume in list(world.volumes.items()):
            if server_id not in volume.servers:
                continue
            is_free = world.server_status == 'SHUTOFF' or world.mounted != volume_id
            is_free = is_free and not volume.is_forgotten
            if volume.status == 'detaching' and is_free and world.passes('detach_looks'):
                volume.servers.discard(server_id)
                volume.status = 'available'
            elif volume.status == 'attaching' and world.passes('attach_looks'):
                volume.status = 'in-use'
        return {one for one, volume in world.volumes.items() if server_id in volume.servers}

    def attach_volume(self, server_id, volume_id):
        world = self._world
        volume = world.volumes[volume_id]
        if volume.servers:
            raise exceptions.ServiceUnavailableError(f'volume {volume_id}: already attached')
        if world.attach_errors > 0:
            # Nova accepts the request, fails on the host, and releases the volume.
            world.attach_errors -= 1
            return
        volume.servers.add(server_id)
        volume.status = 'attaching'

    def detach_volume(self, server_id, volume_id):
        volume = self._world.volumes[volume_id]
        if server_id in volume.servers:
            if volume.status != 'in-use':
                raise exceptions.ServiceUnavailableError(f'volume {volume_id}: {volume.status}')
            volume.status = 'detaching'

    def stop(self, server_id):
        world = self._world
        if world.is_host_down:
            world.server_task = 'powering-off'
        elif world.server_status in ('ACTIVE', 'ERROR'):
            world.server_status = 'SHUTOFF'
            world.running = world.mounted = world.started = None

    def start(self, server_id):
        world = self._world
        if world.server_status == 'SHUTOFF':
            world.server_status = 'ACTIVE'
            world.agent_looks = world.boot_looks
            found = self.find_volumes(server_id)
            world.running = world.mounted = next(iter(found), None)


class Volumes:
    """Cinder, and the records of volumes to delete."""

    def __init__(self, world):
        self._world = world

    def find_servers(self, volume_id):
        volume = self._world.volumes.get(volume_id)
        return set() if volume is None else set(volume.servers)

    def is_attached(self, volume_id):
        return self._world.volumes[volume_id].status == 'in-use'

    def detach(self, volume_id, server_id):
        volume = self._world.volumes.get(volume_id)
        if volume is not None and volume.servers:
            raise exceptions.InProgressError(f'volume {volume_id}: is attached')

    def roll_back_detachment(self, volume_id):
        volume = self._world.volumes[volume_id]
        if volume.status == 'detaching':
            volume.status, volume.is_forgotten = 'in-use', False

    def is_gone(self, volume_id):
        return volume_id not in self._world.volumes

    def can_be_read(self, volume_id):
        volume = self._world.volumes.get(volume_id)
        return volume is not None and not volume.is_lost

    def find_size_gib(self, volume_id):
        volume = self._world.volumes.get(volume_id)
        return None if volume is None else volume.size_gib

    def find_own_bytes(self, volume_id):
        return self._world.own_bytes

    def discard(self, volume_id, record):
        self._world.discarded.add(volume_id)

    def is_discarded(self, volume_id):
        return volume_id in self._world.discarded


class Clones:
    """The clones of the source, in Ceph and Cinder."""

    def __init__(self, world):
        self._world = world

    def create(self, record):
        world = self._world
        if world.refusal:
            raise exceptions.ReprovisioningRefusedError(world.refusal)
        found = [one for one in world.volumes if one.startswith('volume-new')]
        if not found:
            if world.clone_errors > 0:
                world.clone_errors -= 1
                raise exceptions.CephUnreachableError('the pool of the replicas does not answer')
            found = [f'volume-new-{record.request_id}']
            # The source has grown.
            world.volumes[found[0]] = Volume(world.position, size_gib=2)
        return found[0]

    def remove(self, record):
        for volume_id in [one for one in self._world.volumes if one.startswith('volume-new')]:
            assert not self._world.volumes[volume_id].servers
            del self._world.volumes[volume_id]


class Agents:
    """The guest agents and MySQL of the source and the replica."""

    def __init__(self, world):
        self._world = world

    def status(self, instance_id):
        world = self._world
        if instance_id == world.follows:
            self._check_source()
            return ReplicationStatus(
                SOURCE_UUID,
                gtids(world.position),
                semi_sync_source=world.acknowledging > 0,
                semi_sync_clients=world.acknowledging,
            )
        self._check_answers()
        if world.running is None:
            raise exceptions.GuestUnavailableError('MySQL does not run')
        volume = world.volumes[world.running]
        has_password = volume.password == world.password and volume.uuid != SOURCE_UUID
        is_connected = has_password and world.is_source_up and not world.io_error
        if is_connected and not world.sql_error:
            # The source may have lost what the replica has.
            received = min(world.position, volume.executed + world.speed)
            volume.executed = max(received, volume.executed)
        follows = volume.password is not None
        idle = ThreadState.OFF if world.io_error else ThreadState.CONNECTING
        return ReplicationStatus(
            volume.uuid,
            gtids(volume.executed),
            is_replica=follows,
            source_uuid=SOURCE_UUID if follows else '',
            io_state=ThreadState.ON if is_connected else idle,
            sql_state=ThreadState.OFF if world.sql_error or not follows else ThreadState.ON,
            io_error=world.io_error,
            sql_error=world.sql_error,
            semi_sync_replica=world.acknowledging > 0,
        )

    def replica_context(self, instance_id, replica_id=None):
        assert (instance_id, replica_id) == (self._world.follows, REPLICA)
        self._check_source()
        self._world.password += 1
        return {'password': self._world.password}

    def attach(self, instance_id, replica_context):
        self._check_answers()
        world = self._world
        if world.running is None:
            raise exceptions.GuestUnavailableError('MySQL does not run')
        volume = world.volumes[world.running]
        assert volume.uuid != SOURCE_UUID, 'a clone follows under the UUID of its source'
        volume.password = replica_context['password']
        if world.io_error or not world.is_source_up:
            raise exceptions.GuestUnavailableError('the receiver does not connect')

    def set_semi_sync(self, instance_id, as_source, as_replica, timeout_ms):
        assert (instance_id, as_source, as_replica) == (self._world.follows, False, False)
        self._check_source()
        self._world.acknowledging = 0

    def release_volume(self, instance_id):
        self._check_answers()
        world = self._world
        world.waits += world.running is not None and world.acknowledging == 1
        if world.hangs:
            raise exceptions.GuestUnavailableError('mysqld does not end')
        world.running = world.mounted = world.started = None

    def start_replica(self, instance_id, request_id, replica_context):
        return self._start(request_id, replica_context['password'])

    def start_on_old_volume(self, instance_id, request_id):
        return self._start(request_id, None)

    def _start(self, request_id, password):
        """As the agent does: one start for each request, none if MySQL runs already."""
        self._check_answers()
        world = self._world
        attached = [one for one, found in world.volumes.items() if SERVER in found.servers]
        if len(attached) != 1:
            raise exceptions.GuestUnavailableError(f'the guest has the volumes {attached}')
        if world.start_answers:
            return world.start_answers.pop(0)
        is_clone = password is not None
        if world.started is None and world.running is not None:
            if not is_clone or world.volumes[world.running].uuid == FRESH_UUID:
                world.started = request_id
        if world.started == request_id:
            if not world.passes('start_looks'):
                return StartProgress(StartState.STARTING)
            world.running = world.mounted
            return StartProgress(StartState.SERVING)
        world.started, (world.mounted,) = request_id, attached
        world.start_looks = world.start_duration
        volume = world.volumes[world.mounted]
        if is_clone:
            volume.uuid, volume.password = FRESH_UUID, password
        return StartProgress(StartState.STARTING)

    def _check_source(self):
        if not self._world.is_source_up:
            raise exceptions.GuestUnavailableError('the agent of the source does not answer')

    def _check_answers(self):
        world = self._world
        has_lost = world.mounted is not None and world.volumes[world.mounted].is_lost
        if world.server_status != 'ACTIVE' or has_lost or not world.passes('agent_looks'):
            raise exceptions.GuestUnavailableError('the agent did not answer')


class Instances:
    """Trove's tables."""

    def __init__(self, world):
        self._world = world

    def find(self, instance_id):
        world = self._world
        if instance_id != REPLICA:
            is_deleted = world.is_source_deleted
            return _facts(SOURCE, 'volume-source', world.source_task, is_deleted=is_deleted)
        row = world.trove.find(instance_id)
        return _facts(
            REPLICA,
            world.shown,
            world.TASKS[row.task_id],
            source_id=world.follows,
            is_deleted=bool(row.deleted),
            is_being_backed_up=world.is_being_backed_up,
        )

    def set_volume(self, instance_id, volume_id, size_gib):
        world = self._world
        if world.trove.task(REPLICA) == world.DELETING:
            raise exceptions.ReplacementCanceledError('it is being deleted')
        world.shown, world.shown_size_gib = volume_id, size_gib

    def report_healthy(self, instance_id):
        self._world.service_status = 'HEALTHY'

    def report_failed(self, instance_id, error):
        self._world.service_status, self._world.fault = 'FAILED', error


def gtids(count):
    """Return the set of the first transactions of the source."""
    return GtidSet.parse(f'{SOURCE_UUID}:1-{count}')


def _facts(instance_id, volume_id, task, **values):
    return InstanceFacts(
        instance_id=instance_id,
        project_id='p',
        name=instance_id,
        volume_id=volume_id,
        server_id=SERVER if instance_id == REPLICA else 'server-source',
        flavor_id='small',
        version_id='version',
        task=task,
        service_status='HEALTHY',
        **values,
    )
