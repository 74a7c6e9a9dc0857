# SPDX-License-Identifier: Apache-2.0
import fixtures
import keystoneauth1.exceptions
import requests
from keystoneauth1 import session
from oslotest import base

from trove_ceph.tests.unit.cinder import cinder_http
from trove_ceph.trove_adapter import service_session


class _Silent(requests.adapters.BaseAdapter):
    """A service that accepts requests and never answers."""

    def __init__(self):
        super().__init__()
        self.waited, self.verified = [], []

    def send(self, request, timeout=None, verify=True, **_options):
        self.waited.append(timeout)
        self.verified.append(verify)
        raise requests.exceptions.ReadTimeout('no answer')


class SilentServiceTestCase(base.BaseTestCase):
    """Has Trove's session, and one service, which never answers."""

    def setUp(self):
        super().setUp()
        self.service = _Silent()
        http = requests.Session()
        http.mount('http://', self.service)
        self.shared = session.Session(
            cinder_http.Token('service', 'admin'), session=http, verify='/etc/ssl/ca.pem'
        )
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.common.clients_admin.get_keystone_session', lambda: self.shared
            )
        )


class ServiceSessionTest(SilentServiceTestCase):
    def ask(self, asked):
        self.assertRaises(
            keystoneauth1.exceptions.ConnectTimeout, asked.get, 'http://nova/', authenticated=True
        )

    def test_a_service_that_never_answers_ends_the_request(self):
        self.ask(service_session.get())
        self.assertEqual([service_session.TIMEOUT_SEC], self.service.waited)
        self.assertEqual(['/etc/ssl/ca.pem'], self.service.verified)

    def test_tokens_are_those_of_troves_session(self):
        self.assertIs(self.shared.auth, service_session.get().auth)

    def test_troves_own_requests_are_not_changed(self):
        service_session.get()
        self.ask(self.shared)
        self.assertEqual([None], self.service.waited)
