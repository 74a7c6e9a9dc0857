# SPDX-License-Identifier: Apache-2.0
"""A world for backups: Ceph, the storage service and Cinder in memory, Trove's and our own tables
in SQLite, and a guest agent with simulated locks and freezes.
"""

import functools
import itertools
import json
import uuid

import oslo_messaging as messaging
from keystoneauth1 import exceptions as keystone_exceptions

from trove_ceph import exceptions, steps
from trove_ceph.cinder import wait
from trove_ceph.db import backups, claims, heartbeat
from trove_ceph.guestagent import quiesce, settings_history
from trove_ceph.storage import image_types
from trove_ceph.storage_service import endpoint, rpcapi, serializer
from trove_ceph.strategies.backup import backup_types, dependencies
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.cinder import cinder_http, fake_cinder
from trove_ceph.tests.unit.db import database
from trove_ceph.tests.unit.storage_service import service_world
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import trove_db

NVME, OTHER = 'lab@nvme#nvme', 'lab@lvm#lvm'
SERVICE = 'service'
LIMIT_SEC = 20
#: Requests that change nothing.
READS = ('cinder GET', 'storage describe', 'storage survey_jobs', 'storage list_trash')


class World(service_world.World):
    """What outlives a taskmanager, with one running instance."""

    def __init__(self, cinder_lag=0):
        super().__init__()
        self.cinder = fake_cinder.FakeCinder(self.cluster, {NVME: 'volumes'})
        self.cinder.lag = cinder_lag
        self.cinder.add_type('nvme')
        self.volume = self.cinder.add_volume(SERVICE, NVME, status='in-use')
        self.volume_image = self.cinder.image(self.volume)
        self.project = f'project-{uuid.uuid4()}'
        self.instance = trove_database.add_instance(self.project, self.volume['id'])
        self.guest = Guest(self)
        # By the ids of their instances.
        self.guests = {self.instance.id: self.guest}
        self.servers = Servers()
        self.served = self.service()
        self.records = backups.BackupStore(emptied())
        self._numbers = itertools.count()
        self._heartbeats = []
        self.trove = trove_db.TroveDatabase()
        self.policy = backup_types.BackupSettings(limit_sec=LIMIT_SEC)
        # Of erasure-coded tiers: all their pools, by that of the images.
        self.pools_of = {}
        # The requests to other services, in their order.
        self.events = []
        # Background requests are answered only when the operation waits for them.
        self.is_answered_late = False

    def add_backup(self, **facts):
        return trove_database.add_backup(self.instance, **facts)

    def worker(self, expiry=None):
        """Return a new taskmanager process.

        :param expiry: of the claims of others; None: it follows the others on the same host, and
            therefore knows that they are dead
        """
        name = f'host/boot/1/{next(self._numbers)}/0'
        if expiry is None:
            return claims.Claimant(name, is_dead=lambda other: other != name)
        return claims.Claimant(name, expiry)

    def sleep(self, seconds):
        """Let time pass, with heartbeats."""
        super().sleep(seconds)
        for one in self._heartbeats:
            one.beat()

    def deps(self, strike=None, expiry=None):
        """Return the dependencies of a new taskmanager.

        :param strike: kills it, or loses an answer, at one of its requests
        :param expiry: as for :meth:`worker`
        """
        strike = strike or Strike(None)
        beating = heartbeat.Heartbeat(
            self.records.claims, 5, claims.DEFAULT_EXPIRY.total_seconds(), lambda: self.now
        )
        # Tests write the heartbeats, not a thread.
        beating.start = lambda: None
        self._heartbeats.append(beating)
        return dependencies.BackupDependencies(
            storage=Storage(self, strike),
            cinder=self.cinder.client(SERVICE, adapter=Adapter(self, strike)),
            records=self.records,
            trove=self.trove,
            servers=self.servers,
            guest=lambda instance_id: RemoteGuest(self, strike, instance_id),
            find_image=self.find_image,
            pools_of=lambda pool: self.pools_of.get(pool, [pool]),
            worker=self.worker(expiry),
            heartbeat=beating,
            vault=lambda: 'vault',
            policy=self.policy,
            wait_limits=wait.WaitLimits(10, clock=lambda: self.now, sleep=self.sleep),
            clock=lambda: self.now,
            sleep=self.sleep,
            begin=self.begin,
        )

    def begin(self, request):
        """Answer a background request at once, or only when the caller waits for it."""
        if self.is_answered_late:
            return request
        try:
            answer = request()
        except Exception as error:
            return functools.partial(_raise, error)
        return lambda: answer

    def find_image(self, volume):
        pool = self.cinder.backends.get(volume.backend)
        return pool and image_types.ImageRef(pool, volume.image_name)

    # For assertions.

    def snapshots(self, image=None):
        """Return the names of an image's snapshots; None: of the instance's volume."""
        facts = self.storage.describe(image or self.volume_image)
        return [one.name for one in facts.snapshots if not one.removed]

    def images(self, pool='volumes'):
        """Return the names of a pool's images, except the one that belongs to no volume."""
        listed = (facts.image.name for facts in self.storage.describe_pool(pool))
        return {name for name in listed if name != self.image.name}

    def trash(self):
        """Return the names of the images in the trash of all pools."""
        pools = self.cluster.capacities
        return [one.name for pool in pools for one in self.storage.list_trash(pool)]

    def delete_server(self):
        """Detach the volume, as the deletion of a server does, and mark the instance as deleted."""
        self.volume['status'] = 'available'
        trove_database.instance(self.instance.id).update(deleted=True)


