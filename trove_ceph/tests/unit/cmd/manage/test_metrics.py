# SPDX-License-Identifier: Apache-2.0
import datetime
import time

import fixtures
from prometheus_client import parser

from trove_ceph.db import guests, replicas, transactions
from trove_ceph.db.claims import Claimant
from trove_ceph.db.guest_record import PoolKey
from trove_ceph.db.replacement_record import FailoverCause, ReplacementState, RequestedBy
from trove_ceph.db.replica_record import Cause, Observation, Requester
from trove_ceph.db.replica_states import Event
from trove_ceph.db.replication_policies import ReplicationPolicyStore
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.db import guest_helpers, replacement_helpers
from trove_ceph.tests.unit.db.guest_helpers import POOL, SECOND

KEY = PoolKey('flavor', 'image', 'digest', None, POOL)


class MetricsTest(replacement_helpers.ReplacementStoreTestCase):
    def setUp(self):
        super().setUp()
        self.config = self.useFixture(fixtures.TempDir()).join('trove.conf')
        self.write(self.facade.writer.get_engine().url)
        self.guests = guests.GuestStore(
            transactions.Transactions(self.facade, lambda: self.now, lambda: self.now)
        )
        # The command reads the clock of the database.
        self.now = transactions.utcnow()

    def write(self, url):
        with open(self.config, 'w') as config:
            config.write(f'[database]\nconnection = {url}\n')

    def run_command(self, *words, status=0):
        result = command.run('metrics', '--config-file', self.config, *words)
        self.assertEqual(status, result.status, result)
        return result

    def samples(self):
        """Return the samples: values by name and by the values of the labels, by their names."""
        return {
            (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
            for family in parser.text_string_to_metric_families(self.run_command().out)
            for sample in family.samples
        }

    def boot(self, guest_id):
        self.guests.add(guest_helpers.record(guest_id, self.now))
        self.guests.mark_ready(guest_id, 'host')

    def bind(self, guest_id, seconds):
        """Bind the only ready guest of the pool."""
        assert self.guests.claim(KEY, 'i').guest_id == guest_id
        self.now += seconds * SECOND
        self.guests.mark_bound(guest_id, 'i')

    def test_guests_and_their_bindings(self):
        self.guests.note_configured([POOL])
        for guest_id, seconds in (('one', 10), ('two', 20)):
            self.boot(guest_id)
            self.bind(guest_id, seconds)
        self.assertIsNone(self.guests.claim(KEY, 'i'))
        self.boot('three')
        found = self.samples()
        counts = {'booting': 0, 'ready': 1, 'claimed': 0, 'bound': 2, 'retired': 0}
        for state, count in counts.items():
            self.assertEqual(count, found['trove_ceph_guests', POOL, state])
        for outcome, count in (('claimed', 2), ('missed', 1)):
            self.assertEqual(count, found['trove_ceph_guest_requests', outcome, POOL])
        for statistic, seconds in (('mean', 15), ('max', 20)):
            self.assertEqual(seconds, found['trove_ceph_guest_bind_seconds', POOL, statistic])

    def test_only_configured_pools_have_zeros(self):
        self.guests.note_configured(['empty'])
        now = self.now
        self.now -= datetime.timedelta(minutes=30)
        self.guests.note_configured(['removed'])
        self.now = now
        self.boot('one')
        found = {key: value for key, value in self.samples().items() if 'guest' in key[0]}
        name = 'trove_ceph_guests'
        self.assertEqual({'empty', POOL}, {key[1] for key in found if key[0] == name})
        self.assertEqual(0, found[name, 'empty', 'ready'])
        self.assertEqual(0, found['trove_ceph_guest_requests', 'missed', 'empty'])
        # It has a guest, but is not configured.
        self.assertEqual(1, found[name, POOL, 'ready'])
        self.assertNotIn((name, POOL, 'bound'), found)

    def test_replacements(self):
        self.make('done', ReplacementState.COMPLETED)
        self.now -= datetime.timedelta(seconds=600)
        self.make('moving', ReplacementState.MOVING)
        self.request('auto', requested_by=RequestedBy.AUTOMATIC)
        found = self.samples()
        name = 'trove_ceph_replacements'
        self.assertEqual(1, found[name, 'failover', 'tenant', 'completed'])
        self.assertEqual(1, found[name, 'failover', 'tenant', 'moving'])
        self.assertEqual(1, found[name, 'failover', 'automatic', 'requested'])
        self.assertEqual(0, found[name, 'resize', 'operator', 'failed'])
        self.assertEqual(3, sum(value for key, value in found.items() if key[0] == name))
        name = 'trove_ceph_replacement_oldest_open_seconds'
        self.assertGreaterEqual(found[name, 'failover'], 600)
        self.assertEqual(0, found[name, 'resize'])

    def test_durations_of_recent_replacements(self):
        self.make('old', ReplacementState.COMPLETED)
        now, day = self.now, datetime.timedelta(days=1)
        self.now -= 2 * day
        self.make('older', ReplacementState.COMPLETED)
        self.now = now - 90 * SECOND
        _, claim = self.make('slow', ReplacementState.STARTING)
        self.now = now
        self.store.complete(claim)
        found = self.samples()
        name = 'trove_ceph_replacement_seconds'
        self.assertEqual(45, found[name, 'failover', 'mean'])
        self.assertEqual(90, found[name, 'failover', 'max'])
        self.assertNotIn((name, 'resize', 'mean'), found)

    def test_durations_of_the_parts_of_a_replacement(self):
        _, claim = self.make('slow', ReplacementState.STARTING)
        began = self.now
        self.store.note(
            claim,
            fenced_at=began + 20 * SECOND,
            chosen_at=began + 21 * SECOND,
            moved_at=began + 30 * SECOND,
        )
        self.now += 70 * SECOND
        self.store.complete(claim)
        found = self.samples()
        for step, seconds in (('fence', 20), ('choose', 1), ('bind', 9), ('start', 40)):
            name = 'trove_ceph_replacement_step_seconds'
            self.assertEqual(seconds, found[name, 'failover', 'max', step])

    def test_failovers_by_cause(self):
        self.request('a', cause=FailoverCause.HOST_DOWN)
        self.make('b', ReplacementState.COMPLETED, cause=FailoverCause.MAINTENANCE)
        self.request('of-an-earlier-release')
        found = self.samples()
        name = 'trove_ceph_failovers'
        self.assertEqual(1, found[name, 'host-down', 'requested'])
        self.assertEqual(1, found[name, 'maintenance', 'completed'])
        self.assertEqual(0, found[name, 'server-hung', 'requested'])
        self.assertEqual(2, sum(value for key, value in found.items() if key[0] == name))

    def test_no_label_is_an_id(self):
        self.guests.note_configured([POOL])
        self.boot('one')
        self.make('r', ReplacementState.MOVING)
        labels = {
            name
            for family in parser.text_string_to_metric_families(self.run_command().out)
            for sample in family.samples
            for name in sample.labels
        }
        own = {'pool', 'state', 'outcome', 'kind', 'requested_by', 'cause', 'source'}
        self.assertEqual(own | {'backup', 'hours', 'job', 'policy'}, labels)

    def test_replicas(self):
        store = replicas.ReplicaStore(transactions.Transactions(self.facade, lambda: self.now))
        now, hour = self.now, datetime.timedelta(hours=1)
        for name, age in (('one', 3), ('two', 1), ('three', 1)):
            self.trove.add(name)
            store.register(name, 'p', 's', f'v-{name}', now - age * hour)
        store.observe(store.find('one'), Observation(True, 1.5, 7, own_bytes=2**20))
        store.observe(store.find('two'), Observation(False, None, 90, own_bytes=2**20))
        store.request('one', Requester.POLICY, 'why', Cause.AGE)
        claim = store.claim('one', Claimant('x'))
        for event in (Event.CLONE, Event.EXCHANGE, Event.EXCHANGED):
            store.advance(claim, event)
        store.complete(claim)
        store.request('three', Requester.TENANT, 'why')
        store.fail(store.claim('three', Claimant('x')), 'no space')
        self.now = now - 2 * hour
        store.request('three', Requester.TENANT, 'why')
        # That a replica failed long ago, such as for want of quota, says nothing of it now.
        self.trove.add('four')
        self.now = now - datetime.timedelta(days=2)
        store.register('four', 'p', 's', 'v-four', now - hour)
        store.request('four', Requester.TENANT, 'why')
        store.fail(store.claim('four', Claimant('x')), 'the quota is used up')
        self.now = now
        found = self.samples()
        name = 'trove_ceph_replica'
        for key, value in (
            ((f'{name}s', 'following'), 3),
            ((f'{name}s', 'requested'), 1),
            ((f'{name}s', 'returning'), 0),
            ((f'{name}s_not_replicating',), 1),
            # That of a replica that does not replicate is not known, and not 0.
            ((f'{name}_lag_seconds', 'mean'), 1.5),
            ((f'{name}_lag_seconds', 'max'), 1.5),
            (('trove_ceph_semi_sync_inactive',), 0),
            ((f'{name}_lag_transactions', 'mean'), 48.5),
            ((f'{name}_lag_transactions', 'max'), 90),
            ((f'{name}_own_bytes',), 2**21),
            ((f'{name}_reprovisionings', 'age'), 1),
            ((f'{name}_reprovisionings', 'request'), 0),
            ((f'{name}_reprovisionings_failed',), 1),
        ):
            self.assertEqual(value, found[key], key)
        age_sec = found[(f'{name}_reprovisioning_oldest_open_seconds',)]
        self.assertGreaterEqual(age_sec, 2 * 3600)
        self.assertLess(age_sec, 4 * 3600)
        # The command reads the clock of the database.
        age_sec = found[f'{name}_clone_age_seconds', 'max']
        self.assertGreaterEqual(age_sec, 3 * 3600)
        self.assertLess(age_sec, 5 * 3600)

    def test_sources_whose_commits_do_not_wait(self):
        database = transactions.Transactions(self.facade, lambda: self.now)
        store, policies = replicas.ReplicaStore(database), ReplicationPolicyStore(database)
        for source_id, looks in (
            ('waits', (True, True)),
            ('degraded', (False, False)),
            ('silent', (None,)),
            ('without-policy', (False,)),
        ):
            if source_id != 'without-policy':
                policies.set(source_id, semi_sync=True)
            for number, is_active in enumerate(looks):
                name = f'{source_id}-{number}'
                store.register(name, 'p', source_id, f'v-{name}', None)
                store.observe(store.find(name), Observation(True, semi_sync_active=is_active))
        # Left from when it was a source.
        policies.set('waits-0', semi_sync=True)
        self.assertEqual(1, self.samples()[('trove_ceph_semi_sync_inactive',)])
        policies.set('without-replicas', semi_sync=True)
        self.assertEqual(2, self.samples()[('trove_ceph_semi_sync_inactive',)])

    def test_without_replicas(self):
        found = self.samples()
        self.assertEqual(0, found['trove_ceph_replicas', 'following'])
        self.assertEqual([], [one for one in found if '_lag_' in one[0]])

    def test_writes_a_file(self):
        path = self.useFixture(fixtures.TempDir()).join('trove-ceph.prom')
        self.assertEqual('', self.run_command('--output', path).out)
        with open(path) as written:
            self.assertEqual(self._names(self.run_command().out), self._names(written.read()))
        missing = f'{path}/x.prom'
        self.assertIn('cannot be written', self.run_command('--output', missing, status=3).err)

    def _names(self, text):
        """Return the series of a text, without their values."""
        return [line.rpartition(' ')[0] for line in text.splitlines() if line[0] != '#']

    def test_tells_that_and_when_the_figures_were_read(self):
        before = time.time()
        found = self.samples()
        self.assertEqual(1, found['trove_ceph_figures_up', 'tables'])
        read_at = found['trove_ceph_figures_read_timestamp_seconds', 'tables']
        self.assertTrue(before <= read_at <= time.time(), read_at)

    def test_a_failure_leaves_no_old_figures(self):
        """The node exporter serves a file for ever, and alerts on old figures stay silent."""
        path = self.useFixture(fixtures.TempDir()).join('trove-ceph.prom')
        self.run_command('--output', path)
        self.write('sqlite:////nowhere/at/all.sqlite')
        result = self.run_command('--output', path, status=3)
        self.assertIn('database failed', result.err)
        with open(path) as written:
            lines = [line for line in written.read().splitlines() if line[0] != '#']
        self.assertEqual(['trove_ceph_figures_up{source="tables"} 0.0'], lines)

    def test_database_that_does_not_answer(self):
        self.write('sqlite:////nowhere/at/all.sqlite')
        self.assertIn('database failed', self.run_command(status=3).err)
