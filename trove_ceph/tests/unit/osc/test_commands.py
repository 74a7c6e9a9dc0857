# SPDX-License-Identifier: Apache-2.0
"""The commands, through python-troveclient and Trove's real API."""

import datetime
import subprocess
import sys
from importlib import metadata

from osc_lib import exceptions
from oslotest import base

from trove_ceph.db.policy_record import Retention
from trove_ceph.db.roles import Role
from trove_ceph.osc import client, columns, policies
from trove_ceph.tests.unit.api import world
from trove_ceph.tests.unit.osc import harness

WITHOUT_TROVE = """
import sys
for name in ('trove', 'sqlalchemy', 'oslo_config', 'oslo_db', 'oslo_messaging', 'jsonschema'):
    sys.modules[name] = None
import trove_ceph.osc.backups, trove_ceph.osc.failovers, trove_ceph.osc.policies
import trove_ceph.osc.replicas, trove_ceph.osc.replication_policies
print(*(name for name in sys.modules if name.startswith('trove_ceph.')))
"""


class CommandsTest(harness.CommandTestCase):
    prefix = 'database backup'

    def test_lists_and_shows_details(self):
        backup = self.world.add_backup(self.instance, 'taken')
        (row,) = self.shown('detail list')
        self.assertEqual((backup.id, 'taken'), (row['ID'], row['State']))
        self.assertEqual([], self.shown('detail list --state verified'))
        shown = self.shown(f'detail show {backup.id}')
        self.assertEqual((1.5, None), (shown['take_sec'], shown['used_bytes']))
        status, table = self.run_command(f'detail show {backup.id}')
        self.assertEqual(0, status)
        self.assertRegex(table, r'take_sec +\| 1.5 s')
        (row,) = self.shown(f'detail list --long --instance {self.instance.id}')
        self.assertEqual(self.world.project, row['Project ID'])

    def test_lists_several_pages(self):
        for _ in range(25):
            self.world.add_backup(self.instance)
        self.assertEqual(25, len(self.shown('detail list')))
        self.assertEqual(22, len(self.shown('detail list --limit 22')))

    def test_finds_names_on_all_pages(self):
        backup = self.world.add_backup(self.instance, 'taken', name='first')
        for _ in range(25):
            self.world.add_backup(self.instance)
        self.assertEqual(backup.id, self.shown('detail show first')['id'])
        for name, problem in (
            ('nightly', '25 backups are named nightly; use an id: '),
            ('none', 'no backup is named none'),
        ):
            status, output = self.run_command(f'detail show {name}')
            self.assertEqual(1, status)
            self.assertIn(problem, output)

    def test_refuses_ambiguous_names_of_instances(self):
        other = self.world.add_instance()
        self.name('shop', self.instance, other)
        status, output = self.run_command('detail list --instance shop')
        ids = f'{self.instance.id}, {other.id}'
        self.assertEqual(1, status)
        self.assertIn(f'2 instances are named shop; use an id: {ids}', output)

    def test_requests_a_copy_and_a_verification(self):
        backup = self.world.add_backup(self.instance, 'taken')
        for verb, key in (('copy', 'copy_wanted_at'), ('verify', 'verify_wanted_at')):
            self.assertIsNotNone(self.shown(f'{verb} {backup.id}')[key])

    def test_prints_errors(self):
        backup = self.world.add_backup(self.instance, 'taking')
        status, output = self.run_command(f'copy {backup.id}')
        self.assertEqual(1, status)
        self.assertIn('it is taking', output)
        status, output = self.run_command(
            f'policy create p --instance {self.instance.id} --every 1h'
        )
        self.assertEqual(1, status)
        self.assertIn('keep: no backup would be kept', output)

    def test_takes_a_backup(self):
        shown = self.shown(
            f'take before --instance {self.instance.id} --quiesce ddl --with-verification'
        )
        ((_method, context, _arguments),) = self.world.casts
        options = context.notification.payload['trove_ceph']
        self.assertEqual({'quiesce': 'ddl', 'copy': False, 'verify': True}, options)
        self.assertEqual('NEW', shown['status'])

    def test_manages_policies(self):
        created = self.shown(
            f'policy create hourly --instance {self.instance.id} --every 6h --at 02:30 '
            '--timezone Europe/Berlin --keep-last 4 --keep-monthly 12 --copy-every 1'
        )
        found = self.world.policies.find(created['id'])
        self.assertEqual(
            (360, '02:30', Retention(last=4, monthly=12), 1),
            (found.interval_min, found.at, found.keep, found.copy_every),
        )
        status, table = self.run_command('policy list')
        self.assertEqual(0, status)
        self.assertIn('last=4, monthly=12', table)
        self.assertRegex(table, r'\| 6h +\| 02:30')
        self.shown('policy set hourly --no-at --keep-last 2 --disable --name other')
        found = self.world.policies.find(created['id'])
        self.assertEqual(
            ('other', None, 2, 12, False),
            (found.name, found.at, found.keep.last, found.keep.monthly, found.enabled),
        )
        self.shown('policy set other --enable')
        self.world.policies.begin(
            found, self.instance.id, found.created_at, 'hourly-1', None, world.WORKER
        )
        status, table = self.run_command(f'policy list --instance {self.instance.id}')
        self.assertEqual(0, status)
        self.assertIn('begun, was due', table)
        self.assertIsNotNone(self.shown('policy run other')['run_wanted_at'])
        (run,) = self.shown('policy show other')['runs']
        self.assertEqual('begun', run['state'])
        self.assertEqual((0, ''), self.run_command('policy delete other'))
        self.assertEqual([], self.shown('policy list'))

    def test_manages_policies_of_operators(self):
        target = f'tier-{self.world.project}'
        self.shown(f'policy create p --tier {target} --every 1d --keep-daily 7', role='admin')
        status, output = self.run_command(f'policy create p --tier {target} --every 1d')
        self.assertEqual(1, status)
        self.assertIn('backup_policy:operate', output)
        status, _output = self.run_command('policy create p --every 1d', role='admin')
        self.assertEqual(2, status)
        self.shown('policy create p --datastore mysql --every 1d --keep-last 7', role='admin')
        # With two policies of one name, neither is chosen.
        status, output = self.run_command('policy show p', role='admin')
        self.assertEqual(1, status)
        self.assertIn('2 backup policies are named p', output)

    def test_deletes_the_others_if_one_deletion_fails(self):
        self.shown(f'policy create p --instance {self.instance.id} --every 1h --keep-last 1')
        status, output = self.run_command('policy delete gone p')
        self.assertEqual(1, status)
        self.assertIn('gone: no backup policy is named gone', output)
        self.assertEqual([], self.world.policies.all())

    def test_refuses_a_change_without_settings(self):
        status, output = self.run_command('policy set p')
        self.assertEqual(1, status)
        self.assertIn('nothing to change', output)

    def test_help(self):
        for point in harness.entry_points():
            if point.group == harness.GROUP:
                parser = point.load()(harness.App(self.database()), None).get_parser('openstack x')
                text = parser.format_help()
                self.assertGreater(len(parser.description), 40, point.name)
                self.assertNotIn('\\b', text)
                for action in parser._actions:
                    self.assertTrue(action.help, (point.name, action.dest))