class Guest:
    """The guest agent's real bookkeeping, over simulated locks and freezes."""

    def __init__(self, world):
        self.world = world
        self.reasons = []
        self.locks, self.freezes = [], []
        self.is_down = False
        # It may trim its volume.
        self.is_flattened = False
        # Differs after each change of a setting; None: the server has no evidence.
        self.evidence = 'as it was started'
        self.position = 'uuid:1-7'
        self.restart()
        self.observe()
        self.world.now += 60

    def restart(self):
        """Lose all memory, as a killed agent does; locks and freezes end with it."""
        self._history = settings_history.SettingsHistory(clock=lambda: self.world.now)
        for hold in self.locks + self.freezes:
            hold.close()
        self._quiescer = quiesce.Quiescer(
            lambda hold_sec: self._add(self.locks, SimulatedHold(self.world, hold_sec)),
            lambda limit_sec: self._add(self.freezes, SimulatedHold(self.world, limit_sec)),
            max_limit_sec=60,
            clock=lambda: self.world.now,
        )

    @property
    def is_held(self):
        return any(one.is_held() for one in self.locks + self.freezes)

    def observe(self):
        """Read the settings, as the agent does every minute."""
        return self._history.observe(self.evidence, self.position)

    def check_backup_settings(self):
        return {
            'reasons': self.reasons,
            'gtid_executed': self.position,
            'settings_id': self.evidence,
            **self.observe(),
        }

    def record_flattened(self):
        self.is_flattened = True

    def quiesce_for_backup(self, backup_id, token, level, limit_sec):
        return self._quiescer.quiesce(backup_id, token, level, limit_sec)

    def release_after_backup(self, backup_id, token):
        return self._quiescer.release(backup_id, token)

    @staticmethod
    def _add(where, hold):
        where.append(hold)
        return hold


class SimulatedHold:
    """A simulated lock or freeze, which ends by itself after its limit."""

    def __init__(self, world, limit_sec):
        self._world = world
        self._limit_sec = limit_sec
        self._until = None

    def wait_until_ready(self):
        pass

    def freeze(self):
        self._until = self._world.now + self._limit_sec
        return 0.0

    def lock_instance(self):
        self._until = self._world.now + self._limit_sec

    def lock_non_transactional_tables(self):
        return 0

    def is_held(self):
        return self._until is not None and self._world.now < self._until

    is_frozen = is_held

    def unlock(self):
        lost = '' if self.is_held() else 'the limit passed'
        self._until = None
        return lost

    thaw = unlock

    def close(self):
        self._until = None


class Servers:
    """The client of Nova."""

    def __init__(self):
        self.kept_volumes = []
        self.is_down = False

    def keep_volume(self, server_id, volume_id):
        if self.is_down:
            raise exceptions.ServiceUnavailableError('Nova failed')
        self.kept_volumes.append((server_id, volume_id))


class AtOnce:
    """Runs at once what threads would run, up to a number."""

    def __init__(self, room=100):
        self.room = room

    def start(self, function):
        self.room -= 1
        if self.room >= 0:
            function()
        return self.room >= 0


