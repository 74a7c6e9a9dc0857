# SPDX-License-Identifier: Apache-2.0
"""A world for re-provisioning: a cloud in memory, our tables, taskmanagers that come and go."""

import datetime
import itertools

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import claims, heartbeat
from trove_ceph.db.replica_record import ReplicaState, Requester
from trove_ceph.strategies.replication.reprovision import Reprovisioning
from trove_ceph.strategies.replication.reprovision_dependencies import ReprovisionDependencies
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.db import replacement_helpers, replacement_memory, replica_memory
from trove_ceph.tests.unit.strategies import reprovision_cloud as cloud
from trove_ceph.tests.unit.strategies.replacement_world import Client
from trove_ceph.tests.unit.strategies.reprovision_cloud import OLD, REPLICA, SERVER, SOURCE
from trove_ceph.tests.unit.strategies.world import Strike

_MOST_ATTEMPTS = 300
#: Of a guest that does not release its volume.
TIMEOUT_SEC = 15


class World:
    """What outlives a taskmanager.

    :param is_lost: whether the pool of the old volume is lost
    :param hangs: whether the guest never releases a volume as long as its server runs
    :param requester: of the re-provisioning
    """

    DELETING = replacement_helpers.DELETING
    TASKS = {
        replacement_helpers.NONE: 'NONE',
        replacement_helpers.MIGRATING: 'MIGRATING',
        DELETING: 'DELETING',
    }

    def __init__(self, is_lost=False, hangs=False, requester=Requester.TENANT):
        self.now = self._began = datetime.datetime(2026, 1, 1)
        self.trove = replacement_memory.MemoryTrove()
        self.store = replica_memory.MemoryStore(self.trove, lambda: self.now)
        self._workers = itertools.count()
        # The cloud.
        self.position, self.password, self.is_source_up = 100, 1, True
        self.source_task = 'NONE'
        old = cloud.Volume(50, cloud.REPLICA_UUID, 1, {SERVER}, 'in-use', is_lost)
        self.volumes = {'volume-source': cloud.Volume(100), OLD: old}
        self.discarded = set()
        # Of any volume; None: it cannot be measured.
        self.own_bytes = 50
        self.has_server, self.server_status, self.server_task = True, 'ACTIVE', ''
        # What the status becomes when the exchange begins.
        self.becomes = None
        # Whether nova-compute does not stop the server, and when an operator repairs a blocked one.
        self.is_host_down, self.repair_looks = False, 10**9
        # The volume that the guest uses, that on which MySQL runs, and the request to start it.
        self.mounted, self.running, self.started = OLD, OLD, None
        # Trove's tables.
        self.shown, self.follows, self.service_status, self.fault = OLD, SOURCE, 'HEALTHY', None
        self.shown_size_gib = 1
        self.is_source_deleted = self.is_being_backed_up = False
        # What goes wrong, and how long things take.
        self.hangs, self.speed, self.refusal = hangs, 1000, None
        self.io_error = self.sql_error = ''
        #: How many replicas acknowledge, with semi-synchronous replication, and how often a commit
        #: waited in vain.
        self.acknowledging = self.waits = 0
        self.clone_errors = self.attach_errors = 0
        self.agent_looks = self.boot_looks = self.attach_looks = self.detach_looks = 0
        self.start_looks = self.start_duration = 0
        self.start_answers, self.down, self.broken = [], set(), []
        self.trove.add(REPLICA)
        self.store.register(REPLICA, 'p', SOURCE, OLD, self.now)
        self.store.request(REPLICA, requester, 'it grew')
        self.requested_position = self.position

    def passes(self, name):
        """Return whether something that takes some looks is done."""
        left = getattr(self, name)
        setattr(self, name, max(left - 1, 0))
        return left <= 0

    def follow(self, source_id):
        """Give the replica another source, as a promotion does."""
        self.follows = source_id
        self.store._set(REPLICA, source_id=source_id)

    def reclaim(self):
        """Delete discarded volumes as the periodic task does."""
        is_gone = self.trove.find(REPLICA).deleted
        for volume_id in list(self.discarded):
            volume = self.volumes.get(volume_id)
            if volume is None or not (volume.servers or volume.is_lost):
                if is_gone or volume_id != self.shown:
                    self.volumes.pop(volume_id, None)
                    self.discarded.discard(volume_id)

    def delete_instance(self):
        """Delete the instance as Trove does, once its re-provisioning has ended."""
        self.discarded.add(self.shown)
        self.has_server, self.mounted, self.running = False, None, None
        for volume in self.volumes.values():
            volume.servers.discard(SERVER)
        self.trove.set(REPLICA, deleted=True)
        self.reclaim()

    # Taskmanagers.

    def record(self):
        return self.store.find(REPLICA)

    def is_blocked(self):
        record = self.record()
        return record is not None and record.state is ReplicaState.BLOCKED

    def is_open(self):
        record = self.record()
        return record is not None and record.state.is_reprovisioning

    def pass_time(self, seconds):
        self.now += datetime.timedelta(seconds=seconds)
        self.position += 1

    def clock(self):
        return (self.now - self._began).total_seconds()

    def attempt(self, strike=None):
        """Return an attempt of a new taskmanager, which knows that the others are dead."""
        strike = strike or Strike(None)
        name = f'worker-{next(self._workers)}'
        worker = claims.Claimant(name, is_dead=lambda other: other != name)
        beating = heartbeat.Heartbeat(self.store.claims, 5, 45, self.clock)
        claim = beating.acquire(lambda: self.store.claim(REPLICA, worker))

        def client(kind, service):
            return Client(self, service(self), strike, kind)

        clones = client('clones', cloud.Clones)

        def clones_of(held):
            beating.check(held)
            return clones

        def sleep(seconds):
            self.pass_time(seconds)
            beating.beat()

        deps = ReprovisionDependencies(
            store=Client(self, self.store, strike, 'store'),
            heartbeat=beating,
            instances=client('instances', cloud.Instances),
            servers=client('servers', cloud.Servers),
            volumes=client('volumes', cloud.Volumes),
            clones=clones_of,
            agents=client('agents', cloud.Agents),
            clock=self.clock,
            sleep=sleep,
            exchange_timeout_sec=TIMEOUT_SEC,
        )
        return Reprovisioning(deps, claim, self.record())

    def finish(self, strike=None, most=_MOST_ATTEMPTS):
        """Make attempts until the re-provisioning ends; return the last error."""
        error = None
        for _ in range(most):
            if not self.is_open():
                return error
            try:
                self.attempt(strike).run()
            except interruption.Kill:
                strike = None
            except exceptions.ClaimLostError:
                # The answer to the last write was lost.
                if self.is_open():
                    raise
            except exceptions.TroveCephError as failure:
                error = failure
            self.pass_time(5)
            self.reclaim()
            self.check_always()
        raise AssertionError(f'not ended after {most} attempts: {self.record()}, {error}')

    # Invariants.

    def check_always(self):
        """Check what must hold after each request."""
        if self.broken:
            raise AssertionError(f'an invariant was broken: {self.broken[0]}')
        attached = [one for one, volume in self.volumes.items() if SERVER in volume.servers]
        if len(attached) > 1:
            raise AssertionError(f'the server has {attached}')
        for volume_id, volume in self.volumes.items():
            if len(volume.servers) > 1:
                raise AssertionError(f'{volume_id} is attached to {volume.servers}')
        if self.trove.task(REPLICA) == self.DELETING or self.trove.find(REPLICA).deleted:
            return
        if self.shown in self.discarded or self.shown not in self.volumes:
            raise AssertionError(f'{self.shown} is deleted, which the instance uses')
        old = self.volumes.get(OLD)
        if old is None or (OLD in self.discarded and not old.is_lost):
            shown = self.volumes[self.shown]
            if shown.executed < self.requested_position:
                raise AssertionError('the old volume is deleted before the new one caught up')

    def check_serves(self, volume_id, uuid):
        """Check that the replica serves on a volume, and that nothing else is left."""
        self.reclaim()
        self.check_always()
        for name, expected, found in (
            ('state', ReplicaState.FOLLOWING, self.record().state),
            ('task', replacement_helpers.NONE, self.trove.task(REPLICA)),
            ('volume of the row', volume_id, self.shown),
            ('size of the row', self.volumes[volume_id].size_gib, self.shown_size_gib),
            ('volume of the record', volume_id, self.record().volume_id),
            ('MySQL', volume_id, self.running),
            ('server', 'ACTIVE', self.server_status),
            ('attached', {SERVER}, self.volumes[volume_id].servers),
            ('UUID', uuid, self.volumes[volume_id].uuid),
            ('password', self.password, self.volumes[volume_id].password),
            ('to delete', self.lost(), self.discarded),
            ('volumes', {'volume-source', volume_id} | self.lost(), set(self.volumes)),
        ):
            if found != expected:
                raise AssertionError(f'{name}: expected {expected}, found {found}')

    def lost(self):
        """Return the volumes that stay to be deleted when their pool answers."""
        return {
            one
            for one, found in self.volumes.items()
            if found.is_lost and one != self.shown and one in self.discarded
        }

    def check_completed(self):
        """Check that the replica follows on the fresh clone."""
        record = self.record()
        if record.error is not None or record.failures:
            raise AssertionError(f'{record} ended with {record.error}')
        if self.shown == OLD or not record.cloned_at or self.service_status != 'HEALTHY':
            raise AssertionError('Trove does not show the new volume')
        self.check_serves(self.shown, cloud.FRESH_UUID)

    def check_as_before(self):
        """Check that the replica serves on its old volume, and says why."""
        if not self.record().error:
            raise AssertionError('the record does not say why')
        self.check_serves(OLD, cloud.REPLICA_UUID)

    def check_deleted(self):
        """Check that nothing is left of a deleted instance."""
        if self.broken:
            raise AssertionError(f'an invariant was broken: {self.broken[0]}')
        self.reclaim()
        left = set(self.volumes) - {'volume-source'} - self.discarded
        if left or self.is_open():
            raise AssertionError(f'left behind: {left}, {self.record()}')


class ReprovisionCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = World()

    def reach(self, state):
        """Run the steps of an attempt until the record has a state."""
        for step in self.world.attempt().steps():
            if self.world.record().state is state:
                return
            step.do()
        self.assertIs(state, self.world.record().state)

    def assert_ends(self, text):
        self.world.finish()
        self.assertIn(text, self.world.record().error)
