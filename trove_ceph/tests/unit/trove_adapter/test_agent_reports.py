# SPDX-License-Identifier: Apache-2.0
"""When an agent reported last, as Trove's conductor and ours record it."""

import datetime
import uuid

import fixtures
from oslotest import base
from trove.common import context
from trove.conductor import manager as trove_manager
from trove.conductor import models as conductor_models
from trove.instance import models, service_status

from trove_ceph.conductor import manager
from trove_ceph.db import transactions
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.trove_compat import rpc_messages
from trove_ceph.trove_adapter import agent_reports

NOW = datetime.datetime(2030, 1, 1)


class AgentReportsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(rpc_messages.Bus())
        self.instance = trove_database.add_instance(str(uuid.uuid4()), str(uuid.uuid4()))
        self.addCleanup(self.instance.delete)
        self.sent = 100.0

    def report(self, manager_type=manager.Manager, sent=None):
        """Have the agent report that its server is healthy."""
        self.sent += 10
        manager_type().heartbeat(
            context.TroveContext(instance_id=self.instance.id),
            self.instance.id,
            {'service_status': 'healthy'},
            sent or self.sent,
        )

    def row(self):
        return models.InstanceServiceStatus.find_by(instance_id=self.instance.id)

    def require_restart(self):
        row = self.row()
        row.set_status(service_status.ServiceStatuses.RESTART_REQUIRED)
        row.save()
        # As if the report before was long ago.
        agent_reports.note(
            self.instance.id, None, transactions.Transactions(clock=lambda: NOW.replace(year=2000))
        )

    def test_a_server_that_has_to_be_restarted_reports(self):
        self.require_restart()
        self.report()
        row = self.row()
        self.assertEqual('RESTART_REQUIRED', row.status.api_status)
        self.assertGreater(row.updated_at.year, 2000)

    def test_troves_own_conductor_does_not_record_it(self):
        """Once this fails, Trove needs no other manager for it."""
        self.require_restart()
        self.report(trove_manager.Manager)
        self.assertEqual(2000, self.row().updated_at.year)

    def test_a_report_has_the_time_of_the_database(self):
        """The clock of the conductor's host may be wrong."""
        wrong = fixtures.MonkeyPatch('trove.common.timeutils.utcnow', lambda: NOW)
        with wrong:
            self.report()
        self.assertLess(self.row().updated_at, NOW)

    def test_a_report_that_was_overtaken_is_not_recorded(self):
        self.report()
        self.require_restart()
        self.report(sent=self.sent - 20)
        self.assertEqual(2000, self.row().updated_at.year)

    def test_times_of_reports_are_rounded(self):
        conductor_models.LastSeen.create(self.instance.id, 'heartbeat', 100.0005).save()
        at = transactions.Transactions(clock=lambda: NOW)
        for sent, expected in ((99.0, False), (100.0, True), (None, True)):
            self.require_restart()
            agent_reports.note(self.instance.id, sent, at)
            self.assertEqual(expected, self.row().updated_at == NOW, sent)