class Strike:
    """Kills a taskmanager, or loses an answer, at one of its requests.

    :param number: of the request, from 0; None: no request
    """

    def __init__(self, number, after=False, lost=False):
        self._numbers = itertools.count()
        self._number, self._after, self._lost = number, after, lost
        self.struck = False

    def around(self, request, unavailable):
        """Make a request, unless the strike precedes it.

        :param unavailable: the error of the caller if the answer is lost
        """
        struck = next(self._numbers) == self._number
        self.struck = self.struck or struck
        if struck and not self._after:
            self._end(unavailable)
        answer = request()
        if struck:
            self._end(unavailable)
        return answer

    def _end(self, unavailable):
        raise unavailable if self._lost else interruption.Kill


class Adapter(cinder_http.Adapter):
    """The network to Cinder."""

    def __init__(self, world, strike):
        super().__init__(world.cinder)
        self._world, self._strike = world, strike

    def send(self, request, **kwargs):
        self._world.events.append(f'cinder {request.method}')
        lost = keystone_exceptions.ConnectFailure('the connection was lost')
        return self._strike.around(lambda: self._serve(request), lost)


class Storage(rpcapi.StorageAPI):
    """The storage service's client, whose bus is a function call."""

    def __init__(self, world, strike):
        self._world, self._strike = world, strike
        self._client = self
        self._timeout_sec = 1
        self._clock, self._sleep = lambda: world.now, world.sleep

    def close(self):
        self._world.events.append('storage close')

    def call(self, context, verb, **arguments):
        self._world.events.append(f'storage {verb}')
        return self._strike.around(
            lambda: self._serve(verb, arguments), messaging.MessagingTimeout()
        )

    def _serve(self, verb, arguments):
        crossed = {name: _cross(value) for name, value in arguments.items()}
        served = self._world.served
        # The service must permit what the operations request.
        endpoint.permissions_of(type(served.endpoint))[verb].check(served.evidence, crossed)
        try:
            return _cross(getattr(served.endpoint, verb)({}, **crossed))
        except messaging.ExpectedException as expected:
            raise expected.exc_info[1] from None


class RemoteGuest:
    """The guest agent's client."""

    def __init__(self, world, strike, instance_id):
        self._world, self._strike = world, strike
        self._guest = world.guests[instance_id]

    def __getattr__(self, verb):
        def ask(*arguments):
            self._world.events.append(f'guest {verb}')
            lost = exceptions.GuestUnavailableError('guest agent: no answer')
            return self._strike.around(lambda: self._serve(verb, arguments), lost)

        return ask

    def _serve(self, verb, arguments):
        guest = self._guest
        if guest.is_down:
            raise exceptions.GuestUnavailableError('guest agent: no answer')
        try:
            return json.loads(json.dumps(getattr(guest, verb)(*arguments)))
        except exceptions.NotQuiescedError as error:
            raise exceptions.GuestUnavailableError(f'guest agent: {error}') from error


class RequestInterruptionTests(interruption.InterruptionTests):
    """Interrupts the operation before and after each of its requests to other services.

    ``make_operation`` takes the strike.
    """

    def test_killed_at_each_request(self):
        self._strike_each(interruption.Kill, lost=False)

    def test_each_request_is_lost(self):
        self._strike_each(exceptions.TroveCephError, lost=True)

    def _strike_each(self, expected, lost):
        # A kill after one request equals a kill before the next one.
        whens = (False, True) if lost else (True,)
        was_read = False
        for number, after in ((n, after) for n in itertools.count() for after in whens):
            if lost and after and was_read:
                # Nothing was changed, whether the request or its answer was lost.
                continue
            world = self.make_world()
            strike = Strike(number, after, lost)
            operation = self.make_operation(world, strike)
            first = len(world.events) + number
            begun = []
            with interruption.annotated(f'lost={lost} at request {number}, after={after}'):
                try:
                    steps.run(
                        'operation under test',
                        operation,
                        note=lambda _name, step, _count, begun=begun: begun.append(step),
                    )
                except expected:
                    self.assertTrue(strike.struck)
                    if lost and not any(step.commits for step in operation[: len(begun)]):
                        self.check_undone(world)
                if not strike.struck:
                    self.assertGreater(number, 0)
                    return
                was_read = world.events[first] in READS
                # Locks of the guest end by themselves before the operation continues.
                world.now += 120
                steps.run('operation under test', self.make_operation(world))
                self.check_done(world)


@functools.cache
def _facade():
    return database.facade(trove_database.path())


def emptied():
    """Return the database of Trove's tables without the rows of our own."""
    return database.emptied(_facade())


def _raise(error):
    raise error


def _cross(value):
    return serializer.decode(json.loads(json.dumps(serializer.encode(value))))
