# SPDX-License-Identifier: Apache-2.0
"""The commands for replicas, through python-troveclient and Trove's real API."""

import datetime

from trove_ceph.db.replica_states import Event
from trove_ceph.tests.unit.osc import harness

FOLLOWING = {'is_replicating': True, 'lag_sec': 1234.5, 'lag_transactions': 7, 'own_bytes': 4096}


class CommandsTest(harness.CommandTestCase):
    prefix = 'database replica'

    def setUp(self):
        super().setUp()
        self.replica = self.world.add_replica(self.instance, **FOLLOWING)

    def test_lists(self):
        other = self.world.add_replica(self.world.add_instance())
        rows = self.shown('list')
        self.assertEqual({self.replica.id, other.id}, {row['ID'] for row in rows})
        (row,) = self.shown(f'list --source {self.instance.id}')
        self.assertEqual(
            (self.instance.id, 'following', True, 1234.5, 7, 4096),
            tuple(
                row[title]
                for title in (
                    *('Source ID', 'State', 'Replicating', 'Lag', 'Lag Transactions'),
                    'Own Space',
                )
            ),
        )
        status, table = self.run_command('list')
        self.assertEqual(0, status)
        self.assertIn('1234 s', table)
        self.assertIn('4 KiB', table)
        self.assertEqual(1, len(self.shown('list --limit 1')))
        (row,) = self.shown(f'list --long --source {self.instance.id}')
        self.assertEqual((self.world.project, None), (row['Project ID'], row['Problem']))
        self.assertEqual((None, None), (row['Former Own Space'], row['Fresh Own Space']))

    def test_shows_the_space_that_a_fresh_clone_has_returned(self):
        values = {'former_own_bytes': 3 << 30, 'fresh_own_bytes': 4096}
        self.shown(f'reprovision {self.replica.id}')
        claim = self.world.reprovision(self.replica, **values)
        self.world.replicas.claims.release(claim)
        shown = self.shown(f'show {self.replica.id}')
        self.assertEqual(values, {name: shown[name] for name in values})
        (row,) = self.shown('list --long')
        self.assertEqual((3 << 30, 4096), (row['Former Own Space'], row['Fresh Own Space']))
        _status, table = self.run_command(f'show {self.replica.id}')
        self.assertIn('3 GiB', table)

    def test_lists_several_pages(self):
        for _ in range(24):
            self.world.add_replica(self.instance)
        self.assertEqual(25, len(self.shown('list')))
        self.assertEqual(22, len(self.shown('list --limit 22')))

    def test_lists_those_of_all_projects(self):
        identity = {'project': self.world.other, 'role': 'admin'}
        self.assertEqual([], self.shown('list', **identity))
        rows = self.shown('list --all-projects', **identity)
        self.assertIn(self.replica.id, {row['ID'] for row in rows})

    def test_shows_replicas_and_sources(self):
        self.name('shop-1', self.replica)
        shown = self.shown('show shop-1')
        self.assertEqual(
            (self.replica.id, 1234.5, []),
            tuple(shown[name] for name in ('id', 'lag_sec', 'replicas')),
        )
        self.world.add_replica(
            self.instance, is_replicating=False, replication_error='error 1236: gone'
        )
        (broken,) = [
            one
            for one in self.shown(f'show {self.instance.id}')['replicas']
            if one['state'] == 'broken'
        ]
        self.assertIn('binary logs', broken['problem'])
        status, table = self.run_command(f'show {self.instance.id} --fit-width')
        self.assertEqual(0, status)
        self.assertIn(f'({self.replica.id}): following, 1234 s behind', table)
        self.assertIn('broken; the source cannot send', table)

    def test_prints_that_an_instance_has_no_replication(self):
        alone = self.world.add_instance()
        status, output = self.run_command(f'show {alone.id}')
        self.assertEqual(1, status)
        self.assertIn(f'instance {alone.id} is not a replica, and has none', output)

    def test_requests_a_fresh_clone(self):
        self.name('shop-1', self.replica)
        shown = self.shown('reprovision shop-1 --reason slow')
        self.assertEqual(
            ('requested', 'slow', 'tenant'),
            tuple(shown[name] for name in ('state', 'reason', 'requested_by')),
        )
        status, output = self.run_command('reprovision shop-1')
        self.assertEqual(1, status)
        self.assertIn('is being re-provisioned already', output)


class WaitingTest(harness.WaitingTestCase):
    prefix = 'database replica'

    def setUp(self):
        super().setUp()
        self.replica = self.world.add_replica(self.instance, **FOLLOWING)

    def wait(self, *later):
        """Run the command that waits, and return its status and output."""
        self.later = [*later]
        return self.run_command(f'reprovision {self.replica.id} --wait --timeout 60 -f json')

    def work(self, *events, **values):
        """Return what a worker does while the command sleeps."""

        def do():
            claim = self.world.reprovision(self.replica, *events, **values)
            self.world.replicas.claims.release(claim)

        return do

    def end(self, error=None):
        self.world.now += datetime.timedelta(minutes=1)
        self.world.end_reprovisioning(self.replica, error)

    def test_waits_until_it_follows_on_the_clone(self):
        status, output = self.wait(self.work(error='Nova is down', attempts=1), self.end)
        self.assertEqual(0, status, output)
        self.assertIn('"state": "following"', output)
        self.assertIn('"reprovisioned_at": "2026-01-01T12:01:00Z"', output)
        self.assertEqual(10, self.now)

    def test_fails_if_the_replica_keeps_its_data(self):
        status, output = self.wait(lambda: self.end('the pool is full'))
        self.assertEqual(1, status)
        self.assertIn('was not re-provisioned: the pool is full', output)

    def test_fails_if_only_an_operator_can_continue(self):
        status, output = self.wait(
            self.work(Event.CLONE, Event.EXCHANGE, Event.BLOCK, error='unpause its server')
        )
        self.assertEqual(1, status)
        self.assertIn(f'replica {self.replica.id} is blocked: unpause its server', output)
        self.assertEqual(5, self.now)

    def test_fails_if_it_is_no_replica_any_more(self):
        self.world.add_replica(self.replica)
        status, output = self.wait(lambda: self.replica.update(slave_of_id=None))
        self.assertEqual(1, status)
        self.assertIn(f'replica {self.replica.id} was not re-provisioned', output)
        self.assertEqual(5, self.now)

    def test_fails_after_the_timeout(self):
        status, output = self.wait(self.work(Event.CLONE))
        self.assertEqual(1, status)
        self.assertIn(f'replica {self.replica.id} is still cloning after 60 s', output)
        self.assertEqual(60, self.now)