class WaitingTest(harness.WaitingTestCase):
    """Commands that wait, and what workers do meanwhile."""

    def setUp(self):
        super().setUp()
        self.backup = self.world.add_backup(self.instance, 'taken')
        self.api = client.Api(self.connection)

    def failure(self, wait, timeout_sec=60):
        error = self.assertRaises(exceptions.CommandError, wait, self.backup.id, timeout_sec)
        return str(error)

    def test_waits_for_a_copy(self):
        records = self.world.records
        self.api.copy(self.backup.id)

        def finish():
            claim = records.claims.claim(Role.COPY, self.backup.id, world.WORKER)
            records.results.record_copied(claim, 4096, 1.0)

        self.later = [lambda: None, finish]
        shown = self.api.wait_until_copied(self.backup.id, 60)
        self.assertEqual(('copied', 4096), (shown['state'], shown['moved_bytes']))
        # There is no wait for an existing copy.
        self.assertEqual(10, self.now)
        self.api.copy(self.backup.id)
        self.api.wait_until_copied(self.backup.id, 0)

    def test_fails_if_no_copy_is_requested(self):
        self.assertIn('was not copied', self.failure(self.api.wait_until_copied))

    def test_does_not_wait_for_a_retry(self):
        """The command fails with the time of the next attempt, which may be hours away."""
        records = self.world.records
        self.api.copy(self.backup.id)
        self.api.verify(self.backup.id)

        def fail():
            claim = records.claims.claim(Role.COPY, self.backup.id, world.WORKER)
            records.queue.record_failure(claim, 'no room', 'no copy')
            records.claims.release(claim)

        self.later = [fail]
        self.assertRegex(
            self.failure(self.api.wait_until_copied),
            'could not be copied; the next attempt is at .*: no room$',
        )
        self.assertEqual(5, self.now)
        self.assertIn('no copy', self.failure(self.api.wait_until_verified))
        # Another request does not bring the next attempt forward.
        self.api.copy(self.backup.id)
        self.assertIn('the next attempt is at', self.failure(self.api.wait_until_copied))

    def test_waits_for_a_retry_that_is_under_way(self):
        """The error and the time are those of the attempt before."""
        records = self.world.records
        for verb, role, wait in (
            ('copy', Role.COPY, self.api.wait_until_copied),
            ('verify', Role.VERIFY, self.api.wait_until_verified),
        ):
            backup = self.world.add_backup(self.instance, 'taken')
            getattr(self.api, verb)(backup.id)
            claim = records.claims.claim(role, backup.id, world.WORKER)
            records.queue.record_failure(claim, 'no room')
            records._update(backup.id, **{f'{verb}_retry_at': datetime.datetime(2026, 1, 1)})
            self.assertIsNone(self.api.show_detail(backup.id)[f'{verb}_retry_at'])

            def end(claim=claim, role=role):
                if role is Role.COPY:
                    records.results.record_copied(claim, 4096, 1.0)
                else:
                    records.results.record_verified(claim, 'uuid:1-7', {}, 1.0)

            self.later = [end]
            self.assertEqual(backup.id, wait(backup.id, 60)['id'])

    def test_waits_for_one_whatever_is_the_retry_of_the_other(self):
        records = self.world.records
        self.api.copy(self.backup.id)
        self.api.verify(self.backup.id)
        claim = records.claims.claim(Role.VERIFY, self.backup.id, world.WORKER)
        records.queue.record_failure(claim, 'no host')
        records.claims.release(claim)
        records._update(self.backup.id, copy_error='no room')
        self.assertIn('is still taken', self.failure(self.api.wait_until_copied))

    def test_fails_after_the_timeout(self):
        self.api.copy(self.backup.id)
        failure = self.failure(self.api.wait_until_copied)
        self.assertIn('is still taken after 60 s', failure)
        self.assertEqual(60, self.now)

    def note(self, verb, *found):
        """Record the result of a verification."""
        claims = self.world.records.claims
        claim = claims.claim(Role.VERIFY, self.backup.id, world.WORKER)
        getattr(self.world.records.results, verb)(claim, *found)
        claims.release(claim)

    def test_waits_for_a_verification(self):
        self.api.verify(self.backup.id)
        self.later = [lambda: self.note('record_verified', 'uuid:1-2', {}, 1.0)]
        self.assertEqual('verified', self.api.wait_until_verified(self.backup.id, 60)['state'])
        for later, message in (
            (lambda: self.note('record_unfinished', {}, 1.0, 'no time'), 'no time'),
            (
                lambda: self.note('record_damaged', {}, 1.0, 'corrupt page'),
                'is damaged: corrupt page',
            ),
        ):
            self.api.verify(self.backup.id)
            self.later = [later]
            self.assertIn(message, self.failure(self.api.wait_until_verified))

    def test_fails_to_copy_a_damaged_backup(self):
        self.api.copy(self.backup.id)
        self.later = [
            lambda: self.note('record_suspected', {}, 1.0, 'corrupt page, perhaps'),
            lambda: self.note('record_damaged', {}, 1.0, 'corrupt page'),
        ]
        message = self.failure(self.api.wait_until_copied)
        self.assertIn('is damaged and cannot be copied: corrupt page', message)
        self.assertEqual([], self.later)

    def test_waits_for_a_backup(self):
        row = self.world.add_backup(self.instance, 'taking')
        self.backup = row
        self.later = [lambda: row.update(state='COMPLETED')]
        self.assertEqual('COMPLETED', self.api.wait_until_taken(row.id, 60)['status'])
        row.update(state='FAILED')
        claim = self.world.claims[row.id]
        self.world.records.record_failed(claim, 'the guest agent is down')
        self.assertIn('the guest agent is down', self.failure(self.api.wait_until_taken))

    def test_fails_to_wait_for_a_backup_that_is_being_deleted(self):
        taking = self.world.add_backup(self.instance, 'taking')
        self.api.verify(self.backup.id)
        deleting = self.backup
        self.world.records._update(deleting.id, state='deleting', error='Cinder is down')
        self.assertIn(
            'is being deleted: Cinder is down', self.failure(self.api.wait_until_verified)
        )
        self.assertIn('is being deleted', self.failure(self.api.wait_until_taken))
        self.backup = taking
        taking.update(state='DELETE_FAILED')
        self.assertIn('is being deleted', self.failure(self.api.wait_until_taken))
        self.assertEqual(0, self.now)

    def test_names_the_status_of_a_backup_that_has_not_begun(self):
        self.backup = self.world.add_backup(self.instance)
        self.assertIn('is still NEW after 60 s', self.failure(self.api.wait_until_taken))


