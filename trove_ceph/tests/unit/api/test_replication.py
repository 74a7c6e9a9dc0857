# SPDX-License-Identifier: Apache-2.0
"""Replicas through Trove's own router."""

import datetime

from oslotest import base
from trove.common import cfg as trove_cfg
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions
from trove_ceph.db import replica_record
from trove_ceph.db.replica_record import Cause, Requester
from trove_ceph.db.replica_states import Event
from trove_ceph.taskmanager import manager
from trove_ceph.tests.unit.api import world
from trove_ceph.tests.unit.taskmanager import trove_database

CONF = trove_cfg.CONF
MINUTE = datetime.timedelta(minutes=1)
HOUR = 60 * MINUTE
FOLLOWING = {'is_replicating': True, 'lag_sec': 0.5, 'lag_transactions': 3, 'own_bytes': 4096}


class ReplicationTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World())
        self.ask = self.world.ask
        self.source = self.world.add_instance()

    def show(self, instance, **options):
        status, body = self.ask('GET', f'/replication/{instance.id}', **options)
        self.assertEqual(200, status, body)
        return body['replication']

    def list(self, query='', **options):
        status, body = self.ask('GET', f'/replication{query}', **options)
        self.assertEqual(200, status, body)
        return body['replicas']

    def ids(self, query='', **options):
        return {one['id'] for one in self.list(query, **options)}

    def request(self, instance, content=None, **options):
        body = {'reprovision': {} if content is None else content}
        return self.ask('POST', f'/replication/{instance.id}/reprovision', body, **options)

    def reprovision(self, instance, content=None, **options):
        status, body = self.request(instance, content, **options)
        self.assertEqual(202, status, body)
        return body['replication']

    def assert_refused(self, answer, status, message):
        self.assertEqual(status, answer[0], answer[1])
        (fault,) = answer[1].values()
        self.assertIn(message, fault['message'])


