# SPDX-License-Identifier: Apache-2.0
import os

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import reserved_user


class ReservedUserTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        # Nothing else that runs these tests has the same.
        self.first = 2_000_000_000 + os.getpid() * 10

    def user(self, count=2):
        return reserved_user.ReservedUser(self.first, count)

    def test_users_at_a_time_have_ids_of_their_own(self):
        with self.user() as one, self.user() as other:
            self.assertEqual((self.first, self.first + 1), (one.uid, other.uid))
            error = self.assertRaises(exceptions.NotInspectableError, self.user().__enter__)
        self.assertIn(f'from {self.first} to {self.first + 1}', str(error))

    def test_an_id_is_given_back(self):
        with self.user(1) as one:
            uid = one.uid
        with self.user(1) as other:
            self.assertEqual(uid, other.uid)
