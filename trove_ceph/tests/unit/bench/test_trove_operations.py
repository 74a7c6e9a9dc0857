# SPDX-License-Identifier: Apache-2.0
"""Tests of the commands that wait for Trove's operations."""

import argparse
import shlex
import types
from pathlib import Path
from unittest import mock

import fixtures
import troveclient.exceptions
from oslotest import base

from trove_ceph import exceptions
from trove_ceph_bench import arguments, plan_file, trove_operations

SOURCE = {
    'id': 'i-1',
    'name': 'shop',
    'status': 'ACTIVE',
    'operating_status': 'HEALTHY',
    'flavor': {'id': 'small'},
    'volume': {'size': 2, 'type': 'nvme'},
    'datastore': {'type': 'mysql', 'version': '9.7.4'},
    'addresses': [
        {'address': '192.0.2.1', 'type': 'private', 'network': 'net-1'},
        {'address': '198.51.100.1', 'type': 'public'},
    ],
}


class Manager:
    """Fake manager of one kind of Trove's resources, whose states follow a script."""

    def __init__(self, *found, new_resource=None, states=()):
        self.found = [types.SimpleNamespace(**one) for one in found]
        self.new_resource = new_resource
        self.states = list(states)
        self.created = []
        self.deleted = []
        self.restarted = []
        self.resized = []

    def list(self):
        self._advance()
        return list(self.found)

    def get(self, identity):
        self._advance()
        return next(one for one in self.found if one.id == identity)

    def create(self, *arguments, **parameters):
        self.created.append((arguments, parameters))
        new_resource = types.SimpleNamespace(**self.new_resource)
        self.found.append(new_resource)
        return new_resource

    def delete(self, identity):
        self.deleted.append(identity)
        self.states = [{'status': 'DELETING'}, None]

    def restart(self, identity):
        self.restarted.append(identity)

    def resize_instance(self, identity, flavor_id):
        self.resized.append((identity, flavor_id))

    def _advance(self):
        """Give the newest resource its next state; None removes it."""
        if not self.states:
            return
        state = self.states.pop(0)
        if state is None:
            self.found.pop()
        else:
            vars(self.found[-1]).update(state)


class OperationsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.clock = 0.0
        self.replace_clock()

    def replace_clock(self):
        def sleep(seconds):
            self.clock += seconds

        for name, replacement in (('sleep', sleep), ('monotonic', lambda: self.clock)):
            patch = mock.patch(f'trove_ceph_bench.trove_operations.time.{name}', replacement)
            patch.start()
            self.addCleanup(patch.stop)

    def operations(self, instances=None, backups=None, timeout_sec=60, **more):
        self.phases = []
        trove = types.SimpleNamespace(
            instances=instances or Manager(SOURCE),
            backups=backups or Manager(),
            client=mock.Mock(get=mock.Mock(side_effect=troveclient.exceptions.NotFound)),
        )
        return trove_operations.Operations(trove, self.phases.append, timeout_sec, **more)

    def test_backup_returns_when_completed(self):
        backups = Manager(
            new_resource={'id': 'b-1', 'name': 'x', 'status': 'NEW'},
            states=[{}, {'status': 'BUILDING'}, {'status': 'COMPLETED'}],
        )
        self.assertEqual('b-1', self.operations(backups=backups).backup('shop', 'x'))
        self.assertEqual([(('x', 'i-1'), {'parent_id': None})], backups.created)
        self.assertEqual(['request', 'completed'], self.phases)
        self.assertEqual(2 * trove_operations.POLL_SEC, self.clock)

    def test_backup_reports_the_phases_that_the_cloud_recorded(self):
        reported = []
        for details in (
            {'snapshot_sec': 0.5, 'take_sec': 4.5, 'quiesced_sec': 0.25},
            dict.fromkeys(('snapshot_sec', 'take_sec', 'quiesced_sec')),
        ):
            backups = Manager(new_resource={'id': 'b-1', 'name': 'x', 'status': 'COMPLETED'})
            operations = self.operations(backups=backups, took=lambda *each: reported.append(each))
            operations._trove.client.get = mock.Mock(
                return_value=(None, {'backup_detail': details})
            )
            operations.backup('shop', 'x')
            operations._trove.client.get.assert_called_once_with('/backup_details/b-1')
        self.assertEqual([('snapshot', 0.5), ('taking', 4.5), ('quiesced', 0.25)], reported)

    def choose(self, method, **more):
        """Choose a backup method, and return the backups that were deleted."""
        chosen = []
        backups = Manager(
            {'id': 'b-0', 'name': 'bench-first', 'status': 'COMPLETED', 'instance_id': 'i-1'},
            new_resource={
                'id': 'b-1',
                'name': more.get('keep', 'bench-first'),
                'status': 'COMPLETED',
            },
        )
        operations = self.operations(Manager(SOURCE), backups, choose=chosen.append)
        operations.choose_backups('shop', method, **more)
        self.assertEqual([method], chosen)
        return backups.deleted

    def test_choosing_a_method_creates_a_first_backup(self):
        self.assertEqual(['b-0', 'b-1'], self.choose('ddl'))

    def test_first_backup_can_be_kept(self):
        self.assertEqual([], self.choose('none', keep='bench-backup'))

    def test_failed_backup_is_an_error(self):
        backups = Manager(
            new_resource={'id': 'b-1', 'name': 'x', 'status': 'NEW'}, states=[{'status': 'FAILED'}]
        )
        error = self.assertRaises(
            exceptions.LoadFailedError, self.operations(backups=backups).backup, 'i-1', 'x'
        )
        self.assertIn('b-1 is FAILED', str(error))
        self.assertEqual(['request'], self.phases)

    def test_wait_is_bounded(self):
        backups = Manager(new_resource={'id': 'b-1', 'name': 'x', 'status': 'BUILDING'})
        error = self.assertRaises(
            exceptions.LoadFailedError, self.operations(backups=backups).backup, 'shop', 'x'
        )
        self.assertIn('still BUILDING after 60 s', str(error))

    def test_restore_is_like_the_source(self):
        instances = Manager(
            SOURCE, new_resource=SOURCE | {'id': 'i-2', 'name': 'copy', 'status': 'BUILD'}
        )
        instances.states = [{}, {'operating_status': ''}, {'operating_status': 'HEALTHY'}]
        instances.new_resource['status'] = 'ACTIVE'
        backups = Manager({'id': 'b-1', 'name': 'x', 'instance_id': 'i-1', 'status': 'COMPLETED'})
        restored = self.operations(instances, backups).restore('x', 'copy')
        self.assertEqual('i-2', restored)
        (arguments, parameters) = instances.created[0]
        self.assertEqual(('copy',), arguments)
        self.assertEqual({'backupRef': 'b-1'}, parameters['restorePoint'])
        self.assertEqual({'size': 2, 'type': 'nvme'}, parameters['volume'])
        self.assertEqual([{'net-id': 'net-1'}], parameters['nics'])
        self.assertEqual(['request', 'healthy'], self.phases)

    def test_creation_is_like_an_instance_with_a_configuration_group(self):
        source = Manager(SOURCE | {'configuration': {'id': 'c-1', 'name': 'tuned'}}).get('i-1')
        self.assertEqual('c-1', trove_operations.parameters_like(source)['configuration'])
        self.assertNotIn(
            'configuration', trove_operations.parameters_like(Manager(SOURCE).get('i-1'))
        )

    def test_replica_is_created_from_its_source(self):
        instances = Manager(SOURCE, new_resource=SOURCE | {'id': 'i-2', 'name': 'r'})
        self.operations(instances).replica('shop', 'r')
        expected = (('r',), {'nics': [{'net-id': 'net-1'}], 'replica_of': 'i-1'})
        self.assertEqual([expected], instances.created)

    def test_reports_the_fault_of_a_failed_instance(self):
        failed = SOURCE | {'id': 'i-2', 'name': 'r', 'status': 'ERROR'}
        instances = Manager(SOURCE, new_resource=failed | {'fault': {'message': 'no host'}})
        error = self.assertRaises(
            exceptions.LoadFailedError, self.operations(instances).replica, 'shop', 'r'
        )
        self.assertIn('no host', str(error))

    def test_vanished_instance_is_an_error(self):
        instances = Manager(
            SOURCE, new_resource=SOURCE | {'id': 'i-2', 'name': 'r'}, states=[{}, None]
        )
        error = self.assertRaises(
            exceptions.LoadFailedError, self.operations(instances).replica, 'shop', 'r'
        )
        self.assertIn('i-2 is gone', str(error))

    def test_restart_waits_until_healthy(self):
        restarting = SOURCE | {'status': 'REBOOT'}
        instances = Manager(SOURCE, states=[{}, restarting, SOURCE])
        self.operations(instances).restart('shop')
        self.assertEqual(['i-1'], instances.restarted)
        self.assertEqual([], instances.states)

    def test_resize_waits_until_healthy(self):
        resizing = SOURCE | {'status': 'RESIZE'}
        resized = SOURCE | {'flavor': {'id': 'large'}}
        operations, instances = self.resizable({}, resizing, resized)
        operations.resize('shop', 'db.large')
        self.assertEqual([('i-1', 'large')], instances.resized)
        self.assertEqual([], instances.states)
        self.assertEqual(['request', 'healthy'], self.phases)
        operations.resize('shop', 'db.large')
        self.assertEqual([('i-1', 'large')], instances.resized)

    def test_a_reverted_resize_fails(self):
        operations, _ = self.resizable({}, SOURCE | {'status': 'RESIZE'}, SOURCE)
        error = self.assertRaises(exceptions.LoadFailedError, operations.resize, 'shop', 'db.large')
        self.assertIn('has not got the flavor db.large', str(error))

    def resizable(self, *states):
        """Return operations on an instance that takes these states, and its manager."""
        instances = Manager(SOURCE, states=states)
        operations = self.operations(instances)
        operations._trove.flavors = Manager(
            {'id': 'small', 'name': 'db.small'}, {'id': 'large', 'name': 'db.large'}
        )
        return operations, instances

    def test_waits_until_healthy(self):
        building = SOURCE | {'status': 'BUILD', 'operating_status': ''}
        instances = Manager(SOURCE, states=[building, building, SOURCE])
        self.operations(instances).await_healthy('shop')
        self.assertEqual([], instances.states)
        self.assertEqual(trove_operations.POLL_SEC, self.clock)

    def details(self, verb, *states):
        """Let the API return these details, one after the other."""
        operations = self.operations(backups=Manager({'id': 'b-1', 'name': 'x'}))
        left = list(states)
        client = mock.Mock()
        client.get.side_effect = lambda path: (
            None,
            {'backup_detail': left.pop(0) if len(left) > 1 else left[0]},
        )
        operations._trove.client = client
        operations._took = lambda *arguments: self.reported.append(arguments)
        operations._record = operations._took
        self.reported = []
        getattr(operations, verb)('x')
        client.get.assert_called_with('/backup_details/b-1')
        client.post.assert_called_once_with(f'/backup_details/b-1/{verb}', body={})
        self.assertEqual(['request', 'done'], self.phases)

    def test_copy_reports_the_bytes_moved(self):
        requested = {'copy_wanted_at': 'T', 'copy_error': None, 'copied_at': None}
        done = {'copy_wanted_at': None, 'copied_at': 'T', 'copy_sec': 2.5, 'moved_bytes': 4096}
        self.details('copy', requested, requested, requested | done)
        self.assertEqual([('copying', 2.5), ('moved_bytes', 4096)], self.reported)
        self.assertEqual(2 * trove_operations.POLL_SEC, self.clock)

    def test_copy_timeout_reports_its_error(self):
        requested = {'copy_wanted_at': 'T', 'copy_error': 'the vault is full', 'copied_at': None}
        error = self.assertRaises(exceptions.LoadFailedError, self.details, 'copy', requested)
        self.assertIn('still the vault is full after 60 s', str(error))

    def test_verification(self):
        requested = {'verify_wanted_at': 'T', 'verify_error': None, 'state': 'taken'}
        verified = requested | {'verify_wanted_at': None, 'state': 'verified', 'verify_sec': 9.0}
        self.details('verify', requested, verified)
        self.assertEqual([('verifying', 9.0)], self.reported)
        bad = verified | {'state': 'damaged', 'verify_error': 'table a.b: corrupt'}
        error = self.assertRaises(exceptions.LoadFailedError, self.details, 'verify', bad)
        self.assertIn('x is damaged: table a.b: corrupt', str(error))

    def test_delete_waits_until_gone(self):
        instances = Manager(SOURCE)
        self.operations(instances).delete_instance('shop')
        self.assertEqual(['i-1'], instances.deleted)
        self.assertEqual([], instances.found)

    def test_delete_of_a_missing_backup_succeeds(self):
        backups = Manager()
        self.operations(backups=backups).delete_backup('x')
        self.assertEqual([], backups.deleted)

    def test_unknown_and_ambiguous_names(self):
        for found, message in (
            ((), 'lists none of this name'),
            ((SOURCE, SOURCE | {'id': 'i-2'}), 'lists 2 of this name; use an id'),
        ):
            error = self.assertRaises(
                exceptions.TargetUnavailableError,
                self.operations(Manager(*found)).replica,
                'shop',
                'r',
            )
            self.assertIn(message, str(error))

    def test_each_client_lists_the_databases_twice(self):
        operations = self.operations()
        databases = mock.Mock()
        operations._trove.databases = databases
        operations.list_databases('shop', at_once=3)
        self.assertEqual([mock.call('i-1')] * 6, databases.list.call_args_list)


