# SPDX-License-Identifier: Apache-2.0
"""What Trove's API requests, our tables, and how a manager carries it out."""

import datetime
import types

import fixtures
from keystoneauth1 import session
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import context as trove_context
from trove.common import notification

from trove_ceph import exceptions
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.db import claims, instance_operations, replacements, replicas, source_marks
from trove_ceph.db.replica_record import Observation, ReplicaState
from trove_ceph.db.replica_states import Event
from trove_ceph.db.roles import Role
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.taskmanager import (
    changed_replicas,
    choices,
    manager,
    source_changes_factory,
    source_requests,
)
from trove_ceph.tests.unit.cinder import cinder_http
from trove_ceph.tests.unit.storage_service import bus
from trove_ceph.tests.unit.taskmanager import contexts, trove_database
from trove_ceph.tiers import tier_types

CONF = trove_cfg.CONF
GTIDS = '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-'


class SourceRequestsTest(contexts.ContextMixin, base.BaseTestCase):
    """The test case acts as the changes of this process."""

    def setUp(self):
        super().setUp()
        self.world = types.SimpleNamespace(project='project')
        self.source = trove_database.add_instance('project', 'volume')
        self.one, self.two = (
            trove_database.add_instance('project', 'volume', slave_of_id=self.source.id)
            for _each in range(2)
        )
        self.calls, self.foreign, self.events, self.error = [], set(), [], None
        notifier = types.SimpleNamespace(
            info=lambda context, event, payload: self.events.append(event)
        )
        self.useFixture(fixtures.MonkeyPatch('trove.rpc.get_notifier', lambda **_: notifier))
        self.requests = source_requests.SourceRequests(
            lambda: self, lambda instance_id: instance_id not in self.foreign
        )

    def record(self, verb):
        def call(instance_id):
            self.calls.append((verb, instance_id))
            if self.error:
                raise self.error

        return call

    def __getattr__(self, name):
        if name in ('promote', 'eject', 'detach', 'forget'):
            return self.record(name)
        raise AttributeError(name)

    def test_all_are_ours(self):
        for verb, instance, kind in (
            ('promote', self.one, notification.DBaaSInstancePromote),
            ('eject', self.source, notification.DBaaSInstanceEject),
            ('detach', self.one, notification.DBaaSInstanceDetach),
        ):
            self.assertTrue(getattr(self.requests, verb)(self.context(kind), instance.id))
            self.assertEqual((verb, instance.id), self.calls[-1])
            self.assertRegex(self.events[-1], r'end$')

    def test_one_is_not_ours(self):
        self.foreign.add(self.two.id)
        self.assertFalse(self.requests.promote(None, self.one.id))
        self.assertFalse(self.requests.eject(None, self.source.id))
        self.assertTrue(
            self.requests.detach(self.context(notification.DBaaSInstanceDetach), self.one.id)
        )
        self.foreign.add(self.one.id)
        self.assertFalse(self.requests.detach(None, self.one.id))

    def test_tells_why_it_failed(self):
        self.error = exceptions.SourceNotChangedError(f'instance {self.one.id}: no')
        context = self.context(notification.DBaaSInstancePromote)
        error = self.assertRaises(
            exceptions.TroveCephError, self.requests.promote, context, self.one.id
        )
        self.assertEqual(f'instance {self.one.id}: no', str(error))
        self.assertRegex(self.events[-1], r'error$')

    def test_forgets_sources_and_replicas_only(self):
        other = trove_database.add_instance('project', 'volume')
        self.requests.forget(other.id)
        self.requests.forget('unknown')
        self.assertEqual([], self.calls)
        self.requests.forget(self.source.id)
        self.assertEqual([('forget', self.source.id)], self.calls)
        self.calls.clear()
        self.error = exceptions.ServiceUnavailableError('the database is down')
        self.requests.forget(self.one.id)
        self.assertEqual([('forget', self.one.id)], self.calls)

    def test_a_refused_deletion_is_told(self):
        for kind in (exceptions.DeletionRefusedError, exceptions.OperationUnfinishedError):
            self.error = kind('it may be the source')
            self.assertRaises(kind, self.requests.forget, self.source.id)

    def test_handles_marks(self):
        """Without any, the services are not needed."""
        store, threads = source_marks.SourceMarkStore(), object()
        for one in store.list():
            store.remove(one)
        self.handle_marks = lambda *given: self.calls.append(given)
        self.requests.handle_marks(threads)
        self.assertEqual([], self.calls)
        store.set(self.source.id, SourceMark.EJECTED)
        self.addCleanup(store.remove, self.source.id)
        self.requests.handle_marks(threads)
        self.assertEqual([({self.source.id: SourceMark.EJECTED}, threads)], self.calls)

    def test_resumes_by_role(self):
        self.resumptions = {
            role: lambda claim: self.calls.append(claim) for role in self.requests.resumptions
        }
        self.requests.resumptions[Role.EJECT_SOURCE]('claim')
        self.assertEqual(['claim'], self.calls)


class ManagerTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        trove_database.path()
        self.calls, self.is_ours = [], True
        self.useFixture(bus.StorageTransport(CONF))
        stock = 'trove.taskmanager.manager.Manager'
        for name in ('promote_to_replica_source', 'eject_replica_source', 'detach_replica'):
            self.useFixture(fixtures.MonkeyPatch(f'{stock}.{name}', self.record(f'stock {name}')))
        self.manager = manager.Manager()
        self.manager._source_requests = types.SimpleNamespace(
            promote=self.ask, eject=self.ask, detach=self.ask
        )

    def ask(self, _context, instance_id):
        self.calls.append(instance_id)
        return self.is_ours

    def record(self, name):
        return lambda *_arguments: self.calls.append(name)

    def test_ours(self):
        self.manager.promote_to_replica_source(None, 'one')
        self.manager.eject_replica_source(None, 'source')
        self.manager.detach_replica(None, 'two')
        self.assertEqual(['one', 'source', 'two'], self.calls)

    def test_those_of_trove(self):
        self.is_ours = False
        for name in ('promote_to_replica_source', 'eject_replica_source', 'detach_replica'):
            getattr(self.manager, name)(None, 'one')
            self.assertEqual(f'stock {name}', self.calls[-1])


class ChangedReplicasTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.instance = trove_database.add_instance('project', 'volume')
        self.store = replicas.ReplicaStore()
        self.operations = instance_operations.InstanceOperationStore()
        self.replicas = changed_replicas.ChangedReplicas(self.store)
        self.tasks = changed_replicas.OtherTasks(
            self.operations, replacements.ReplacementStore(), self.store
        )

    def register(self, instance, source_id):
        self.store.register(instance.id, 'project', source_id, 'volume', None)

    def test_last_known_is_what_any_look_found(self):
        other = trove_database.add_instance('project', 'volume')
        for instance, executed in ((self.instance, '5'), (other, '9')):
            self.register(instance, 'known-source')
            found = Observation(source_executed=GTIDS + executed)
            self.store.observe(self.store.find(instance.id), found)
        self.assertEqual(GtidSet.parse(GTIDS + '9'), self.replicas.last_known('known-source'))
        self.assertFalse(self.replicas.last_known('unknown'))
        self.assertEqual({self.instance.id, other.id}, set(self.replicas.known('known-source')))
        self.assertFalse(self.replicas.known('unknown'))

    def test_when_a_source_was_seen_is_the_latest_of_all_looks(self):
        other = trove_database.add_instance('project', 'volume')
        seen_at = datetime.datetime(2026, 1, 1)
        for instance, at in ((self.instance, seen_at), (other, None)):
            self.register(instance, 'seen-source')
            self.store.observe(self.store.find(instance.id), Observation(), at)
        self.assertEqual(seen_at, self.replicas.source_seen_at('seen-source'))
        self.assertIsNone(self.replicas.source_seen_at('unknown'))

    def test_replicas_that_were_stopped(self):
        self.register(self.instance, 'stopped-source')
        self.assertFalse(self.replicas.stopped('stopped-source'))
        self.replicas.note_stopped(self.instance.id)
        self.assertEqual([self.instance.id], self.replicas.stopped('stopped-source'))
        self.replicas.forget_stopped(self.instance.id)
        self.assertFalse(self.replicas.stopped('stopped-source'))

    def test_promotes(self):
        self.register(self.instance, 'old-source')
        self.replicas.promote('old-source', self.instance.id, keeps_source=True)
        self.assertIsNone(self.store.find(self.instance.id))
        self.assertEqual(self.instance.id, self.store.find('old-source').source_id)
        self.replicas.remove('old-source')
        self.assertIsNone(self.store.find('old-source'))

    def test_promotes_a_replica_without_a_row(self):
        other = trove_database.add_instance('project', 'volume')
        self.register(other, 'other-source')
        self.replicas.promote('other-source', self.instance.id, keeps_source=True)
        self.assertEqual(self.instance.id, self.store.find(other.id).source_id)
        self.assertEqual(self.instance.id, self.store.find('other-source').source_id)

    def test_a_row_that_names_another_source_is_left_to_the_watch(self):
        self.register(self.instance, 'third-source')
        self.replicas.promote('fourth-source', self.instance.id, keeps_source=True)
        self.assertEqual('third-source', self.store.find(self.instance.id).source_id)

    def test_requests_a_fresh_clone(self):
        self.register(self.instance, 'source')
        self.assertIsNone(self.tasks.find(self.instance.id))
        self.replicas.request(self.instance.id, 'it does not follow')
        self.assertIs(ReplicaState.REQUESTED, self.store.find(self.instance.id).state)
        self.assertEqual('MIGRATING', self.tasks.find(self.instance.id))
        self.assertFalse(self.tasks.is_blocked(self.instance.id))
        self.assertTrue(self.tasks.is_reprovisioning(self.instance.id))

    def test_a_blocked_replica(self):
        self.assertFalse(self.tasks.is_blocked(self.instance.id))
        self.assertFalse(self.tasks.is_reprovisioning(self.instance.id))
        self.register(self.instance, 'source')
        self.assertFalse(self.tasks.is_blocked(self.instance.id))
        self.assertFalse(self.tasks.is_reprovisioning(self.instance.id))
        self.replicas.request(self.instance.id, 'it does not follow')
        worker = claims.Claimant('worker')
        claim = self.store.claim(self.instance.id, worker)
        for event in (Event.CLONE, Event.EXCHANGE, Event.BLOCK):
            self.assertTrue(self.tasks.is_reprovisioning(self.instance.id))
            self.store.advance(claim, event)
        self.assertTrue(self.tasks.is_blocked(self.instance.id))
        self.assertFalse(self.tasks.is_reprovisioning(self.instance.id))

    def test_tasks_of_creation_and_deletion(self):
        worker = claims.Claimant('worker')
        for role, task in ((Role.CREATE_INSTANCE, 'BUILDING'), (Role.DELETE_INSTANCE, 'DELETING')):
            claim = self.operations.begin(role, self.instance.id, worker)
            self.assertEqual(task, self.tasks.find(self.instance.id))
            self.operations.finish(claim)

    def test_choices(self):
        noted = choices.Choices(self.operations, claims.Claimant('worker'), self.operations.finish)
        for _again in range(2):
            noted.note(self.instance.id)
        self.assertEqual({self.instance.id}, noted.find([self.instance.id, 'other']))
        noted.forget(self.instance.id)
        self.assertEqual(set(), noted.find([self.instance.id]))

    def test_no_choice_of_an_instance_that_is_deleted(self):
        claim = self.operations.begin(
            Role.DELETE_INSTANCE, self.instance.id, claims.Claimant('other')
        )
        self.addCleanup(self.operations.finish, claim)
        noted = choices.Choices(self.operations, claims.Claimant('worker'), self.operations.finish)
        self.assertRaises(exceptions.SourceNotChangedError, noted.note, self.instance.id)

    def test_a_role_that_is_left(self):
        worker = claims.Claimant('worker', is_dead=lambda _name: True)
        claim = self.operations.begin(Role.EJECT_SOURCE, self.instance.id, worker)
        self.operations.set_role(claim, Role.CHANGE_SOURCE)
        self.assertIs(Role.CHANGE_SOURCE, self.operations.find_role(self.instance.id))
        left = (Role.CHANGE_SOURCE, self.instance.id)
        self.assertIn(left, self.operations.list_interrupted(worker))
        self.operations.finish(claim)
        self.assertIsNone(self.operations.find_role(self.instance.id))


class ChangedVolumesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.flattened, self.stopped = [], []
        self.type = 'nvme'
        tiers = [
            types.SimpleNamespace(
                copies=copies, erasure=erasure, volume_type=types.SimpleNamespace(name=name)
            )
            for name, copies, erasure in (('nvme', 3, None), ('ephemeral', 1, None), ('ec', 1, 2))
        ]
        tiers.append(types.SimpleNamespace(copies=1, erasure=None, volume_type=None))
        self.volumes = changed_replicas.ChangedVolumes(
            types.SimpleNamespace(
                find_volume=self.find,
                request_flatten=self.flattened.append,
                withdraw_flatten=self.flattened.remove,
            ),
            fence=None,
            load_tiers=lambda: tier_types.TiersFile(dict(enumerate(tiers)), {}),
            stop_flattening=lambda one: self.stopped.append((one, list(self.flattened))),
        )

    def find(self, volume_id):
        facts = {'volume_type': self.type, 'is_marked': volume_id in self.flattened}
        return types.SimpleNamespace(**facts) if volume_id == 'volume' else None

    def test_copies(self):
        for self.type, expected in (
            *(('nvme', False), ('ephemeral', True)),
            *(('ec', False), ('of-no-tier', None)),
        ):
            self.assertIs(expected, self.volumes.has_one_copy('volume'), self.type)
        self.assertIsNone(self.volumes.has_one_copy('deleted'))

    def test_flattens(self):
        self.volumes.flatten('volume')
        self.assertEqual(['volume'], self.flattened)
        self.assertTrue(self.volumes.is_to_be_flattened('volume'))

    def test_flattens_no_more(self):
        self.volumes.flatten('volume')
        self.volumes.withdraw_flatten('volume')
        # Nothing starts it again.
        self.assertEqual([('volume', [])], self.stopped)
        for one in ('volume', 'deleted'):
            self.assertFalse(self.volumes.is_to_be_flattened(one))


class FactoryTest(base.BaseTestCase):
    def test_creates_the_changes_at_the_first_request(self):
        trove_database.path()
        taskmanager_conf.register(CONF)
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.common.clients_admin.get_keystone_session',
                lambda: session.Session(cinder_http.Token('service', 'admin')),
            )
        )
        deps = types.SimpleNamespace(
            worker=claims.Claimant('one'),
            heartbeat=None,
            cinder=types.SimpleNamespace(request_flatten=None),
            storage=None,
            find_image=None,
        )
        requests = source_changes_factory.make_source_requests(
            CONF,
            trove_context.TroveContext(),
            lambda: deps,
            lambda: types.SimpleNamespace(finish=None),
            lambda _id: True,
        )
        changes = requests._get_changes()
        self.assertIs(changes, requests._get_changes())
        self.assertEqual(set(requests.resumptions), set(changes.resumptions))
        self.assertEqual(
            CONF.trove_ceph_replication.catch_up_timeout_sec, changes._deps.catch_up_sec
        )
