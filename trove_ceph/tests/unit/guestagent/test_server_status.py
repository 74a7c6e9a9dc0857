# SPDX-License-Identifier: Apache-2.0
import fixtures
from oslotest import base
from trove.instance.service_status import ServiceStatuses

from trove_ceph.guestagent import server_status


class ServerStatusTest(base.BaseTestCase):
    def status(self, health, accepts, container='running'):
        docker = 'trove.guestagent.utils.docker'
        self.useFixture(fixtures.MonkeyPatch(f'{docker}.get_container_health', lambda _: health))
        self.useFixture(fixtures.MonkeyPatch(f'{docker}.get_container_status', lambda _: container))
        return server_status.ServerStatus(None, lambda: accepts).get_actual_db_status()

    def test_server_that_accepts_clients_is_healthy_before_docker_knows(self):
        for health, otherwise in (
            ('starting', ServiceStatuses.RUNNING),
            ('unhealthy', ServiceStatuses.CRASHED),
        ):
            self.assertEqual(ServiceStatuses.HEALTHY, self.status(health, True))
            self.assertEqual(otherwise, self.status(health, False))

    def test_docker_knows_the_rest(self):
        for accepts in (True, False):
            for expected, facts in (
                (ServiceStatuses.HEALTHY, {'health': 'healthy'}),
                (ServiceStatuses.SHUTDOWN, {'health': 'not running'}),
                (ServiceStatuses.SHUTDOWN, {'health': 'unhealthy', 'container': 'exited'}),
                (ServiceStatuses.UNKNOWN, {'health': 'unknown'}),
            ):
                self.assertEqual(expected, self.status(accepts=accepts, **facts), facts)
