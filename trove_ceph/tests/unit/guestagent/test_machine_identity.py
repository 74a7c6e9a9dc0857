# SPDX-License-Identifier: Apache-2.0
import os

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.guestagent import machine_identity

SERVER = '0f4dbe1a-7f0c-4d7e-9f2f-1b4a3f6c9d20'


class MachineIdentityTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.useFixture(fixtures.TempDir()).path, 'product_uuid')
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.guestagent.machine_identity.PATH', self.path)
        )
        self.useFixture(fixtures.MonkeyPatch('os.geteuid', lambda: 0))

    def write(self, text):
        with open(self.path, 'w', encoding='utf-8') as file:
            file.write(text)

    def test_reads_the_id_that_nova_gave_the_machine(self):
        for text in (f'{SERVER}\n', f'{SERVER.upper()}\n'):
            self.write(text)
            self.assertEqual(SERVER, machine_identity.check(SERVER))
            self.assertEqual(SERVER, machine_identity.check(SERVER.upper()))

    def test_another_server_refuses(self):
        self.write(SERVER)
        other = SERVER.replace('0f4d', 'ffff')
        error = self.assertRaises(exceptions.GuestUnavailableError, machine_identity.check, other)
        self.assertIn(SERVER, str(error))
        self.assertIn(other, str(error))

    def test_machine_without_an_id_refuses(self):
        for text in ('', 'not an id', '00000000-0000-0000-0000-00000000000'):
            self.write(text)
            error = self.assertRaises(
                exceptions.GuestUnavailableError, machine_identity.check, SERVER
            )
            self.assertIn(self.path, str(error))
        os.remove(self.path)
        self.assertRaises(exceptions.GuestUnavailableError, machine_identity.check, SERVER)
