# SPDX-License-Identifier: Apache-2.0
from unittest import mock

import fixtures
from oslotest import base
from trove.instance.service_status import ServiceStatuses

from trove_ceph.guestagent import server_status


class ServerStatusTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.container, self.accepts, self.now = 'running', True, 1000.0
        self.asked = []
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.guestagent.utils.docker.get_container_status', lambda _: self.container
            )
        )
        self.is_prepared = True
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.guestagent.server_status.ServerStatus.is_installed',
                property(lambda _: self.is_prepared),
            )
        )
        self.subject = server_status.ServerStatus(None, self.ask, lambda: self.now)

    def ask(self, is_refusal_accepted):
        self.asked.append(is_refusal_accepted)
        return self.accepts

    def status(self, **facts):
        vars(self).update(facts)
        return self.subject.get_actual_db_status()

    def test_server_that_accepts_clients_is_healthy(self):
        self.assertEqual(ServiceStatuses.HEALTHY, self.status())

    def test_silent_server_runs_at_first_and_has_crashed_later(self):
        since = self.now
        for expected, seconds in (
            (ServiceStatuses.RUNNING, 0),
            (ServiceStatuses.RUNNING, server_status.CRASHED_AFTER_SEC - 1),
            (ServiceStatuses.CRASHED, server_status.CRASHED_AFTER_SEC),
            (ServiceStatuses.CRASHED, 3600),
        ):
            self.assertEqual(expected, self.status(accepts=False, now=since + seconds), seconds)

    def test_silence_begins_anew_after_an_answer_and_after_a_stop(self):
        for between in ({'accepts': True}, {'container': 'exited'}):
            self.status(accepts=False, container='running')
            self.status(**between)
            later = self.now + server_status.CRASHED_AFTER_SEC
            self.assertEqual(
                ServiceStatuses.RUNNING,
                self.status(accepts=False, container='running', now=later),
                between,
            )

    def test_server_whose_container_does_not_run_is_not_asked(self):
        for container, expected in (
            ('created', ServiceStatuses.SHUTDOWN),
            ('exited', ServiceStatuses.SHUTDOWN),
            ('dead', ServiceStatuses.SHUTDOWN),
            ('removing', ServiceStatuses.SHUTDOWN),
            ('not running', ServiceStatuses.SHUTDOWN),
            ('restarting', ServiceStatuses.CRASHED),
            ('paused', ServiceStatuses.CRASHED),
        ):
            self.assertEqual(expected, self.status(container=container), container)
        self.assertEqual([], self.asked)

    def test_upgrade_is_reported_until_its_end(self):
        with self.subject.of_upgrade():
            self.now += 3600
            self.assertEqual(ServiceStatuses.UPGRADING, self.subject.get_reported_status())
            # The start of the new server waits for this.
            self.assertEqual(ServiceStatuses.HEALTHY, self.status())
        self.assertEqual(ServiceStatuses.HEALTHY, self.subject.get_reported_status())

    def test_failed_upgrade_is_reported_for_a_while(self):
        """Trove would take the server, which goes on, for upgraded."""
        self.subject.set_status = sent = mock.Mock()
        try:
            with self.subject.of_upgrade():
                raise RuntimeError
        except RuntimeError:
            sent.assert_called_once_with(ServiceStatuses.FAILED)
        self.now += server_status.FAILED_UPGRADE_SEC - 1
        self.assertEqual(ServiceStatuses.FAILED, self.subject.get_reported_status())
        self.now += 1
        self.assertEqual(ServiceStatuses.HEALTHY, self.subject.get_reported_status())

    def test_server_answers_while_docker_does_not(self):
        for accepts, expected in (
            (True, ServiceStatuses.HEALTHY),
            (False, ServiceStatuses.UNKNOWN),
        ):
            self.assertEqual(expected, self.status(container='unknown', accepts=accepts))

    def test_refusal_is_an_answer_once_the_instance_is_prepared(self):
        for is_prepared in (False, True):
            self.status(is_prepared=is_prepared)
        self.assertEqual([False, True], self.asked)

    def test_refusal_is_an_answer_while_an_existing_database_is_started(self):
        self.status(is_prepared=False)
        try:
            with self.subject.of_existing_database():
                self.status()
                raise RuntimeError
        except RuntimeError:
            self.status()
        self.assertEqual([False, True, False], self.asked)
