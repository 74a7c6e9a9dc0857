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

from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.db import workers
from trove_ceph.strategies.backup import model
from trove_ceph.strategies.backup.model import Level
from trove_ceph.taskmanager import making
from trove_ceph.tests.unit.cinder import fake_cinder
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database

CONF = trove_cfg.CONF
GROUP = taskmanager_conf.GROUP.name


class MakingTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        taskmanager_conf.register(CONF)
        self.useFixture(conffixture.ConfFixture(CONF)).transport_url = 'fake://'
        # Other tests reset what was set when the database was made.
        CONF.set_override('connection', f'sqlite:///{trove_database.path()}', 'database')

    def set(self, name, value):
        CONF.set_override(name, value, GROUP)
        self.addCleanup(CONF.clear_override, name, GROUP)

    def test_from_troves_configuration(self):
        world = worlds.World()
        http = requests.Session()
        http.mount('http://', fake_cinder.Adapter(world.cinder))
        token = fake_cinder.Token(worlds.SERVICE, 'admin')
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.common.clients_admin.get_keystone_session',
                lambda: session.Session(token, session=http),
            )
        )
        made = making.make_tools(CONF, trove_context.TroveContext())
        self.assertEqual(worlds.SERVICE, made.cinder.project_id)
        self.assertEqual('in-use', made.cinder.find_volume(world.volume['id']).status)
        # The database that Trove is configured with.
        world.records.keep_volume('volume', 'instance', 'project')
        self.assertEqual('volume', made.records.find_kept_volume('volume').volume_id)
        self.assertEqual('mysql', made.trove.find_instance(world.instance.id).datastore)
        worker = workers.Worker.parse(made.worker.name)
        self.assertEqual(os.getpid(), worker.pid)
        self.assertFalse(made.worker.is_dead(made.worker.name))
        gone = str(dataclasses.replace(worker, started=worker.started + 1))
        self.assertTrue(made.worker.is_dead(gone))

    def test_policy(self):
        self.assertEqual(model.Policy(), making.policy_of(CONF))
        self.set('quiesce', 'ddl')
        self.set('quiesce_by_datastore', {'mysql/8.4': 'freeze'})
        self.set('unsafe_action', 'raise')
        self.set('copy_to_vault', True)
        self.set('verify', 'copied')
        policy = making.policy_of(CONF)
        self.assertEqual((True, model.Verify.COPIED), (policy.copy, policy.verify))
        self.assertEqual(model.UnsafeAction.RAISE, policy.unsafe_action)
        instance = model.Instance('id', 'project', None, datastore='mysql', version='8.4')
        self.assertEqual(Level.FREEZE, policy.level_of(instance))
        other = model.Instance('id', 'project', None, datastore='mysql', version='9.7')
        self.assertEqual(Level.DDL, policy.level_of(other))
