# SPDX-License-Identifier: Apache-2.0
"""The golden volumes of the configuration, with their states in Ceph."""

import dataclasses
import types
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.trove_rows import VersionRow
from trove_ceph.doctor import golden_volumes
from trove_ceph.doctor.golden_facts import HotGuests, HotPool
from trove_ceph.doctor.version_checks import GUEST_MANAGER
from trove_ceph.storage import golden
from trove_ceph.tests.unit.doctor import facts
from trove_ceph.tests.unit.strategies import golden_world
from trove_ceph.tests.unit.strategies import world as worlds

VERSION = VersionRow('mysql', 'the-name', '9.7.4', True, GUEST_MANAGER, 'x')


class GoldenVolumesTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.versions = (VERSION,)
        self.patch('trove_ceph.storage_service.rpcapi.connect', lambda _conf: None)
        self.patch(
            'trove_ceph.storage_service.rpcapi.StorageAPI', lambda _: self.world.deps().storage
        )
        self.patch('trove_ceph.trove_adapter.instance_health.list_versions', lambda: self.versions)
        self.patch('trove_ceph.trove_adapter.instance_health.find_version', self.find_version)
        tiers = facts.CONTENT.tiers
        (data,) = [one for one in tiers.values() if one.purpose == 'data' and one.volume_type]
        self.tier = dataclasses.replace(data, pool='volumes', datastore_versions=())
        self.others = {name: one for name, one in tiers.items() if one is not data}

    def patch(self, name, value):
        self.useFixture(fixtures.MonkeyPatch(name, value))

    def find_version(self, datastore, name):
        found = (one for one in self.versions if (one.datastore, one.name) == (datastore, name))
        return next(found, None)

    def content(self):
        return dataclasses.replace(facts.CONTENT, tiers={**self.others, self.tier.name: self.tier})


class GoldenVolumesTest(GoldenVolumesTestCase):
    sizes_gib = (3, 1, 3)

    def read(self):
        conf = types.SimpleNamespace(
            trove_ceph_golden=types.SimpleNamespace(sizes_gib=self.sizes_gib)
        )
        return [
            (one.volume.pool, one.volume.version, one.volume.size_gib, one.state)
            for one in golden_volumes.read(conf, self.content())
        ]

    def test_states(self):
        golden_world.add_golden_volume(self.world, 3)
        self.assertEqual(
            [('volumes', '9.7.4', 1, None), ('volumes', '9.7.4', 3, golden.State.READY)],
            self.read(),
        )
        self.assertEqual(['storage close'], self.world.events[-1:])

    def test_without_sizes_nothing_is_asked(self):
        self.sizes_gib = []
        self.patch('trove_ceph.storage_service.rpcapi.connect', None)
        self.assertEqual([], self.read())

    def test_versions_that_use_none(self):
        self.versions = tuple(
            dataclasses.replace(VERSION, **change)
            for change in (
                {'is_active': False},
                {'guest_manager': 'another'},
                {'version': '9.7'},
            )
        )
        self.assertEqual([], self.read())

    def test_tiers_of_other_versions(self):
        self.tier = dataclasses.replace(self.tier, datastore_versions=('mysql/another',))
        self.assertEqual([], self.read())
        self.tier = dataclasses.replace(self.tier, datastore_versions=('mysql/the-name',))
        self.assertEqual(2, len(self.read()))

    def test_a_service_that_does_not_answer(self):
        def fail(*_, **__):
            raise exceptions.CephUnreachableError('no OSD answers')

        storage = types.SimpleNamespace(describe=fail, close=mock.Mock())
        self.patch('trove_ceph.storage_service.rpcapi.StorageAPI', lambda _: storage)
        self.assertRaises(exceptions.CephUnreachableError, self.read)
        storage.close.assert_called_once_with()


class HotGuestsTest(GoldenVolumesTestCase):
    POOL = 'mysql/the-name:small'
    hot = 1
    pools = (POOL,)
    hot_volume = 'fast:3'

    def read(self):
        conf = types.SimpleNamespace(
            trove_ceph_guests=types.SimpleNamespace(
                hot=self.hot, hot_volume=self.hot_volume, pools=self.pools
            )
        )
        return golden_volumes.read_hot(conf, self.content)

    def states(self):
        return {one.name: one.source and one.source.state for one in self.read().pools}

    def test_golden_volume_of_each_pool(self):
        self.versions = (VERSION, dataclasses.replace(VERSION, name='newer', version='9.7.5'))
        self.pools = (self.POOL, 'mysql/newer:small', 'mysql/newer:large')
        golden_world.add_golden_volume(self.world, 3)
        self.assertEqual(
            dict(zip(self.pools, (golden.State.READY, None, None), strict=True)), self.states()
        )
        found = self.read()
        self.assertEqual((None, 'fast', 'fast'), (found.problem, found.volume_type, found.tier))
        self.assertEqual(['9.7.4', '9.7.5', '9.7.5'], [one.version for one in found.pools])
        self.assertEqual(['storage close'], self.world.events[-1:])

    def test_of_another_size(self):
        golden_world.add_golden_volume(self.world, 1)
        self.assertEqual({self.POOL: None}, self.states())

    def test_without_hot_guests_nothing_is_asked(self):
        self.hot, self.content = 0, None
        self.patch('trove_ceph.storage_service.rpcapi.connect', None)
        self.assertIsNone(self.read())

    def test_pools_that_can_have_none(self):
        self.patch('trove_ceph.storage_service.rpcapi.connect', None)
        self.versions = (dataclasses.replace(VERSION, version='9.7'),)
        self.pools = (self.POOL, 'mysql/another:small')
        self.assertEqual(
            (HotPool(self.POOL, '9.7', None), HotPool('mysql/another:small', None, None)),
            self.read().pools,
        )

    def test_volume_type_of_no_tier(self):
        self.patch('trove_ceph.storage_service.rpcapi.connect', None)
        self.hot_volume = 'another:3'
        expected = HotGuests(None, 'another', None, (HotPool(self.POOL, '9.7.4', None),))
        self.assertEqual(expected, self.read())

    def test_option_that_names_no_volume(self):
        for self.hot_volume in ('', 'fast'):
            self.assertIn('expected VOLUME_TYPE:SIZE_GIB', self.read().problem)

    def test_option_that_names_no_pools(self):
        self.pools = ('mysql',)
        self.assertRaises(exceptions.InvalidConfigurationError, self.read)