class EntryPointsTest(base.BaseTestCase):
    def test_all_can_be_loaded(self):
        for point in harness.entry_points():
            if point.group in (harness.GROUP, 'trove.api.extensions', 'oslo.policy.policies'):
                self.assertTrue(callable(point.load()), point.name)

    def test_no_name_is_that_of_another_command(self):
        ours = {point.name for point in harness.entry_points() if point.group == harness.GROUP}
        self.assertEqual(26, len(ours))
        for point in metadata.entry_points(group=harness.GROUP):
            if not point.value.startswith('trove_ceph.'):
                self.assertNotIn(point.name, ours)

    def test_commands_work_without_trove(self):
        """The commands run on tenants' machines."""
        result = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', WITHOUT_TROVE],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(0, result.returncode, result.stderr)
        outside = [one for one in result.stdout.split() if not one.startswith('trove_ceph.osc')]
        self.assertEqual([], outside)


class ValuesTest(base.BaseTestCase):
    def test_intervals(self):
        for text, minutes in (('90', 90), ('15m', 15), ('6h', 360), ('1d', 1440), ('2w', 20160)):
            self.assertEqual(minutes, policies.interval(text))
            self.assertEqual(minutes, policies.interval(columns.Minutes(minutes).human_readable()))
        for text in ('', 'h', '1y', '-1h', '1.5h'):
            self.assertRaises(ValueError, policies.interval, text)

    def test_values_for_people(self):
        for value, text in (
            (columns.of('used_bytes', None), ''),
            (columns.Bytes(512), '512 B'),
            (columns.Bytes(1610612736), '1.5 GiB'),
            (columns.Seconds(1.2345), '1.23 s'),
            (columns.Pairs({'last': 3, 'daily': 0}), 'last=3'),
            (columns.Words(['source', 'vault']), 'source, vault'),
            (columns.of('verification', None), ''),
            (
                columns.of(
                    'verification',
                    {
                        'verdict': 'sound',
                        'recovery_sec': 1.7163,
                        'reasons': [],
                        'seconds': {'clearing': 0, 'cloning': 0.092},
                    },
                ),
                'verdict: sound\nrecovery_sec: 1.72 s\nseconds: cloning=0.092',
            ),
        ):
            self.assertEqual(text, value.human_readable())
