# SPDX-License-Identifier: Apache-2.0
"""What the guest agents of a replaced server are told, from Trove's own tables and templates."""

import logging
import uuid

import fixtures
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.configuration import models as configuration_models

from trove_ceph import exceptions
from trove_ceph.strategies.replacement.dependencies import StartProgress, StartState
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.trove_adapter import test_replaced_instance
from trove_ceph.trove_adapter import replaced_agents, start_replication

CONF = trove_cfg.CONF
PROGRESS = StartProgress(StartState.STARTING)


class ReplacedAgentsTest(base.BaseTestCase):
    """The test case acts as the agent of a guest, and as Nova."""

    def setUp(self):
        super().setUp()
        trove_database.path()
        self.project = f'project-{uuid.uuid4()}'
        self.instance = trove_database.add_instance(self.project, 'volume')
        self.record = test_replaced_instance.record(self.instance.id)
        self.calls = []
        self.bus_error = None
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        self.ram_mib = 1024
        self.replication = start_replication.StartReplication()
        self.agents = replaced_agents.ReplacedAgents(
            CONF, self.guest, self.find_flavor, self.find_replication
        )

    def guest(self, instance_id):
        self.assertEqual(self.instance.id, instance_id)
        return self

    def find_flavor(self, flavor_id):
        self.assertEqual('1', flavor_id)
        return {'id': flavor_id, 'ram': self.ram_mib, 'vcpus': 1}

    def find_replication(self, instance_id):
        self.assertEqual(self.instance.id, instance_id)
        return self.replication

    def create_queue(self):
        self.calls.append('create_queue')
        if self.bus_error is not None:
            raise self.bus_error

    def stop_server(self):
        self.calls.append('stop_server')

    def restart_server(self):
        self.calls.append('restart_server')

    def start_moved_server(self, *arguments, server_id, is_replica, semi_sync):
        self.calls.append((*arguments, server_id))
        self.roles = is_replica, semi_sync
        return PROGRESS

    def start(self):
        self.assertEqual(PROGRESS, self.agents.start_moved_server(self.record))
        return self.calls.pop()

    def test_stops_and_restarts_the_old_server(self):
        self.agents.stop_server(self.instance.id)
        self.agents.restart_server(self.instance.id)
        self.assertEqual(['stop_server', 'restart_server'], self.calls)

    def test_starts_with_the_configuration_of_the_flavor(self):
        replacement_id, version, contents, overrides, server_id = self.start()
        self.assertEqual(('replacement', '9.7', {}), (replacement_id, version, overrides))
        self.assertEqual('new-server', server_id)
        self.assertIn('[mysqld]', contents)
        self.ram_mib = 4096
        self.assertNotEqual(contents, self.start()[2])

    def test_starts_with_the_replication_of_the_instance(self):
        self.start()
        self.assertEqual((False, None), self.roles)
        self.replication = start_replication.StartReplication(True, {'as_replica': True})
        self.start()
        self.assertEqual((True, {'as_replica': True}), self.roles)

    def test_starts_with_the_configuration_group_of_the_instance(self):
        group = configuration_models.Configuration.create(
            'group', '', self.project, None, trove_database.datastore_version()
        )
        configuration_models.DBConfigurationParameter.create(
            configuration_id=group.id,
            configuration_key='max_connections',
            configuration_value='77',
            deleted=False,
        )
        self.instance.update(configuration_id=group.id)
        self.assertEqual({'max_connections': '77'}, self.start()[3])

    def test_deleted_instance(self):
        self.instance.update(deleted=True)
        self.assertRaises(
            exceptions.ReplacementCanceledError, self.agents.start_moved_server, self.record
        )
        self.assertEqual([], self.calls)

    def renew_queues(self, are_deleted=True):
        def delete(conf, instance_id):
            self.calls.append((conf, instance_id))
            return are_deleted

        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.trove_adapter.agent_queues.delete', delete)
        )
        self.agents.renew_queues(self.instance.id)
        return self.calls

    def test_renews_the_queues(self):
        self.assertEqual([(CONF, self.instance.id), 'create_queue'], self.renew_queues())
        self.assertEqual('', self.log.output)

    def test_waits_for_no_bus_that_does_not_answer(self):
        self.assertEqual([(CONF, self.instance.id)], self.renew_queues(are_deleted=False))

    def test_a_queue_that_cannot_be_created_is_no_error(self):
        self.bus_error = exceptions.GuestUnavailableError('instance one: no bus')
        self.renew_queues()
        self.assertIn('are lost: instance one: no bus', self.log.output)
