# SPDX-License-Identifier: Apache-2.0
import json
import types
from pathlib import Path
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph import exceptions, waiting
from trove_ceph_bench import arguments, guest_pool


def guest(guest_id, state='ready', answer_sec=5, instance_id=None):
    return {
        'guest_id': guest_id,
        'state': state,
        'answer_sec': answer_sec,
        'instance_id': instance_id,
    }


class PoolTest(base.BaseTestCase):
    #: After the first one that finds what is waited for.
    MORE_LOOKS = guest_pool._LOOKS - 1

    def setUp(self):
        super().setUp()
        self.now = 0.0

    def pool(self, *listed):
        """Return a pool whose list is another one at each look; the last one stays."""
        left = list(listed)
        return guest_pool.Pool(
            lambda: left.pop(0) if len(left) > 1 else left[0],
            lambda timeout_sec: waiting.Deadline(timeout_sec, lambda: self.now, self._sleep),
        )

    def _sleep(self, seconds):
        self.now += seconds

    def test_waits_until_a_guest_is_ready_and_none_boots(self):
        pool = self.pool(
            [],
            [guest('a', 'booting', None)],
            [guest('a', answer_sec=None)],
            [guest('a', answer_sec=guest_pool.FRESH_SEC + 1)],
            [guest('a'), guest('b', 'retired')],
            [guest('a'), guest('b', 'booting')],
            [guest('a'), guest('c', 'bound', instance_id='i-1')],
        )
        self.assertEqual(['a'], pool.await_ready(600))
        self.assertEqual((6 + self.MORE_LOOKS) * guest_pool._POLL_SEC, self.now)

    def test_waits_until_the_taskmanager_has_looked_after_the_pool(self):
        """Until then the guest of a deleted instance is bound, and none boots in its place."""
        old = guest('old', 'bound', instance_id='i-1')
        pool = self.pool(
            [guest('a'), old],
            [guest('a'), old],
            [guest('a', 'loading'), guest('b', 'booting')],
            [guest('a', 'hot'), guest('b', 'booting')],
            [guest('a', 'hot'), guest('b')],
        )
        self.assertEqual(['b'], pool.await_ready(600))
        self.assertEqual((4 + self.MORE_LOOKS) * guest_pool._POLL_SEC, self.now)

    def test_waits_until_a_guest_is_hot_and_none_is_loading(self):
        pool = self.pool(
            [guest('a')],
            [guest('a', 'loading')],
            [guest('a', 'hot'), guest('b', 'loading')],
            [guest('a', 'hot'), guest('b')],
        )
        self.assertEqual(['a'], pool.await_ready(600, 'hot'))
        self.assertEqual((3 + self.MORE_LOOKS) * guest_pool._POLL_SEC, self.now)

    def test_waits_for_guests_of_either_kind(self):
        pool = self.pool([guest('a', 'hot'), guest('b'), guest('c', 'bound', instance_id='i-1')])
        self.assertEqual(['a', 'b'], pool.await_ready(600, 'ready', 'hot'))

    def test_wait_is_bounded(self):
        pool = self.pool([guest('a', 'booting', None)])
        error = self.assertRaises(exceptions.LoadFailedError, pool.await_ready, 600)
        self.assertIn('no warm guest is ready after 600 s, found: booting', str(error))

    def test_guests_that_are_ready_for_a_failover(self):
        place = {'flavor_id': 'small', 'host': 'host-2'}
        listed = [
            guest('a') | place,
            guest('b') | place | {'host': 'host-1'},
            guest('c') | place | {'host': None},
            guest('d') | place | {'flavor_id': 'large'},
            guest('e', answer_sec=None) | place,
            guest('f', 'hot') | place,
        ]
        self.assertEqual(['a'], self.pool(listed).list_ready('small', not_on='host-1'))

    def test_tells_warm_from_cold(self):
        for guests, is_warm in (
            ([guest('a', 'bound', instance_id='i-1')], True),
            ([guest('a', 'bound', instance_id='i-2')], False),
            ([guest('a', 'retired', instance_id='i-1')], False),
            # It was bound before the operation.
            ([guest('a'), guest('old', 'bound', instance_id='i-1')], False),
        ):
            self.assertEqual(is_warm, self.pool(guests).is_bound_to('i-1', ['a']))

    def test_guests_of_an_instance(self):
        own = [guest('a', 'bound', instance_id='i-1'), guest('b', 'retired', instance_id='i-1')]
        others = [guest('c'), guest('d', 'bound', instance_id='i-2')]
        self.assertEqual(own, self.pool([*own, *others]).of_instance('i-1'))


class CommandTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.guest_pool._POLL_SEC', 0))
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        trove = types.SimpleNamespace(
            instances=types.SimpleNamespace(
                list=lambda: [types.SimpleNamespace(id='i-1', name='shop')]
            )
        )
        patch = mock.patch('trove_ceph_bench.targets.cloud.clients', return_value=(None, trove))
        patch.start()
        self.addCleanup(patch.stop)

    def call(self, *words):
        environ = {'BENCH_DIRECTORY': str(self.directory)}
        guest_pool.main(arguments.parse(['guests', *words]), environ)

    def list_guests(self, *guests):
        """Have the command in BENCH_GUESTS print guests."""
        path = self.directory / 'listed'
        path.write_text(json.dumps(guests))
        self.useFixture(fixtures.EnvironmentVariable('BENCH_GUESTS', f'cat {path}'))

    def test_reads_the_command_of_the_cloud(self):
        self.list_guests(guest('a'))
        self.call('await')
        self.list_guests(guest('a', 'bound', instance_id='i-1'))
        self.call('check', 'shop', 'warm')
        error = self.assertRaises(exceptions.LoadFailedError, self.call, 'check', 'shop', 'cold')
        self.assertIn('shop has got the guest a', str(error))
        self.list_guests(guest('a', 'retired', instance_id='i-1'))
        self.call('check', 'shop', 'cold')
        error = self.assertRaises(exceptions.LoadFailedError, self.call, 'check', 'shop', 'warm')
        self.assertIn('it does not count as warm', str(error))

    def test_cold_is_without_any_guest(self):
        own = guest('own', 'bound', instance_id='i-1')
        self.list_guests(guest('a'), guest('late', answer_sec=80), guest('hot', 'hot'), own)
        self.call('await')
        # A resize leaves an instance the guest that it had.
        self.call('check', 'shop', 'cold')
        for other in ('late', 'hot', 'new'):
            self.list_guests(guest('a'), guest(other, 'bound', instance_id='i-1'))
            error = self.assertRaises(
                exceptions.LoadFailedError, self.call, 'check', 'shop', 'cold'
            )
            self.assertIn(f'got the guest {other}', str(error))

    def test_waits_for_a_hot_guest(self):
        self.list_guests(guest('a', 'hot'), guest('b'))
        self.call('await', '--hot')
        self.list_guests(guest('a', 'bound', instance_id='i-1'))
        self.call('check', 'shop', 'warm')

    def test_failing_command_is_an_error(self):
        self.useFixture(fixtures.EnvironmentVariable('BENCH_GUESTS', 'false'))
        error = self.assertRaises(exceptions.LoadFailedError, self.call, 'await')
        self.assertIn('BENCH_GUESTS: false: exit status 1', str(error))

    def test_needs_a_directory(self):
        parsed = arguments.parse(['guests', 'await'])
        error = self.assertRaises(exceptions.LoadFailedError, guest_pool.main, parsed, {})
        self.assertIn('BENCH_DIRECTORY is not set', str(error))
