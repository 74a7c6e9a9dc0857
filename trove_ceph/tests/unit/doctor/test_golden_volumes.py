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
from trove_ceph.doctor.backup_checks import GUEST_MANAGER
from trove_ceph.storage import golden
from trove_ceph.tests.unit.doctor import facts
from trove_ceph.tests.unit.strategies import golden_world
from trove_ceph.tests.unit.strategies import world as worlds

VERSION = VersionRow('mysql', 'the name', '9.7.4', True, GUEST_MANAGER, 'x')


class GoldenVolumesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.versions = (VERSION,)
        self.sizes_gib = [3, 1, 3]
        self.connection = mock.Mock()
        self.patch('trove_ceph.storage_service.rpcapi.connect', lambda _conf: self.connection)
        self.patch(
            'trove_ceph.storage_service.rpcapi.StorageAPI', lambda _: self.world.deps().storage
        )
        self.patch('trove_ceph.trove_adapter.instance_health.list_versions', lambda: self.versions)
        tiers = facts.CONTENT.tiers
        (data,) = [one for one in tiers.values() if one.purpose == 'data' and one.volume_type]
        self.tier = dataclasses.replace(data, pool='volumes', datastore_versions=())
        self.others = {name: one for name, one in tiers.items() if one is not data}

    def patch(self, name, value):
        self.useFixture(fixtures.MonkeyPatch(name, value))

    def read(self):
        conf = types.SimpleNamespace(
            trove_ceph_golden=types.SimpleNamespace(sizes_gib=self.sizes_gib)
        )
        tiers = {**self.others, self.tier.name: self.tier}
        content = dataclasses.replace(facts.CONTENT, tiers=tiers)
        return [
            (one.volume.pool, one.volume.version, one.volume.size_gib, one.state)
            for one in golden_volumes.read(conf, content)
        ]

    def test_states(self):
        golden_world.add_golden_volume(self.world, 3)
        self.assertEqual(
            [('volumes', '9.7.4', 1, None), ('volumes', '9.7.4', 3, golden.State.READY)],
            self.read(),
        )
        self.connection.transport.cleanup.assert_called_once_with()

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
        self.tier = dataclasses.replace(self.tier, datastore_versions=('mysql/the name',))
        self.assertEqual(2, len(self.read()))

    def test_a_service_that_does_not_answer(self):
        def fail(*_, **__):
            raise exceptions.CephUnreachableError('no OSD answers')

        storage = types.SimpleNamespace(describe=fail)
        self.patch('trove_ceph.storage_service.rpcapi.StorageAPI', lambda _: storage)
        self.assertRaises(exceptions.CephUnreachableError, self.read)
        self.connection.transport.cleanup.assert_called_once_with()
