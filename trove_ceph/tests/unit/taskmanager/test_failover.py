# SPDX-License-Identifier: Apache-2.0
"""The thread of automatic failover, by Trove's configuration."""

import datetime
import types

import fixtures
from keystoneauth1 import session
from oslotest import base
from trove.common import cfg as trove_cfg

from trove_ceph import exceptions
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.db import claims, failover_watch, heartbeat
from trove_ceph.strategies.failover.facts import FailoverSettings
from trove_ceph.taskmanager import failover
from trove_ceph.tests.unit.cinder import cinder_http
from trove_ceph.tests.unit.storage_service import bus
from trove_ceph.tests.unit.taskmanager import trove_database

CONF = trove_cfg.CONF
GROUP = 'trove_ceph_failover'


class FailoverThreadTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        taskmanager_conf.register(CONF)
        trove_database.path()
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.common.clients_admin.get_keystone_session',
                lambda: session.Session(cinder_http.Token('service', 'admin')),
            )
        )
        self.useFixture(bus.StorageTransport(CONF))
        self.store = failover_watch.FailoverWatchStore()
        self.deps = types.SimpleNamespace(
            worker=claims.Claimant('one', datetime.timedelta(0)),
            heartbeat=heartbeat.Heartbeat(self.store.claims, 5, 45),
        )
        self.thread = failover.FailoverThread(CONF, lambda: self.deps)

    def set(self, name, value):
        CONF.set_override(name, value, GROUP)
        self.addCleanup(CONF.clear_override, name, GROUP)

    def test_defaults_are_those_of_the_options(self):
        self.assertEqual(FailoverSettings(), failover.settings(CONF))

    def test_settings(self):
        self.set('pause_sec', 60)
        self.set('replace_hung', True)
        found = failover.settings(CONF)
        self.assertEqual((datetime.timedelta(minutes=1), True), (found.pause, found.replace_hung))

    def test_is_off_by_default(self):
        started = []
        self.thread._background.start = lambda: started.append(True)
        self.thread.start()
        self.assertEqual([], started)
        self.set('enabled', True)
        self.thread.start()
        self.assertEqual([True], started)

    def test_a_round_on_the_tables_of_trove(self):
        """It sends no request to Nova, Cinder or the bus, since no agent is silent."""
        trove_database.add_instance('project', 'volume')
        self.thread.watch()
        report = self.store.read().report
        self.assertEqual((None, 0), (report['hold'], report['silent']))


class VolumesTest(base.BaseTestCase):
    def find(self, volume='volume', image='image', clients=('10.0.0.1:0/1',)):
        deps = types.SimpleNamespace(
            cinder=types.SimpleNamespace(find_volume=lambda _id: volume),
            find_image=lambda _volume: image,
            storage=types.SimpleNamespace(
                describe=lambda _image: types.SimpleNamespace(clients=clients)
            ),
        )
        return failover.Volumes(deps, deps.storage).find_clients('id')

    def test_clients(self):
        self.assertEqual(('10.0.0.1:0/1',), self.find())
        self.assertEqual((), self.find(clients=()))

    def test_on_no_tier(self):
        self.assertIsNone(self.find(volume=None))
        self.assertIsNone(self.find(image=None))

    def test_errors_are_not_an_absence_of_clients(self):
        def fail(_image):
            raise exceptions.CephUnreachableError('no answer')

        deps = types.SimpleNamespace(
            cinder=types.SimpleNamespace(find_volume=lambda _id: 'volume'),
            find_image=lambda _volume: 'image',
            storage=types.SimpleNamespace(describe=fail),
        )
        self.assertRaises(
            exceptions.CephUnreachableError, failover.Volumes(deps, deps.storage).find_clients, 'id'
        )
