# SPDX-License-Identifier: Apache-2.0
"""The thread of the watch over replicas, by Trove's configuration."""

import datetime
import types

from oslotest import base
from trove.common import cfg as trove_cfg

from trove_ceph import exceptions
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.db import claims, heartbeat, replicas
from trove_ceph.strategies.replication.watch_dependencies import VolumeUsage, WatchSettings
from trove_ceph.taskmanager import replication_watch
from trove_ceph.tests.unit.taskmanager import trove_database

CONF = trove_cfg.CONF
GROUP = 'trove_ceph_replication'


class ReplicationWatchThreadTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        taskmanager_conf.register(CONF)
        trove_database.path()
        self.store = replicas.ReplicaStore()
        self.deps = types.SimpleNamespace(
            worker=claims.Claimant('one', datetime.timedelta(0)),
            heartbeat=heartbeat.Heartbeat(self.store.claims, 5, 45),
            # Trove's table has the replicas of other tests.
            cinder=types.SimpleNamespace(find_volume=lambda _id: None),
        )
        self.thread = replication_watch.ReplicationWatchThread(
            CONF, lambda: self.deps, lambda: None, lambda _source_id: None
        )

    def test_defaults_are_those_of_the_options(self):
        self.assertEqual(WatchSettings(), replication_watch.settings(CONF))

    def test_settings(self):
        for name, value in (('pause_sec', 60), ('max_own_percent', 7), ('looks', 9)):
            CONF.set_override(name, value, GROUP)
            self.addCleanup(CONF.clear_override, name, GROUP)
        found = replication_watch.settings(CONF)
        self.assertEqual(
            (datetime.timedelta(minutes=1), 7, 9), (found.pause, found.max_own_percent, found.looks)
        )

    def test_starts_once(self):
        started = []
        self.thread._background.start = lambda: started.append(True)
        self.thread.start()
        self.assertEqual([True], started)

    def test_a_round_on_the_tables_of_trove(self):
        """It forgets a replica whose instance Trove does not have, and asks no agent."""
        self.store.register('gone', 'p', 's', None, None)
        self.thread.watch()
        self.assertIsNone(self.store.find('gone'))


class VolumesTest(base.BaseTestCase):
    def volumes(self, volume='volume', image='image'):
        """Return volumes whose usage of 7 bytes is known if it is requested."""

        def describe(described, with_usage):
            assert described == image
            used = 7 if with_usage else None
            return types.SimpleNamespace(size_bytes=9, clone_depth=2, used_bytes=used)

        return replication_watch.Volumes(
            types.SimpleNamespace(
                cinder=types.SimpleNamespace(find_volume=lambda _id: volume),
                find_image=lambda _volume: image,
                storage=types.SimpleNamespace(describe=describe),
            )
        )

    def test_usage(self):
        self.assertEqual(VolumeUsage(9, 2, 7), self.volumes().find_usage('id', True))
        self.assertEqual(VolumeUsage(9, 2), self.volumes().find_usage('id', False))

    def test_on_no_tier(self):
        self.assertIsNone(self.volumes(image=None).find_usage('id', True))

    def test_gone(self):
        error = self.assertRaises(
            exceptions.NotFoundError, self.volumes(volume=None).find_usage, 'id', True
        )
        self.assertIn('volume id: does not exist in Cinder', str(error))
