# SPDX-License-Identifier: Apache-2.0
"""A world with policies: Trove in memory, our tables in SQLite, and a clock."""

import dataclasses
import datetime
import itertools
import uuid

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import backups, claims, heartbeat, policies, transactions
from trove_ceph.db.policy_record import Retention, Scope
from trove_ceph.strategies.backup import backup_types, expire_unstarted
from trove_ceph.strategies.policies import dependencies, scheduler
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.db import database

PROJECT = 'project'
MINUTE = datetime.timedelta(minutes=1)
WORKER = claims.Claimant('worker')


def instance(name, **facts):
    values = {'datastore': 'mysql', 'version': '9.7', 'volume_id': f'volume-{name}'}
    return backup_types.Instance(name, PROJECT, **values | facts)


class FakeTrove:
    """Trove's API, and a taskmanager that takes and deletes backups at each tick."""

    def __init__(self, world):
        self._world = world
        self.instances = [instance('one')]
        self.backups = {}
        self.requests = []
        # How the next requests fail.
        self.refusal = None
        self.loses_calls = False
        self.fails = False

    def add(self, instance_id='one', name='manual'):
        """Add a backup as tenants request it."""
        backup_id = str(uuid.uuid4())
        self.backups[backup_id] = {
            'instance_id': instance_id,
            'name': name,
            'created_at': self._world.now,
            'state': 'NEW',
        }
        return backup_id

    def work(self):
        """Take and delete the requested backups."""
        store = self._world.records
        for backup_id, one in list(self.backups.items()):
            if one['state'] == 'DELETING':
                del self.backups[backup_id]
                if (claim := store.begin_deleting(backup_id, WORKER)) is not None:
                    store.delete(claim)
            elif one['state'] == 'NEW' and self.loses_calls:
                if self._world.now - one['created_at'] > expire_unstarted.START_TIMEOUT:
                    # As the other periodic task of the taskmanager does.
                    store.record_never_begun(backup_id, one['instance_id'], PROJECT, 'never begun')
                    self.fail_backup(backup_id)
            elif one['state'] == 'NEW':
                claim = store.begin_taking(backup_id, one['instance_id'], PROJECT, WORKER)
                if self.fails:
                    one['state'] = 'FAILED'
                    store.record_failed(claim, 'the guest agent did not answer')
                else:
                    one['state'] = 'COMPLETED'
                    store.record_taken(claim, 's', 'c', 1.0)

    def of(self, instance_id='one'):
        return [one for one in self.backups.values() if one['instance_id'] == instance_id]

    # The protocol of the strategies.

    def list_instances(self):
        return list(self.instances)

    def request_backup(self, instance, name, description, requested):
        if self.refusal:
            raise self.refusal
        if any(one['state'] == 'NEW' for one in self.of(instance.id)):
            raise exceptions.ServiceUnavailableError('it is being backed up')
        self.requests.append((instance.id, requested))
        return self.add(instance.id, name)

    def request_deletion(self, backup_id, project_id, again=False):
        if backup_id in self.backups:
            self.backups[backup_id]['state'] = 'DELETING'

    def find_named(self, instance_id, name):
        found = (key for key, one in self.backups.items() if one['name'] == name)
        return next((self.find(key) for key in found), None)

    def find(self, backup_id):
        one = self.backups.get(backup_id)
        return one and dependencies.ShownBackup(
            backup_id,
            one['created_at'],
            is_running=one['state'] == 'NEW',
            is_completed=one['state'] in ('COMPLETED', 'DELETING'),
        )

    def fail_backup(self, backup_id):
        self.backups[backup_id]['state'] = 'FAILED'


#: Reads; a kill at one of these would equal a kill at the next request that changes something.
_READS = (
    'all',
    'runs',
    'backups_of',
    'list_instances',
    'find',
    'find_named',
    'clock',
    'database_time',
)


class Struck:
    """A client whose process is killed at a request that changes something."""

    def __init__(self, client, strike):
        self._client, self._strike = client, strike

    def __getattr__(self, verb):
        found = getattr(self._client, verb)
        if verb in _READS:
            return found
        return lambda *arguments, **named: self._strike(lambda: found(*arguments, **named))


class World:
    def __init__(self, path):
        self.now = datetime.datetime(2026, 3, 1)
        # How far the clocks of the taskmanagers are ahead of that of the database.
        self.ahead = datetime.timedelta()
        facade = database.with_tables(path)
        clocks = (lambda: self.now + self.ahead, lambda: self.now)
        self.records = backups.BackupStore(facade, *clocks)
        self.policies = policies.PolicyStore(transactions.Transactions(facade, *clocks))
        self.trove = FakeTrove(self)
        self.tiers = {'one': 'nvme'}
        # The instances whose volume is on the back end of no tier, whatever its type.
        self.elsewhere = set()
        self._numbers = itertools.count()
        self.trimmed = []

    def note(self, role, backup_id, verb, *found):
        """Record the result of a worker."""
        claim = self.records.claims.claim(role, backup_id, WORKER)
        getattr(self.records.results, verb)(claim, *found)
        self.records.claims.release(claim)

    def worker(self):
        """Return a new taskmanager process on a host of its own."""
        return claims.Claimant(f'host-{next(self._numbers)}')

    def deps(self, strike=None):
        found = dependencies.PolicyDependencies(
            self.policies,
            self.records,
            self.trove,
            lambda instances: {i.id: self.tiers[i.id] for i in instances if i.id in self.tiers},
            lambda instance_id: self.trimmed.append((instance_id, self.now)),
            self.worker(),
            heartbeat.Heartbeat(self.records.claims, 5, 45),
            lambda instance_id: instance_id not in self.elsewhere,
        )
        if strike is None:
            return found
        return dataclasses.replace(
            found, policies=Struck(self.policies, strike), trove=Struck(self.trove, strike)
        )

    def tick(self, count=1, step=MINUTE, managers=1):
        for _ in range(count):
            for _ in range(managers):
                scheduler.run_due(self.deps())
            self.trove.work()
            self.now += step


class PolicyTestCase(base.BaseTestCase):
    """Has a world with one instance."""

    def setUp(self):
        super().setUp()
        self.world = self.make_world()
        self.trove, self.policies = self.world.trove, self.world.policies

    def make_world(self):
        return World(self.useFixture(fixtures.TempDir()).join('trove.sqlite'))

    def add(self, scope=Scope.INSTANCE, target='one', world=None, **values):
        facts = {'interval_min': 60, 'keep': Retention(last=3)}
        where = (world or self.world).policies
        return where.add(f'of {target}', scope, target, **facts | values)

    def run_of(self, name='one'):
        return self.policies.runs()[name]

    def names(self, of='one'):
        return [one['name'] for one in self.trove.of(of)]


class Strike:
    """Kills the process before or after one of its requests."""

    def __init__(self, number, after):
        self._numbers = itertools.count()
        self._number, self._after = number, after
        self.struck = False

    def __call__(self, request):
        is_it = next(self._numbers) == self._number
        self.struck = self.struck or is_it
        if is_it and not self._after:
            raise interruption.Kill
        answer = request()
        if is_it:
            raise interruption.Kill
        return answer

    def __str__(self):
        return f'at request {self._number}, after={self._after}'


class Suspend(Strike):
    """Something happens while the process is suspended at one of its requests."""

    def __init__(self, number, happen, after):
        super().__init__(number, after)
        self._happen = happen

    def __call__(self, request):
        is_it = next(self._numbers) == self._number
        self.struck = self.struck or is_it
        if is_it and not self._after:
            self._happen()
        answer = request()
        if is_it and self._after:
            self._happen()
        return answer
