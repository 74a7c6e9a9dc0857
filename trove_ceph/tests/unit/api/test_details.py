# SPDX-License-Identifier: Apache-2.0
"""Details of backups through Trove's own router."""

import fixtures
from oslotest import base
from trove.common import cfg as trove_cfg

from trove_ceph.api import views
from trove_ceph.db.roles import Role
from trove_ceph.enums import QuiesceLevel
from trove_ceph.strategies.backup.options import BackupOptions
from trove_ceph.taskmanager import manager
from trove_ceph.tests.unit.api import world
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import backup_api

CONF = trove_cfg.CONF


class DetailsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World())
        self.instance = self.world.add_instance()
        self.ask = self.world.ask

    def show(self, backup, **options):
        status, body = self.ask('GET', f'/backup_details/{backup.id}', **options)
        self.assertEqual(200, status, body)
        return body['backup_detail']

    def test_extension_is_listed(self):
        status, body = self.ask('GET', '/backup_details')
        self.assertEqual((200, {'backup_details': []}), (status, body))

    def test_shows_a_backup(self):
        backup = self.world.add_backup(self.instance, 'taken')
        shown = self.show(backup)
        self.assertEqual(
            (backup.id, 'nightly', self.instance.id, 'COMPLETED', 'taken', 1.5),
            tuple(
                shown[name] for name in ('id', 'name', 'instance_id', 'status', 'state', 'take_sec')
            ),
        )
        self.assertRegex(shown['created'], r'^20\d\d-\d\d-\d\dT.*Z$')
        self.assertNotIn('source_place', shown)
        self.assertIn('source_place', self.show(backup, role='admin'))

    def test_shows_a_backup_without_our_record(self):
        shown = self.show(self.world.add_backup(self.instance))
        self.assertEqual(('NEW', None, []), (shown['status'], shown['state'], shown['places']))

    def test_shows_locations_to_administrators(self):
        backup = self.world.add_backup(self.instance, 'taken')
        records = self.world.records
        raised = {'raised_from': 'none', 'raised_because': 'sync_binlog'}
        records._update(backup.id, quiesce='freeze', **raised)
        claim = records.claims.claim(Role.VERIFY, backup.id, world.WORKER)
        records.results.record_verified(claim, 'uuid:1-7', {'tables': 3}, 2.0, 4096)
        shown = self.show(backup)
        self.assertEqual('verified', shown['state'])
        self.assertEqual(('freeze', 'none'), (shown['quiesce'], shown['raised_from']))
        self.assertEqual(('uuid:1-7', 4096), (shown['gtid_executed'], shown['used_bytes']))
        self.assertEqual(3, shown['verification']['tables'])

    def test_hides_backups_of_other_projects(self):
        backup = self.world.add_backup(self.instance, 'taken')
        for method, path in (
            ('GET', ''),
            ('POST', '/copy'),
            ('POST', '/verify'),
        ):
            path = f'/backup_details/{backup.id}{path}'
            status, body = self.ask(method, path, project=self.world.other)
            self.assertEqual(404, status)
            _status, missing = self.ask(method, path.replace(backup.id, 'none'))
            self.assertEqual(
                body['itemNotFound']['message'].replace(backup.id, 'none'),
                missing['itemNotFound']['message'],
            )
        self.assertIsNone(self.world.records.get(backup.id).copy_wanted_at)
        _status, body = self.ask('GET', '/backup_details', project=self.world.other)
        self.assertEqual([], body['backup_details'])
        # Nor through the path of another project.
        request_of_other = f'/../{self.world.other}/backup_details'
        self.assertIn(self.ask('GET', request_of_other)[0], (403, 404))

    def test_shows_all_backups_to_administrators(self):
        mine = self.world.add_backup(self.instance, 'taken')
        other = self.world.add_backup(self.world.add_instance(self.world.other), 'taken')
        self.assertEqual('taken', self.show(other, role='admin')['state'])
        status, body = self.ask('GET', '/backup_details?all_projects=1', role='admin')
        listed = {one['id'] for one in body['backup_details']}
        self.assertLessEqual({mine.id, other.id}, listed)
        # The lists of another project's instance need no option.
        path = f'/backup_details?instance_id={other.instance_id}'
        _status, body = self.ask('GET', path, role='admin')
        (found,) = body['backup_details']
        self.assertEqual((other.id, 'taken'), (found['id'], found['state']))
        _status, body = self.ask('GET', path)
        self.assertEqual([], body['backup_details'])
        status, body = self.ask('GET', '/backup_details?all_projects=1')
        self.assertEqual(403, status)
        self.assertIn('backup_detail:index:all_projects', body['forbidden']['message'])

    def test_lists_backups(self):
        other = self.world.add_instance()
        first, second, third = (
            self.world.add_backup(one, state)
            for one, state in ((self.instance, 'taken'), (other, 'taken'), (other, None))
        )
        for query, expected in (
            ('', {first.id, second.id, third.id}),
            (f'?instance_id={other.id}', {second.id, third.id}),
            ('?state=taken', {first.id, second.id}),
            ('?state=verified', set()),
        ):
            _status, body = self.ask('GET', f'/backup_details{query}')
            self.assertEqual(expected, {one['id'] for one in body['backup_details']}, query)

    def test_lists_in_pages(self):
        backups = {self.world.add_backup(self.instance, 'taken').id for _ in range(5)}
        listed, path = [], '/backup_details?limit=2'
        for expected in (2, 2, 1):
            _status, body = self.ask('GET', path)
            page = [one['id'] for one in body['backup_details']]
            self.assertEqual(expected, len(page))
            self.assertEqual(expected == 2, bool(body.get('links')))
            listed += page
            path = f'/backup_details?limit=2&marker={page[-1]}'
        self.assertEqual(backups, set(listed))
        for query in ('limit=0', 'limit=x', 'marker=none'):
            status, body = self.ask('GET', f'/backup_details?{query}')
            self.assertEqual(400, status)
            self.assertIn(query.partition('=')[0], body['badRequest']['message'])

    def test_continues_after_a_backup_that_has_left_the_list(self):
        """It was deleted since the last page, or has another state."""
        backups = [self.world.add_backup(self.instance, 'taken') for _ in range(4)]
        backups.sort(key=lambda one: (one.created, one.id), reverse=True)
        foreign = self.world.add_backup(self.world.add_instance(self.world.other), 'taken')
        path = f'/backup_details?state=taken&limit=1&marker={backups[1].id}'
        claim = self.world.records.claims.claim(Role.VERIFY, backups[1].id, world.WORKER)
        self.world.records.results.record_verified(claim, 'uuid:1-7', {}, 1.0)
        for _ in range(2):
            status, body = self.ask('GET', path)
            self.assertEqual(200, status, body)
            self.assertEqual([backups[2].id], [one['id'] for one in body['backup_details']])
            backups[1].update(deleted=True)
        self.assertEqual(400, self.ask('GET', f'/backup_details?marker={foreign.id}')[0])

    def test_requests_a_copy_and_a_verification(self):
        backup = self.world.add_backup(self.instance, 'taken')
        for verb, column in (('copy', 'copy_wanted_at'), ('verify', 'verify_wanted_at')):
            status, body = self.ask('POST', f'/backup_details/{backup.id}/{verb}', {})
            self.assertEqual(202, status, body)
            self.assertIsNotNone(body['backup_detail'][column])
            self.assertIsNotNone(getattr(self.world.records.get(backup.id), column))
        # A taskmanager is notified.
        self.assertEqual(
            [('copy_and_verify_backups', {})] * 2,
            [(method, arguments) for method, _context, arguments in self.world.casts],
        )
        self.assertTrue(callable(manager.Manager.copy_and_verify_backups))

    def test_accepts_requests_while_the_message_bus_is_down(self):
        """No request is lost: a taskmanager looks for recorded requests every minute."""

        def fail(*_arguments, **_options):
            raise RuntimeError('no broker')

        self.useFixture(fixtures.MonkeyPatch('trove.taskmanager.api.API.get_client', fail))
        backup = self.world.add_backup(self.instance, 'taken')
        self.assertEqual(202, self.ask('POST', f'/backup_details/{backup.id}/copy', {})[0])
        self.assertIsNotNone(self.world.records.get(backup.id).copy_wanted_at)

    def test_does_not_wait_for_the_message_bus(self):
        prepared = []
        prepare = world.Bus.prepare
        self.useFixture(
            fixtures.MonkeyPatch(
                f'{world.__name__}.Bus.prepare',
                lambda bus, **options: prepared.append(options) or prepare(bus),
            )
        )
        backup = self.world.add_backup(self.instance, 'taken')
        self.ask('POST', f'/backup_details/{backup.id}/verify', {})
        self.assertEqual([{'version': '1.0', 'retry': 1}], prepared)

    def test_refuses_what_cannot_be_copied_or_verified(self):
        taking = self.world.add_backup(self.instance, 'taking')
        failed = self.world.add_backup(self.instance, 'taking')
        claim = self.world.claims[failed.id]
        self.world.records.record_failed(claim, 'the guest agent is down')
        foreign = self.world.add_backup(self.instance)
        damaged = self.world.add_backup(self.instance, 'taken')
        claim = self.world.records.claims.claim(Role.VERIFY, damaged.id, world.WORKER)
        self.world.records.results.record_damaged(claim, {}, 1.0, 'corrupt')
        for backup, reason in (
            (taking, 'it is taking'),
            (failed, 'it is failed: the guest agent is down'),
            (foreign, 'has not begun, or is not on Ceph'),
        ):
            for verb in ('copy', 'verify'):
                status, body = self.ask('POST', f'/backup_details/{backup.id}/{verb}')
                self.assertEqual(409, status)
                self.assertIn(reason, body['conflict']['message'])
        self.assertEqual(409, self.ask('POST', f'/backup_details/{damaged.id}/copy')[0])
        self.assertEqual(202, self.ask('POST', f'/backup_details/{damaged.id}/verify')[0])

    def suspect(self, backup, found, error):
        claim = self.world.records.claims.claim(Role.VERIFY, backup.id, world.WORKER)
        self.world.records.results.record_suspected(claim, found, 1.0, error)
        self.world.records.claims.release(claim)

    def test_shows_the_inspecting_host_with_the_locations_alone(self):
        found = {'verdict': 'corrupt', 'inspected_by': 'storage1:77', 'clone_id': '10ab'}
        backup = self.world.add_backup(self.instance, 'taken')
        self.suspect(backup, found | {'first': dict(found)}, 'why')
        record = self.world.records.get(backup.id)
        for with_locations in (False, True):
            now = record.created_at
            shown = views.detail(backup, record, None, with_locations, now)['verification']
            self.assertEqual(('corrupt', 'corrupt'), (shown['verdict'], shown['first']['verdict']))
            for document in (shown, shown['first']):
                self.assertEqual(with_locations, 'inspected_by' in document)
                self.assertEqual(with_locations, 'clone_id' in document)

    def test_accepts_requests_for_suspected_backups(self):
        suspected = self.world.add_backup(self.instance, 'taken')
        self.suspect(suspected, {}, 'a page, perhaps')
        for verb in ('copy', 'verify'):
            status, body = self.ask('POST', f'/backup_details/{suspected.id}/{verb}')
            shown = body['backup_detail']
            self.assertEqual(
                (202, 'suspected', 'a page, perhaps'),
                (status, shown['state'], shown['verify_error']),
            )

    def take(self, **content):
        request = {'instance': self.instance.id, 'name': 'before-upgrade'} | content
        return self.ask('POST', '/backup_details', {'backup_detail': request})

    def test_the_taskmanager_gets_the_options(self):
        status, body = self.take(quiesce='freeze', copy=True, description='it may go wrong')
        self.assertEqual(202, status, body)
        ((method, context, arguments),) = self.world.casts
        self.assertEqual('create_backup', method)
        self.assertEqual(body['backup_detail']['id'], arguments['backup_info']['id'])
        self.assertEqual('cinder', arguments['backup_info']['storage_driver'])
        self.assertEqual(
            BackupOptions(QuiesceLevel.FREEZE, copy=True), backup_api.request_of(context)
        )
        self.assertEqual(self.world.project, context.project_id)
        events = [event for event, _ in self.world.notifications]
        self.assertEqual(['dbaas.backup_create.start'], events)

    def test_refuses_options_for_other_guest_agents(self):
        """Trove takes their backups by itself, and would drop the options."""
        self.instance.update(datastore_version_id=trove_database.foreign_version())
        for content in ({'quiesce': 'none'}, {'copy': True}, {'verify': True}):
            status, body = self.take(**content)
            self.assertEqual(400, status, body)
            self.assertIn('has another guest agent', body['badRequest']['message'])
        self.assertEqual([], self.world.casts)
        self.assertEqual(202, self.take(copy=False, quiesce=None)[0])

    def test_stock_requests_have_no_options(self):
        content = {'backup': {'name': 'stock', 'instance': self.instance.id}}
        content['backup']['storage_driver'] = 'cinder'
        status, body = self.ask('POST', '/backups', content)
        self.assertEqual(202, status, body)
        ((_method, context, _arguments),) = self.world.casts
        self.assertEqual(BackupOptions(), backup_api.request_of(context))

    def test_refuses_invalid_requests(self):
        foreign = self.world.add_instance(self.world.other)
        self.assertEqual(404, self.take(instance=foreign.id)[0])
        for content, message in (
            ({'quiesce': 'deep'}, 'backup_detail.quiesce: must be one of none, ddl, freeze'),
            ({'instance': 'shop'}, "backup_detail.instance: must be an instance's id"),
            ({'name': ''}, 'backup_detail.name'),
            ({'name': 'a\nb'}, 'backup_detail.name'),
            ({'description': 'x' * 256}, 'description: must be one line of up to 255 characters'),
            ({'description': 'two\nlines'}, 'backup_detail.description'),
            ({'description': 'fine \U0001f600'}, 'backup_detail.description'),
            ({'copy': 'yes'}, 'backup_detail.copy: must be true or false'),
            ({'quiece': 'ddl'}, 'did you mean quiesce?'),
        ):
            status, body = self.take(**content)
            self.assertEqual(400, status, content)
            self.assertIn(message, body['badRequest']['message'])
        for body, message in (
            (None, 'lacks backup_detail'),
            ([], 'must be an object with the key backup_detail'),
            ({'backup_detail': {}}, 'backup_detail: lacks instance, name'),
        ):
            status, answer = self.ask('POST', '/backup_details', body)
            self.assertEqual(400, status, body)
            self.assertIn(message, answer['badRequest']['message'])
        self.assertEqual([], self.world.casts)

    def test_reports_a_database_without_our_tables(self):
        def fail(*_arguments):
            from trove_ceph import exceptions

            raise exceptions.ServiceUnavailableError('table x: is not there; run "db sync"')

        backup = self.world.add_backup(self.instance, 'taken')
        self.world.records.find = fail
        status, body = self.ask('GET', f'/backup_details/{backup.id}')
        self.assertEqual(503, status)
        message = body['serviceUnavailable']['message']
        self.assertIn('repeat the request later', message)
        self.assertNotIn('db sync', message)
