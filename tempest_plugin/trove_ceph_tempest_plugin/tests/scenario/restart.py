# SPDX-License-Identifier: Apache-2.0
"""A tenant restarts the server, an operator the virtual machine; no row is lost."""

import time

from tempest import config
from tempest.lib import decorators

from trove_ceph_tempest_plugin import load
from trove_ceph_tempest_plugin.tests import base

CONF = config.CONF


class RestartScenario(base.DatabaseTest):
    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a009')
    def test_restart(self):
        self._interrupt({'restart': {}})

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a010')
    def test_reboot(self):
        self._interrupt({'reboot': {}}, admin=True)

    def _interrupt(self, action, *, admin=False):
        began = time.monotonic()
        rows = self.write_rows()
        with load.Client(self.database.address) as client:
            elapsed = self.act(action, admin=admin)
            self.database.wait_reachable(CONF.trove_ceph.connect_timeout_sec)
            figures = client.figures()
        self.record('interruption', {'seconds_to_healthy': elapsed})
        self.record('client', figures)
        self.assertLessEqual(self.database.uptime_sec(), time.monotonic() - began)
        self.assertEqual(rows, self.rows())
