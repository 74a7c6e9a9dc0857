# SPDX-License-Identifier: Apache-2.0
"""Creations on clones of golden volumes, from the call of Trove's API to that of the guest."""

import types

from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import notification

from trove_ceph import exceptions
from trove_ceph.storage import golden
from trove_ceph.tests.unit.strategies import golden_world
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.trove_adapter import stock_creation

CONF = trove_cfg.CONF


class GoldenCreationTest(stock_creation.StockCreation, base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.set_up(golden_world.make_world())
        CONF.set_override('sizes_gib', golden_world.SIZES_GIB, 'trove_ceph_golden')
        self.addCleanup(CONF.clear_override, 'sizes_gib', 'trove_ceph_golden')

    def create(self, **facts):
        self.manager.create_instance(
            self.context(notification.DBaaSInstanceCreate),
            self.world.new.id,
            **self.request(**{'ds_version': golden_world.VERSION, 'volume_size': 2} | facts),
        )

    def render(self, text):
        self.patch(
            'trove.taskmanager.models.FreshInstanceTasks._render_config',
            lambda *_: types.SimpleNamespace(config_contents=text),
        )

    def prepared(self):
        """Return the arguments of the request to the guest: packages and what follows."""
        (arguments,) = [one for verb, one, _ in self.built if verb == '_guest_prepare']
        return arguments

    def assert_ordinary(self):
        self.assertEqual(1, len(self.cinder.created))
        self.assertNotIn('snapshot_id', self.cinder.created[0])
        self.assertIsNone(self.prepared()[5])
        self.assertEqual('made-by-cinder', trove_database.instance(self.world.new.id).volume_id)
        self.assertEqual([self.world.volume], list(self.world.cinder.volumes.values()))
        self.assertEqual(
            {self.world.volume_image.name, self.world.golden.image.name}, self.world.images()
        )

    def test_the_guest_keeps_the_data_of_the_clone(self):
        self.create(databases=['a database'], users=['a user'])
        row = trove_database.instance(self.world.new.id)
        volume = self.world.cinder.volumes[row.volume_id]
        self.assertEqual((2, 'available'), (volume['size'], volume['status']))
        self.assertEqual([], self.cinder.created)
        _, _, _, databases, users, backup_info, *_ = self.prepared()
        self.assertEqual((['a database'], ['a user']), (databases, users))
        self.assertEqual(
            {'id': row.id, 'storage_driver': 'cinder', 'location': 'cinder://'}, backup_info
        )
        # It depends on the golden volume no longer.
        self.assertIsNone(self.world.storage.describe(self.world.cinder.image(volume)).parent)
        self.assertEqual(['dbaas.instance_create.end'], [event for event, _ in self.notifications])

    def test_clones_and_fallbacks_are_counted(self):
        events = []
        self.patch('trove_ceph.operation_events.publish', events.append)
        self.world.cinder.failing = 'extend'
        self.create()
        trove_database.instance(self.world.new.id).update(volume_id=None)
        self.world.cinder.failing = None
        self.create()
        phases = [one.phase for one in events if one.operation == 'golden.clone']
        self.assertEqual(['start', 'error', 'start', 'end'], phases)

    def test_it_takes_no_longer_than_a_creation(self):
        self.create()
        waits = [arguments[0] for verb, arguments, _ in self.built if verb == 'wait_for_instance']
        self.assertEqual([CONF.usage_timeout], waits)

    def test_without_the_option_nothing_changes(self):
        CONF.set_override('sizes_gib', [], 'trove_ceph_golden')
        self.create()
        self.assert_ordinary()

    def test_none_that_fits_is_ready(self):
        self.create(volume_size=20)
        self.assert_ordinary()

    def test_a_golden_volume_of_another_version(self):
        self.create(ds_version='9.7.5')
        self.assert_ordinary()

    def test_a_root_password_needs_an_ordinary_volume(self):
        self.create(root_password='secret')
        self.assert_ordinary()

    def test_a_template_with_another_fixed_setting(self):
        self.render('[mysqld]\nlower_case_table_names = 1\n')
        self.create()
        self.assert_ordinary()

    def test_a_configuration_group_with_another_fixed_setting(self):
        self.create(overrides={'innodb_page_size': 8192})
        self.assert_ordinary()

    def test_a_configuration_group_without_fixed_settings(self):
        self.create(overrides={'max_connections': 10})
        self.assertEqual([], self.cinder.created)
        self.assertIn({'max_connections': 10}, self.prepared())

    def test_an_instance_with_another_guest_agent(self):
        version_id = trove_database.foreign_version()
        trove_database.instance(self.world.new.id).update(datastore_version_id=version_id)
        self.create()
        self.assert_ordinary()

    def test_a_failure_is_no_error_of_the_tenant(self):
        self.world.cinder.failing = 'extend'
        self.create()
        self.assert_ordinary()

    def test_a_cloud_that_cannot_be_reached_is_no_error_of_the_tenant(self):
        def fail(*_):
            raise exceptions.CephUnreachableError('no OSD answers')

        self.patch('trove_ceph.strategies.restore.golden_volume.find_source', fail)
        self.create()
        self.assert_ordinary()

    def test_restores_use_no_golden_volume(self):
        self.let_backups_be_restored()
        self.create(backup_id='a backup')
        self.assertEqual(1, len(self.cinder.created))

    def test_one_that_is_retired_is_not_cloned(self):
        ready = self.world.golden.snapshot(golden.State.READY)
        self.world.storage.rename_snapshot(ready, golden.State.RETIRED.value)
        self.create()
        self.assert_ordinary()
