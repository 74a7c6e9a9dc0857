# SPDX-License-Identifier: Apache-2.0
"""An operator empties a host before its maintenance, while clients work on a database there."""

from tempest import config
from tempest.lib import decorators

from trove_ceph_tempest_plugin import management
from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import failover

CONF = config.CONF
REASON = 'new memory'


class TestMoveHost(failover.FailingHostTestCase):
    """The host works all the time; Nova places no server there."""

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not CONF.trove_ceph.manage_command:
            raise cls.skipException('[trove_ceph] manage_command is not set')

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a068')
    def test_move_host(self):
        """The database moves to another host, and the tenant reads that an operator moved it."""
        completed = self.survive(self._disable_host, request=self._move)
        self.assertNotEqual(self.host, self._server()[1])
        found = {name: completed[name] for name in ('requested_by', 'cause', 'reason')}
        self.assertEqual(
            {'requested_by': 'operator', 'cause': 'maintenance', 'reason': REASON}, found
        )

    def _disable_host(self):
        services = self.os_admin.services_client
        service = {'host': self.host, 'binary': 'nova-compute'}
        self.addCleanup(services.enable_service, **service)
        services.disable_log_reason(**service, disabled_reason=REASON)

    def _move(self):
        """Empty the host, and return the id of the failover of the database."""
        moved = management.Management(CONF.trove_ceph.manage_command).move_host(self.host, REASON)
        self.assertIn(self.instance_id, moved)
        (found,) = self.failovers.of_instance(self.instance_id)
        return found['id']


def load_tests(loader, tests, pattern):
    return base.on_volume_types(loader, everywhere=None, first=TestMoveHost)
