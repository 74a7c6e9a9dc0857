# SPDX-License-Identifier: Apache-2.0
"""Tests of the requests of scenarios for backups, and of their waits."""

from unittest import mock

from oslotest import base
from tempest.lib import exceptions

from trove_ceph_tempest_plugin import backups


class FakeTrove:
    """Fake of Trove: show a backup in one state after the other; None means not found."""

    def __init__(self, *states, details=(), has_extension=True):
        self._states, self._details = list(states), list(details)
        self._has_extension = has_extension
        self.requests = []

    def get_resource(self, kind, backup_id):
        shown = self._details if kind == 'backup_details' else self._states
        found = shown.pop(0) if len(shown) > 1 else shown[0]
        if found is None:
            raise exceptions.NotFound(backup_id)
        if kind == 'backup_details':
            return {'backup_detail': found}
        return {'backup': {'id': backup_id, 'status': found}}

    def list_resources(self, kind, **_filters):
        if not self._has_extension:
            raise exceptions.NotFound(kind)
        listed = self._details.pop(0) if len(self._details) > 1 else self._details[0]
        return {kind: listed}

    def create_resource(self, path, body, expected_status_code):
        self.requests.append((path, body, expected_status_code))
        return {'backup_detail': {'id': 'b-1'}}

    def delete_resource(self, kind, backup_id, ignore_notfound):
        self.requests.append((kind, backup_id, ignore_notfound))


class BackupsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        for name, fake in (('sleep', self._sleep), ('monotonic', lambda: self.now)):
            patch = mock.patch(f'trove_ceph_tempest_plugin.backups.time.{name}', fake)
            patch.start()
            self.addCleanup(patch.stop)

    def _sleep(self, seconds):
        self.now += seconds

    def test_returns_the_states_until_completed(self):
        trove = FakeTrove('NEW', 'BUILDING', 'BUILDING', 'COMPLETED')
        states = backups.Backups(trove, 60).wait_until_completed('b-1')
        self.assertEqual(['NEW', 'BUILDING', 'COMPLETED'], states)

    def test_failure_has_its_reason(self):
        for has_extension, reason in ((True, 'sync_binlog'), (False, 'no reason')):
            trove = FakeTrove('FAILED', details=[{'error': 'sync_binlog=0'}])
            trove._has_extension = has_extension
            wait = backups.Backups(trove, 60).wait_until_completed
            error = self.assertRaises(exceptions.UnexpectedResponseCode, wait, 'b-1')
            self.assertIn(reason, str(error))

    def test_waits_are_bounded(self):
        client = backups.Backups(FakeTrove('BUILDING'), 60)
        self.assertRaises(exceptions.TimeoutException, client.wait_until_completed, 'b-1')
        self.assertRaises(exceptions.TimeoutException, client.delete, 'b-1')

    def test_request_waits_until_the_action_ends(self):
        requested, done = {'copy_wanted_at': 'T'}, {'copy_wanted_at': None, 'moved_bytes': 1}
        trove = FakeTrove(details=[requested, requested, done])
        self.assertEqual(done, backups.Backups(trove, 60).request('copy', 'b-1'))
        self.assertEqual([('backup_details/b-1/copy', {}, 202)], trove.requests)

    def test_create_through_the_extension(self):
        trove = FakeTrove()
        backup_id = backups.Backups(trove, 60).create('i-1', 'nightly', quiesce='ddl')
        self.assertEqual('b-1', backup_id)
        body = {'backup_detail': {'instance': 'i-1', 'name': 'nightly', 'quiesce': 'ddl'}}
        self.assertEqual([('backup_details', body, 202)], trove.requests)

    def test_waits_for_the_only_backup_of_a_policy(self):
        def backup(backup_id, policy_id='p-1', status='COMPLETED'):
            return {'id': backup_id, 'policy_id': policy_id, 'status': status}

        manual = backup('b-9', policy_id=None)
        listed = [
            [manual, backup('b-1')],
            [manual, backup('b-1'), backup('b-2', status='BUILDING')],
            [manual, backup('b-1'), backup('b-2')],
            [manual, backup('b-2')],
        ]
        client = backups.Backups(FakeTrove(details=listed), 60)
        self.assertEqual('b-1', client.wait_for_only_backup('p-1', 'i-1'))
        self.assertEqual('b-2', client.wait_for_only_backup('p-1', 'i-1', other_than='b-1'))

    def test_delete_waits_until_the_backup_is_gone(self):
        trove = FakeTrove('DELETE_WAIT', 'DELETE_WAIT', None)
        backups.Backups(trove, 60).delete('b-1')
        self.assertEqual([('backups', 'b-1', True)], trove.requests)
        self.assertEqual(2 * backups.POLL_SEC, self.now)