class ShowTest(ReplicationTest):
    def test_shows_a_replica(self):
        replica = self.world.add_replica(
            self.source, **FOLLOWING, clone_depth=1, semi_sync_active=True
        )
        self.world.now += MINUTE
        shown = self.show(replica)
        self.assertIsNotNone(shown.pop('created'))
        self.assertEqual(
            {
                'id': replica.id,
                'name': 'db1',
                'project_id': self.world.project,
                'source_id': self.source.id,
                'state': 'following',
                'replicating': True,
                'problem': None,
                'replication_error': None,
                'lag_sec': 0.5,
                'lag_transactions': 3,
                'own_bytes': 4096,
                'former_own_bytes': None,
                'fresh_own_bytes': None,
                'clone_depth': 1,
                'semi_sync_active': True,
                'cloned_at': '2026-01-01T12:00:00Z',
                'observed_at': '2026-01-01T12:00:00Z',
                'clone_age_sec': 60,
                'observed_age_sec': 60,
                'requested_by': None,
                'requested_at': None,
                'reason': None,
                'step': None,
                'attempts': 0,
                'error': None,
                'ended_at': None,
                'reprovisioned_at': None,
                'last_reason': None,
                'reprovision_due_at': None,
                'copies': None,
                'replicas': [],
            },
            shown,
        )

    def test_shows_a_source_with_its_replicas(self):
        replicas = [self.world.add_replica(self.source, **FOLLOWING) for _ in range(2)]
        shown = self.show(self.source)
        self.assertEqual(
            (None, None, None), tuple(shown[one] for one in ('source_id', 'state', 'problem'))
        )
        self.assertEqual({one.id for one in replicas}, {one['id'] for one in shown['replicas']})
        self.assertEqual({'following'}, {one['state'] for one in shown['replicas']})

    def test_shows_a_replica_of_a_replica(self):
        middle = self.world.add_replica(self.source, **FOLLOWING)
        last = self.world.add_replica(middle, **FOLLOWING)
        shown = self.show(middle)
        self.assertEqual(self.source.id, shown['source_id'])
        self.assertEqual([last.id], [one['id'] for one in shown['replicas']])

    def test_says_why_a_replica_is_broken(self):
        replica = self.world.add_replica(
            self.source, is_replicating=False, replication_error='error 1236: no binlog.000001'
        )
        shown = self.show(replica)
        self.assertEqual(('broken', False), (shown['state'], shown['replicating']))
        self.assertIn('binary logs', shown['problem'])

    def test_says_that_the_last_look_is_old(self):
        replica = self.world.add_replica(self.source, **FOLLOWING)
        interval = datetime.timedelta(seconds=CONF.trove_ceph_replication.watch_interval_sec)
        self.world.now += 10 * interval
        self.assertIsNone(self.show(replica)['problem'])
        self.world.now += interval
        self.assertIn('has not looked at it', self.show(replica)['problem'])

    def test_shows_volumes_to_administrators(self):
        replica = self.world.add_replica(self.source, **FOLLOWING)
        self.reprovision(replica)
        self.world.reprovision(replica, new_volume_id='volume-2', error='it was canceled')
        for answer in (self.show(replica), self.show(self.source), self.list()):
            self.assertNotIn('volume-2', str(answer))
            self.assertNotIn(replica.volume_id, str(answer))
            self.assertIn('it was canceled', str(answer))
        shown = self.show(replica, role='admin')
        self.assertEqual(
            (replica.volume_id, 'volume-2', None),
            tuple(shown[name] for name in ('volume_id', 'new_volume_id', 'old_volume_id')),
        )

    def test_shows_when_the_clone_is_replaced_by_policy(self):
        replica = self.world.add_replica(self.source, **FOLLOWING)
        CONF.set_override('reprovision_every_hours', 24, 'trove_ceph_replication')
        self.addCleanup(CONF.clear_override, 'reprovision_every_hours', 'trove_ceph_replication')
        self.assertEqual('2026-01-02T12:00:00Z', self.show(replica)['reprovision_due_at'])
        # The policy of the source has precedence; 0 is never.
        for hours, expected in ((1, '2026-01-01T13:00:00Z'), (0, None)):
            self.world.replication_policies.set(self.source.id, reprovision_every_hours=hours)
            self.assertEqual(expected, self.show(replica)['reprovision_due_at'])

    def test_shows_when_the_volume_of_a_former_source_is_replaced(self):
        replica = self.world.add_replica(self.source, is_clone=False, **FOLLOWING)
        self.assertIsNone(self.show(replica)['reprovision_due_at'])
        self.world.replication_policies.set(self.source.id, reprovision_every_hours=1)
        created_at = self.world.replicas.find(replica.id).created_at
        due_at = (created_at + datetime.timedelta(hours=1)).isoformat() + 'Z'
        self.assertEqual(due_at, self.show(replica)['reprovision_due_at'])

    def test_shows_how_many_copies_the_storage_keeps(self):
        replica = self.world.add_replica(self.source, **FOLLOWING)
        self.useFixture(world.TiersFile())
        self.world.app = world._app()
        for volume_type, copies in (('nvme', 2), ('other', None), (None, None)):
            self.world.volume_type = volume_type
            self.assertEqual(copies, self.show(replica)['copies'])
        replica.update(volume_id=None)
        self.assertIsNone(self.show(replica)['copies'])

    def test_shows_what_trove_knows_of_replicas_without_a_record(self):
        created = self.world.add_instance(
            slave_of_id=self.source.id, task_status=InstanceTasks.BUILDING
        )
        shown = self.show(created)
        self.assertEqual(
            ('creating', None, self.source.id),
            (shown['state'], shown['replicating'], shown['source_id']),
        )
        foreign = self.world.add_instance(
            slave_of_id=self.source.id, version_id=trove_database.foreign_version()
        )
        shown = self.show(foreign)
        self.assertEqual(('unknown', None), (shown['state'], shown['lag_sec']))
        self.assertIn('does not watch this replica', shown['problem'])

    def test_refuses_instances_without_replication(self):
        answer = self.ask('GET', f'/replication/{self.source.id}')
        self.assert_refused(
            answer, 404, f'instance {self.source.id} is not a replica, and has none'
        )
        self.assert_refused(self.ask('GET', '/replication/none'), 404, 'instance none cannot be')

    def test_hides_replicas_of_other_projects(self):
        replica = self.world.add_replica(self.source, **FOLLOWING)
        other = {'project': self.world.other}
        answer = self.ask('GET', f'/replication/{replica.id}', **other)
        self.assert_refused(answer, 404, f'instance {replica.id} cannot be found')
        self.assertEqual(set(), self.ids(**other))
        self.assertEqual(set(), self.ids(f'?source_id={self.source.id}', **other))
        self.assert_refused(self.request(replica, **other), 404, 'cannot be found')
        self.assertEqual(replica.id, self.show(replica, role='admin', **other)['id'])

    def test_hides_deleted_replicas(self):
        replica = self.world.add_replica(self.source, **FOLLOWING)
        replica.update(deleted=True)
        self.assertEqual(set(), self.ids())
        self.assertEqual(404, self.ask('GET', f'/replication/{replica.id}')[0])


