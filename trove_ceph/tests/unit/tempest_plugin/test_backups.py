# SPDX-License-Identifier: Apache-2.0
"""What scenarios ask of backups, and how long they wait for it."""

from unittest import mock

from oslotest import base
from tempest.lib import exceptions

from trove_ceph_tempest_plugin import backups


class FakeTrove:
    """Shows a backup in one state after the other; None is not there."""

    def __init__(self, *states, details=(), has_extension=True):
        self._states, self._details = list(states), list(details)
        self._has_extension = has_extension
        self.asked = []

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
        self.asked.append((path, body, expected_status_code))
        return {'backup_detail': {'id': 'b-1'}}

    def delete_resource(self, kind, backup_id, ignore_notfound):
        self.asked.append((kind, backup_id, ignore_notfound))


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

    def test_states_on_the_way(self):
        trove = FakeTrove('NEW', 'BUILDING', 'BUILDING', 'COMPLETED')
        seen = backups.Backups(trove, 60).wait_until_taken('b-1')
        self.assertEqual(['NEW', 'BUILDING', 'COMPLETED'], seen)

    def test_failure_is_told_with_its_reason(self):
        for has_extension, told in ((True, 'sync_binlog'), (False, 'no reason')):
            trove = FakeTrove('FAILED', details=[{'error': 'sync_binlog=0'}])
            trove._has_extension = has_extension
            wait = backups.Backups(trove, 60).wait_until_taken
            error = self.assertRaises(exceptions.UnexpectedResponseCode, wait, 'b-1')
            self.assertIn(told, str(error))

    def test_waits_are_bounded(self):
        waiting = backups.Backups(FakeTrove('BUILDING'), 60)
        self.assertRaises(exceptions.TimeoutException, waiting.wait_until_taken, 'b-1')
        self.assertRaises(exceptions.TimeoutException, waiting.delete, 'b-1')

    def test_what_is_wanted_is_waited_for(self):
        wanted, done = {'copy_wanted_at': 'T'}, {'copy_wanted_at': None, 'moved_bytes': 1}
        trove = FakeTrove(details=[wanted, wanted, done])
        self.assertEqual(done, backups.Backups(trove, 60).have_done('copy', 'b-1'))
        self.assertEqual([('backup_details/b-1/copy', {}, 202)], trove.asked)

    def test_take_through_the_extension(self):
        trove = FakeTrove()
        made = backups.Backups(trove, 60).take('i-1', 'nightly', quiesce='ddl')
        self.assertEqual('b-1', made)
        body = {'backup_detail': {'instance': 'i-1', 'name': 'nightly', 'quiesce': 'ddl'}}
        self.assertEqual([('backup_details', body, 202)], trove.asked)

    def test_what_a_policy_keeps_is_waited_for(self):
        def taken(backup_id, policy_id='p-1', status='COMPLETED'):
            return {'id': backup_id, 'policy_id': policy_id, 'status': status}

        by_hand = taken('b-9', policy_id=None)
        listed = [
            [by_hand, taken('b-1')],
            [by_hand, taken('b-1'), taken('b-2', status='BUILDING')],
            [by_hand, taken('b-1'), taken('b-2')],
            [by_hand, taken('b-2')],
        ]
        asked = backups.Backups(FakeTrove(details=listed), 60)
        self.assertEqual('b-1', asked.wait_for_one_of('p-1', 'i-1'))
        self.assertEqual('b-2', asked.wait_for_one_of('p-1', 'i-1', but='b-1'))

    def test_delete_waits_until_it_is_gone(self):
        trove = FakeTrove('DELETE_WAIT', 'DELETE_WAIT', None)
        backups.Backups(trove, 60).delete('b-1')
        self.assertEqual([('backups', 'b-1', True)], trove.asked)
        self.assertEqual(2 * backups.POLL_SEC, self.now)
