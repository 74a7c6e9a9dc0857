# SPDX-License-Identifier: Apache-2.0
import datetime
import json
import types

import fixtures

from trove_ceph import exceptions
from trove_ceph.db import transactions
from trove_ceph.db.replica_record import Observation, ReplicaState, Requester
from trove_ceph.db.replica_states import Event
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.db import replacement_helpers, replica_helpers


class ReplicasTest(replica_helpers.ReplicaStoreTestCase):
    def setUp(self):
        super().setUp()
        self.config = self.useFixture(fixtures.TempDir()).join('trove.conf')
        self.write(self.facade.writer.get_engine().url)

    def transactions(self):
        # The command reads the clock of the database.
        return transactions.Transactions(self.facade)

    def write(self, url):
        with open(self.config, 'w') as config:
            config.write(f'[database]\nconnection = {url}\n')

    def add(self, instance_id, source_id='source', project_id='p', **observed):
        self.trove.add(instance_id)
        cloned_at = self.store.now() - datetime.timedelta(hours=5)
        self.store.register(instance_id, project_id, source_id, f'volume-{instance_id}', cloned_at)
        if observed:
            self.store.observe(self.store.find(instance_id), Observation(**observed))

    def run_command(self, *words, status=0):
        result = command.run('replicas', *words, '--config-file', self.config)
        self.assertEqual(status, result.status, result)
        return result

    def json_of(self, *words):
        return json.loads(self.run_command(*words, '-f', 'json').out)

    def ids(self, *words):
        return [one['instance_id'] for one in self.json_of('list', *words)]

    def test_list(self):
        self.assertEqual([], self.json_of('list'))
        self.add('good', is_replicating=True, lag_sec=2.5, own_bytes=4096)
        self.add('bad', 'other', 'q', is_replicating=False, replication_error='error 1236')
        self.add('new')
        self.store.request('new', Requester.TENANT, 'slow')
        self.assertEqual({'good', 'bad', 'new'}, set(self.ids()))
        self.assertEqual(['bad'], self.ids('--broken'))
        self.assertEqual(['new'], self.ids('--reprovisioning'))
        self.assertEqual([], self.ids('--reprovisioning', '--broken'))
        self.assertEqual(['bad'], self.ids('--source', 'other'))
        self.assertEqual(['bad'], self.ids('--project', 'q'))
        (found,) = [one for one in self.json_of('list') if one['instance_id'] == 'good']
        self.assertEqual(
            (2.5, 4096, True),
            tuple(found[one] for one in ('lag_sec', 'own_bytes', 'is_replicating')),
        )

    def test_lists_what_an_operator_has_to_repair(self):
        self.add('good', is_replicating=True)
        self.add('stuck')
        self.store.request('stuck', Requester.TENANT, 'slow')
        claim = self.store.claim('stuck', replica_helpers.CLAIMANT)
        for event in (Event.CLONE, Event.EXCHANGE):
            self.store.advance(claim, event)
        self.store.advance(claim, Event.BLOCK, error='server s is PAUSED; unpause it')
        (found,) = self.json_of('list', '--blocked')
        self.assertEqual(
            ('stuck', 'blocked', 'server s is PAUSED; unpause it'),
            tuple(found[name] for name in ('instance_id', 'state', 'error')),
        )
        self.assertIn('unpause it', self.run_command('list').out)
        self.assertEqual('blocked', self.json_of('show', 'stuck')['state'])

    def test_list_says_how_old_the_data_are(self):
        self.add('seen', is_replicating=True)
        self.add('unseen')
        ages = {
            one['instance_id']: (one['observed_age_sec'], one['clone_age_sec'])
            for one in self.json_of('list')
        }
        self.assertIsNone(ages['unseen'][0])
        self.assertGreaterEqual(ages['seen'][0], 0)
        self.assertGreaterEqual(ages['seen'][1], 5 * 3600)
        table = self.run_command('list').out
        self.assertIn('observed_age_sec', table)
        self.assertIn('5 h', table)
        self.assertNotIn('old_volume_id', table)

    def test_show(self):
        self.add('r', is_replicating=False, replication_error='error 1236', errant='a:1')
        found = self.json_of('show', 'r')
        self.assertEqual(
            ('following', 'volume-r', 'error 1236', 'a:1', None),
            tuple(
                found[name]
                for name in ('state', 'volume_id', 'replication_error', 'errant', 'request_id')
            ),
        )

    def test_shows_all_that_is_recorded(self):
        """The keys and tokens of claims are not in the record."""
        self.add('r')
        names = {*vars(self.store.find('r')), 'observed_age_sec', 'clone_age_sec'}
        self.assertEqual(names, set(self.json_of('show', 'r')))

    def test_reprovision(self):
        self.add('one')
        self.add('two')
        result = self.run_command('reprovision', 'one', 'two', '--reason', 'lost', '-f', 'json')
        self.assertEqual(
            [('one', 'requested', 'operator', 'lost'), ('two', 'requested', 'operator', 'lost')],
            [
                tuple(found[name] for name in ('instance_id', 'state', 'requested_by', 'reason'))
                for found in json.loads(result.out)
            ],
        )
        self.assertIn('begins within a minute', result.err)
        self.assertEqual(ReplicaState.REQUESTED, self.store.find('two').state)
        self.assertEqual(replacement_helpers.MIGRATING, self.trove.task('two'))

    def test_reprovision_goes_on_after_a_refusal(self):
        self.add('busy')
        self.trove.set('busy', task_id=replacement_helpers.RESIZING)
        self.add('good')
        words = ('reprovision', 'busy', 'none', 'good', '--reason', 'lost')
        result = self.run_command(*words, '-f', 'json', status=1)
        self.assertEqual(['good'], [one['instance_id'] for one in json.loads(result.out)])
        self.assertIn('replica busy of instance source: cannot be re-provisioned now', result.err)
        self.assertIn('instance none: is no replica', result.err)
        # A second request of the same is refused.
        self.run_command('reprovision', 'good', '--reason', 'lost', status=1)

    def cinder(self, volumes):
        """Have Cinder answer with volumes; return the ids of those that are to be flattened."""
        marked = []
        fake = types.SimpleNamespace(find_volume=volumes.get, request_flatten=marked.append)
        name = 'trove_ceph.cinder.client.Cinder.of_environment'
        self.useFixture(fixtures.MonkeyPatch(name, lambda _kind: fake))
        return marked

    def volumes(self, **types_by_id):
        self.cinder(
            {
                f'volume-{one}': types.SimpleNamespace(volume_type=volume_type)
                for one, volume_type in types_by_id.items()
            }
        )

    def test_list_by_volume_type(self):
        for instance_id in ('one', 'two', 'gone'):
            self.add(instance_id, is_replicating=instance_id != 'one')
        self.volumes(one='ephemeral', two='nvme')
        self.assertEqual(['one'], self.ids('--volume-type', 'ephemeral'))
        self.assertEqual([], self.ids('--volume-type', 'nvme', '--broken'))

    def test_reprovision_by_volume_type(self):
        """Also those that seem sound, but none that gets a fresh clone already."""
        for instance_id in ('sound', 'broken', 'other', 'busy'):
            self.add(instance_id, is_replicating=instance_id != 'broken')
        self.store.request('busy', Requester.TENANT, 'slow')
        self.volumes(sound='ephemeral', broken='ephemeral', other='nvme', busy='ephemeral')
        words = ('reprovision', '--volume-type', 'ephemeral', '--reason', 'lost')
        result = self.run_command(*words, '-f', 'json')
        self.assertEqual(
            {'sound', 'broken'}, {one['instance_id'] for one in json.loads(result.out)}
        )
        self.assertIsNone(self.store.find('other').request_id)
        self.assertEqual([], json.loads(self.run_command(*words, '-f', 'json').out))

    def test_reprovision_by_a_volume_type_that_no_replica_has(self):
        """Such as the name of a pool, while replicas with lost data stay in service."""
        self.add('one')
        self.volumes(one='ephemeral')
        words = ('reprovision', '--volume-type', 'replicas-nvme', '--reason', 'lost')
        result = self.run_command(*words, status=1)
        self.assertIn('No replica has the volume type replicas-nvme', result.err)

    def test_flatten(self):
        for instance_id in ('one', 'two'):
            self.add(instance_id, own_bytes=4096, clone_depth=2)
        marked = self.cinder({'volume-one': 'volume', 'volume-two': 'volume'})
        result = self.run_command('flatten', 'one', 'two', '-f', 'json')
        self.assertEqual(['volume-one', 'volume-two'], marked)
        self.assertEqual(
            [('one', 'volume-one', 2), ('two', 'volume-two', 2)],
            [
                tuple(found[name] for name in ('instance_id', 'volume_id', 'clone_depth'))
                for found in json.loads(result.out)
            ],
        )
        self.assertIn('begins within a minute', result.err)

    def test_flatten_goes_on_after_a_refusal(self):
        for instance_id in ('busy', 'gone', 'good'):
            self.add(instance_id)
        self.store.request('busy', Requester.TENANT, 'slow')
        marked = self.cinder({'volume-busy': 'volume', 'volume-good': 'volume'})
        result = self.run_command('flatten', 'busy', 'none', 'gone', 'good', '-f', 'json', status=1)
        self.assertEqual(['volume-good'], marked)
        self.assertEqual(['good'], [one['instance_id'] for one in json.loads(result.out)])
        self.assertIn('replica busy of instance source: is requested', result.err)
        self.assertIn('instance none: is no replica', result.err)
        self.assertIn('Cinder has no volume volume-gone', result.err)

    def test_flatten_without_a_cloud(self):
        self.add('r')

        def fail(_kind):
            raise exceptions.ServiceUnavailableError('the cloud cannot be reached')

        name = 'trove_ceph.cinder.client.Cinder.of_environment'
        self.useFixture(fixtures.MonkeyPatch(name, fail))
        self.assertIn('cannot be reached', self.run_command('flatten', 'r', status=3).err)

    def test_replicas_without_a_record(self):
        result = self.run_command('show', 'x', status=1)
        self.assertIn('instance x: is no replica', result.err)

    def test_wrong_command_lines(self):
        for words in (
            ['show'],
            ['reprovision', 'r'],
            ['reprovision', '--reason', 'x'],
            ['reprovision', 'r', '--volume-type', 'nvme', '--reason', 'x'],
            ['list', 'x'],
        ):
            self.run_command(*words, status=2)

    def test_database_that_does_not_answer(self):
        self.write('sqlite:////nowhere/at/all.sqlite')
        for words in (['list'], ['show', 'r'], ['reprovision', 'r', '--reason', 'why']):
            self.assertIn('database failed', self.run_command(*words, status=3).err)