class ListTest(ReplicationTest):
    def test_lists_replicas(self):
        ours = self.world.add_replica(self.source, **FOLLOWING)
        other_source = self.world.add_instance()
        other = self.world.add_replica(other_source)
        self.assertEqual({ours.id, other.id}, self.ids())
        (found,) = self.list(f'?source_id={self.source.id}')
        self.assertEqual(self.show(ours), found | {'copies': None, 'replicas': []})

    def test_lists_replicas_of_all_projects_to_operators(self):
        ours = self.world.add_replica(self.source)
        other = self.world.add_replica(self.world.add_instance(project=self.world.other))
        admin = {'role': 'admin', 'project': self.world.other}
        self.assertEqual({other.id}, self.ids(**admin))
        self.assertLessEqual({ours.id, other.id}, self.ids('?all_projects=1', **admin))
        self.assertEqual({ours.id}, self.ids(f'?source_id={self.source.id}', **admin))
        answer = self.ask('GET', '/replication?all_projects=1')
        self.assert_refused(answer, 403, 'all_projects')

    def test_lists_in_pages_the_latest_first(self):
        expected = []
        for number in range(5):
            replica = self.world.add_replica(self.source)
            replica.update(created=self.world.now + number * MINUTE)
            expected.insert(0, replica.id)
        listed, path = [], '/replication?limit=2'
        for length in (2, 2, 1):
            _status, body = self.ask('GET', path)
            self.assertEqual(length, len(body['replicas']))
            self.assertEqual(length == 2, bool(body.get('links')))
            listed += [one['id'] for one in body['replicas']]
            path = f'/replication?limit=2&marker={listed[-1]}'
        self.assertEqual(expected, listed)
        for query, message in (('limit=none', 'limit'), ('marker=none', 'marker')):
            self.assert_refused(self.ask('GET', f'/replication?{query}'), 400, message)

    def test_continues_after_a_replica_that_was_detached(self):
        earlier, latest = (self.world.add_replica(self.source) for _ in range(2))
        latest.update(created=self.world.now + MINUTE, slave_of_id=None)
        earlier.update(created=self.world.now)
        _status, body = self.ask('GET', f'/replication?marker={latest.id}')
        self.assertEqual([earlier.id], [one['id'] for one in body['replicas']])

    def test_reports_a_database_without_our_tables(self):
        def fail(*_arguments, **_options):
            raise exceptions.ServiceUnavailableError('table x does not exist; run "db sync"')

        self.world.add_replica(self.source)
        self.world.replicas.list = fail
        self.assert_refused(
            self.ask('GET', '/replication'), 503, 'the database, or another service'
        )


