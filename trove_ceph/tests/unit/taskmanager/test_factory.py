# SPDX-License-Identifier: Apache-2.0
import dataclasses
import os

import fixtures
import requests
from keystoneauth1 import session
from oslo_messaging import conffixture
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import context as trove_context

from trove_ceph import enums
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.db import workers
from trove_ceph.enums import QuiesceLevel
from trove_ceph.strategies.backup import backup_types
from trove_ceph.taskmanager import factory
from trove_ceph.tests.unit.cinder import cinder_http
from trove_ceph.tests.unit.storage_service import bus
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import service_session

CONF = trove_cfg.CONF
GROUP = taskmanager_conf.GROUP.name


class FactoryTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        taskmanager_conf.register(CONF)
        self.useFixture(bus.StorageTransport(CONF))
        self.useFixture(conffixture.ConfFixture(CONF)).transport_url = 'fake://'
        # Other tests reset the configuration.
        trove_database.path()

    def set(self, name, value):
        CONF.set_override(name, value, GROUP)
        self.addCleanup(CONF.clear_override, name, GROUP)

    def test_reads_troves_configuration(self):
        world = worlds.World()
        http = requests.Session()
        http.mount('http://', cinder_http.Adapter(world.cinder))
        token = cinder_http.Token(worlds.SERVICE, 'admin')
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.common.clients_admin.get_keystone_session',
                lambda: session.Session(token, session=http),
            )
        )
        deps = factory.make_dependencies(CONF, trove_context.TroveContext())
        self.assertEqual(worlds.SERVICE, deps.cinder.project_id)
        self.assertEqual('in-use', deps.cinder.find_volume(world.volume['id']).status)
        for client in (deps.cinder._client, deps.servers._client):
            self.assertEqual(service_session.TIMEOUT_SEC, client.client.session.timeout)
        # The database of Trove's configuration.
        world.records.keep_volume('volume', 'instance', 'project')
        self.assertEqual('volume', deps.records.find_kept_volume('volume').volume_id)
        self.assertEqual('mysql', deps.trove.find_instance(world.instance.id).datastore)
        worker = workers.Worker.parse(deps.worker.name)
        self.assertEqual(os.getpid(), worker.pid)
        self.assertFalse(deps.worker.is_dead(deps.worker.name))
        gone = str(dataclasses.replace(worker, started=worker.started + 1))
        self.assertTrue(deps.worker.is_dead(gone))

    def test_reads_the_settings_of_backups(self):
        self.assertEqual(backup_types.BackupSettings(), factory.backup_settings(CONF))
        self.set('quiesce', 'ddl')
        self.set('quiesce_by_datastore', {'mysql/8.4': 'freeze'})
        self.set('unsafe_action', 'raise')
        self.set('copy_to_vault', True)
        self.set('verify', 'copied')
        policy = factory.backup_settings(CONF)
        self.assertEqual((True, enums.VerifyWhen.COPIED), (policy.copy, policy.verify))
        self.assertEqual(enums.UnsafeAction.RAISE, policy.unsafe_action)
        instance = backup_types.Instance('id', 'project', None, datastore='mysql', version='8.4')
        self.assertEqual(QuiesceLevel.FREEZE, policy.level_of(instance))
        other = backup_types.Instance('id', 'project', None, datastore='mysql', version='9.7')
        self.assertEqual(QuiesceLevel.DDL, policy.level_of(other))
