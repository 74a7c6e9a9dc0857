# SPDX-License-Identifier: Apache-2.0
"""The rows of Trove by which health is judged, written by Trove's own models."""

import datetime
import uuid

from oslotest import base
from trove.configuration import models as configuration_models
from trove.datastore import models as datastore_models
from trove.guestagent import models as guest_models
from trove.instance.tasks import InstanceTasks

from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import instance_health


class InstanceHealthTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        trove_database.path()
        self.instance = trove_database.add_instance(f'project-{uuid.uuid4()}', 'volume')

    def _row(self):
        (found,) = (
            one for one in instance_health.list_instances() if one.instance_id == self.instance.id
        )
        return found

    def test_instance_without_a_heartbeat(self):
        found = self._row()
        self.assertIsNone(found.heartbeat_at)
        self.assertIsNone(found.created_at.tzinfo)
        self.assertTrue(found.has_our_guest_agent)
        self.assertEqual('mysql', found.datastore)

    def test_heartbeat(self):
        guest_models.AgentHeartBeat.create(instance_id=self.instance.id)
        age = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - self._row().heartbeat_at
        self.assertLess(abs(age), datetime.timedelta(minutes=5))

    def test_task(self):
        self.instance.update(task_status=InstanceTasks.RESIZING)
        self.assertFalse(self._row().is_settled)
        self.instance.update(task_status=InstanceTasks.NONE)
        self.assertTrue(self._row().is_settled)

    def test_replica(self):
        self.assertFalse(self._row().is_replica)
        self.instance.update(slave_of_id='source')
        self.assertTrue(self._row().is_replica)

    def test_key(self):
        self.assertTrue(self._row().has_key)
        self.instance.update(encrypted_key=None)
        self.assertFalse(self._row().has_key)

    def test_deleted_instance_is_left_out(self):
        self.instance.update(deleted=True)
        ids = [one.instance_id for one in instance_health.list_instances()]
        self.assertNotIn(self.instance.id, ids)

    def test_find_version(self):
        version_id = trove_database.datastore_version()
        (listed,) = (one for one in instance_health.list_versions() if one.name == '9.7')
        for name in ('9.7', version_id):
            self.assertEqual(listed, instance_health.find_version('mysql', name))
        row = datastore_models.DBDatastoreVersion.find_by(id=version_id)
        self.addCleanup(row.update, active=True)
        row.update(active=False)
        for datastore, name in (('mysql', '9.7'), ('mysql', '9.8'), ('another', '9.7')):
            self.assertIsNone(instance_health.find_version(datastore, name))

    def test_versions(self):
        (found,) = (
            one
            for one in instance_health.list_versions()
            if one.datastore == 'mysql' and one.guest_manager.startswith('trove_ceph.')
        )
        self.assertTrue(found.is_active)
        self.assertTrue(found.version)

    def test_images_of_versions(self):
        row = datastore_models.DBDatastoreVersion.find_by(id=trove_database.datastore_version())
        self.addCleanup(row.update, image_id=row.image_id, image_tags=row.image_tags)
        for image_id, tags, expected in (
            (None, 'a,b', ('', ('a', 'b'))),
            ('i', None, ('i', ())),
            ('i', '', ('i', ())),
        ):
            row.update(image_id=image_id, image_tags=tags)
            found = instance_health.find_version('mysql', '9.7')
            self.assertEqual(expected, (found.image_id, found.image_tags))

    def test_settings_of_groups_in_use(self):
        groups = []
        for value in ('1', '2'):
            group = configuration_models.DBConfiguration.create(
                name=value, tenant_id='project', datastore_version_id='v', deleted=False
            )
            configuration_models.DBConfigurationParameter.create(
                configuration_id=group.id,
                configuration_key='sync_binlog',
                configuration_value=value,
                deleted=False,
            )
            groups.append(group)
        self.instance.update(configuration_id=groups[1].id)
        (found,) = (
            one for one in instance_health.list_settings() if self.instance.id in one.instance_ids
        )
        self.assertEqual(
            (groups[1].id, 'sync_binlog', '2'), (found.group_id, found.name, found.value)
        )