class ReprovisionTest(ReplicationTest):
    def setUp(self):
        super().setUp()
        self.replica = self.world.add_replica(self.source, **FOLLOWING)

    def task(self):
        return trove_database.instance(self.replica.id).task_status

    def test_requests_a_fresh_clone(self):
        shown = self.reprovision(self.replica, {'reason': 'it lags'})
        self.assertEqual(
            ('requested', 'tenant', 'it lags', '2026-01-01T12:00:00Z'),
            tuple(shown[one] for one in ('state', 'requested_by', 'reason', 'requested_at')),
        )
        record = self.world.replicas.find(self.replica.id)
        self.assertEqual((Requester.TENANT, Cause.REQUEST), (record.requested_by, record.cause))
        self.assertEqual(InstanceTasks.MIGRATING, self.task())
        # A taskmanager is notified.
        ((method, _context, arguments),) = self.world.casts
        self.assertEqual({}, arguments)
        self.assertTrue(callable(getattr(manager.Manager, method)))

    def test_shows_the_steps_and_the_result(self):
        self.reprovision(self.replica, {'reason': 'it lags'})
        claim = self.world.reprovision(self.replica, Event.CLONE, step='copying', attempts=2)
        shown = self.show(self.replica)
        self.assertEqual(
            ('cloning', 'copying', 2), tuple(shown[one] for one in ('state', 'step', 'attempts'))
        )
        self.world.replicas.advance(claim, Event.EXCHANGE)
        self.world.replicas.advance(claim, Event.EXCHANGED)
        self.assertEqual('catching_up', self.show(self.replica)['state'])
        self.world.now += MINUTE
        self.world.replicas.complete(claim)
        shown = self.show(self.replica)
        self.assertEqual(
            ('following', '2026-01-01T12:01:00Z', 'it lags'),
            tuple(shown[one] for one in ('state', 'reprovisioned_at', 'last_reason')),
        )

    def test_what_was_seen_before_a_fresh_clone_proves_nothing(self):
        broken = self.world.add_replica(self.source, is_replicating=False)
        self.world.now += MINUTE
        self.reprovision(broken)
        self.world.end_reprovisioning(broken)
        shown = self.show(broken)
        self.assertEqual(('following', None), (shown['state'], shown['replicating']))
        self.assertIn('looked at within a minute', shown['problem'])
        found = replica_record.Observation(**FOLLOWING)
        self.world.replicas.observe(self.world.replicas.find(broken.id), found)
        shown = self.show(broken)
        self.assertEqual((True, None), (shown['replicating'], shown['problem']))

    def test_shows_why_a_replica_kept_its_data(self):
        self.reprovision(self.replica)
        self.world.end_reprovisioning(self.replica, 'the storage has no room for it')
        shown = self.show(self.replica)
        self.assertEqual(
            ('following', 'the storage has no room for it', None),
            tuple(shown[name] for name in ('state', 'error', 'reprovisioned_at')),
        )

    def test_operators_reprovision_replicas_of_all_projects(self):
        shown = self.reprovision(self.replica, project=self.world.other, role='admin')
        self.assertEqual('operator', shown['requested_by'])
        self.assertEqual('operator', self.show(self.replica)['requested_by'])

    def test_accepts_a_replica_that_has_to_be_restarted(self):
        self.replica.update(task_status=InstanceTasks.RESTART_REQUIRED)
        self.assertEqual('requested', self.reprovision(self.replica)['state'])

    def test_refuses_a_second_request(self):
        self.reprovision(self.replica)
        self.assert_refused(self.request(self.replica), 409, 'is being re-provisioned already')

    def test_refuses_a_replica_with_a_task(self):
        self.replica.update(task_status=InstanceTasks.REBOOTING)
        self.assert_refused(self.request(self.replica), 409, 'it has a task')
        self.assertEqual([], self.world.casts)
        self.assertEqual('following', self.show(self.replica)['state'])

    def test_refuses_what_is_no_replica_of_ours(self):
        answer = self.request(self.source)
        self.assert_refused(answer, 409, f'instance {self.source.id}: is not a replica')
        stock = self.world.add_instance(slave_of_id=self.source.id)
        answer = self.request(stock)
        self.assert_refused(answer, 409, 'was not created as a clone of its source')
        self.replica.update(deleted=True)
        self.assert_refused(self.request(self.replica), 404, self.replica.id)

    def test_refuses_a_replica_whose_source_is_deleted(self):
        self.source.update(deleted=True)
        answer = self.request(self.replica)
        self.assert_refused(answer, 409, f'its source {self.source.id} is deleted; detach')

    def test_refuses_a_replica_that_is_being_backed_up(self):
        self.world.add_backup(self.replica)
        self.assert_refused(self.request(self.replica), 409, 'is being backed up')
        self.assertEqual('following', self.show(self.replica)['state'])

    def test_refuses_invalid_requests(self):
        for content, message in (
            ({'reason': 'x' * 256}, 'reprovision.reason: must be one line of up to 255 characters'),
            ({'reason': 'a\nb'}, 'reprovision.reason: must be one line'),
            ({'resaon': 'a'}, 'did you mean reason?'),
        ):
            self.assert_refused(self.request(self.replica, content), 400, message)
        path = f'/replication/{self.replica.id}/reprovision'
        self.assert_refused(self.ask('POST', path, {}), 400, 'lacks reprovision')
        self.assertEqual('following', self.show(self.replica)['state'])
        self.assertEqual('', self.reprovision(self.replica, {'reason': None})['reason'])