class CommandTest(base.BaseTestCase):
    def call(self, *words):
        parser = argparse.ArgumentParser()
        trove_operations.add_arguments(parser)
        trove_operations.main(parser.parse_args(words))

    def setUp(self):
        super().setUp()
        details = mock.Mock(get=mock.Mock(side_effect=troveclient.exceptions.NotFound))
        self.trove = types.SimpleNamespace(
            instances=Manager(SOURCE), backups=Manager(), client=details
        )
        patch = mock.patch(
            'trove_ceph_bench.targets.cloud.clients', return_value=(None, self.trove)
        )
        patch.start()
        self.addCleanup(patch.stop)

    def test_phases_are_printed(self):
        self.trove.backups.new_resource = {'id': 'b-1', 'name': 'x', 'status': 'COMPLETED'}
        output = self.useFixture(fixtures.StringStream('stdout')).stream
        with mock.patch('sys.stdout', output):
            self.call('backup', 'shop', 'x')
        output.seek(0)
        self.assertEqual('phase request\nphase completed\n', output.read())

    def test_runs_the_command_that_chooses_the_method(self):
        self.trove.backups.new_resource = {'id': 'b-1', 'name': 'first', 'status': 'COMPLETED'}
        chosen = Path(self.useFixture(fixtures.TempDir()).path) / 'chosen'
        words = ('choose-backups', 'shop', 'ddl', '--keep', 'first')
        for command, message in (
            ('', 'BENCH_BACKUPS is not set'),
            ("sh -c 'exit 3'", 'ddl: exit status 3'),
        ):
            self.useFixture(fixtures.EnvironmentVariable('BENCH_BACKUPS', command))
            error = self.assertRaises(exceptions.LoadFailedError, self.call, *words)
            self.assertIn(message, str(error))
        self.assertEqual([], self.trove.backups.created)
        command = f"sh -c 'echo $0 > {chosen}'"
        self.useFixture(fixtures.EnvironmentVariable('BENCH_BACKUPS', command))
        self.call(*words)
        self.assertEqual('ddl\n', chosen.read_text())
        self.assertEqual(1, len(self.trove.backups.created))

    def test_delete_by_the_command_line(self):
        self.call('delete-instance', 'shop')
        self.assertEqual(['i-1'], self.trove.instances.deleted)

    def test_reports_a_refusal_of_the_cloud(self):
        self.trove.instances.delete = mock.Mock(
            side_effect=troveclient.exceptions.Forbidden('not yours')
        )
        error = self.assertRaises(exceptions.LoadFailedError, self.call, 'delete-instance', 'shop')
        self.assertIn('refused delete-instance: not yours', str(error))


class PlansTest(base.BaseTestCase):
    def test_plans_choose_backup_methods_with_valid_commands(self):
        chosen = {}
        of_ours = (
            'backup-stall',
            'backup-time',
            'backup-increment',
            'backup-tps',
            'backup-latency',
        )
        for name in (*of_ours, 'stock-baseline', 'stock-lock'):
            loaded = plan_file.load(name, {'BENCH_INSTANCE_IMAGE': 'pool/volume-1'})
            for each in getattr(loaded, 'contenders', [loaded]):
                for line in (each.prepare or '').splitlines():
                    if 'choose-backups' in line:
                        parsed = arguments.parse(shlex.split(line)[1:])
                        chosen.setdefault(name, set()).add((parsed.method, parsed.keep))
        self.assertEqual(
            {
                'backup-stall': {('$BENCH_VARIANT', None)},
                'backup-time': {('$who', None), ('$who', 'bench-backup'), ('none', 'bench-backup')},
                'backup-increment': {('none', 'bench-first')},
                'backup-latency': {('$who', None)},
                'backup-tps': {('${BENCH_QUIESCE:-none}', None)},
                'stock-baseline': {('stock', None), ('stock', 'bench-backup')},
                'stock-lock': {('stock', None)},
            },
            chosen,
        )
