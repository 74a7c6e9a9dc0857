# SPDX-License-Identifier: Apache-2.0
"""The certificates of MySQL in a guest, with a Trove that manages them and with one that does not.

The contract tests compare the fake manager's methods with Trove's.
"""

import types

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.trove_compat import mysql_tls

OF_SOURCE = {'cert_container': 'of the source', 'ssl_mode': 'enforced'}


class Manager:
    """The part of Trove's manager that knows certificates."""

    def __init__(self):
        self.enabled = []

    @staticmethod
    def ssl_mode_at_least(current_mode, required_mode):
        return current_mode in ('basic', 'enforced') and required_mode == 'basic'

    @staticmethod
    def _read_ssl_files():
        return 'of the volume'

    def enable_ssl_certificate(self, mode, cert_container, **options):
        self.enabled.append((mode, cert_container, options))


class CertificatesTest(base.BaseTestCase):
    OF_A_START = {'apply_overrides': False, 'is_startup': True}

    def setUp(self):
        super().setUp()
        self.manager = Manager()
        self.set_trove(types.SimpleNamespace(MODE_BASIC='basic'))

    def set_trove(self, ssl):
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.trove_compat.mysql_tls.ssl', ssl))

    def conf(self, mode):
        return types.SimpleNamespace(ssl_mode=mode)

    def test_own(self):
        mysql_tls.enable_own(self.manager, self.conf('basic'))
        self.assertEqual([('basic', 'of the volume', self.OF_A_START)], self.manager.enabled)
        self.assertEqual(
            {'cert_container': 'of the volume', 'ssl_mode': 'basic'},
            mysql_tls.own_certificates(self.manager, self.conf('basic')),
        )

    def test_of_the_source(self):
        mysql_tls.enable_of_source(self.manager, OF_SOURCE)
        self.assertEqual([('enforced', 'of the source', self.OF_A_START)], self.manager.enabled)

    def test_without_certificates(self):
        mysql_tls.enable_own(self.manager, self.conf('None'))
        mysql_tls.enable_of_source(self.manager, {})
        self.assertEqual([], self.manager.enabled)
        self.assertEqual({}, mysql_tls.own_certificates(self.manager, self.conf('None')))

    def test_trove_without_certificates(self):
        """Its option is not even registered."""
        self.set_trove(None)
        mysql_tls.enable_own(self.manager, types.SimpleNamespace())
        self.assertEqual({}, mysql_tls.own_certificates(self.manager, types.SimpleNamespace()))
        mysql_tls.enable_of_source(self.manager, {})
        self.assertEqual([], self.manager.enabled)
        error = self.assertRaises(
            exceptions.ServerFailedError, mysql_tls.enable_of_source, self.manager, OF_SOURCE
        )
        self.assertIn('build the guest image with Trove 26', str(error))
