# SPDX-License-Identifier: Apache-2.0
"""Tests of the view on the cloud's warm guests."""

import json

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph_tempest_plugin import guests

GUEST = {'guest_id': 'g', 'state': 'bound', 'answer_sec': 1, 'instance_id': 'i'}


class GuestsTest(base.BaseTestCase):
    def test_reads_the_output_of_the_command(self):
        path = self.useFixture(fixtures.TempDir()).join('two words')
        with open(path, 'w') as listed:
            json.dump([GUEST], listed)
        pool = guests.pool(f"cat '{path}'")
        self.assertTrue(pool.is_bound_to('i', ['g']))
        self.assertFalse(pool.is_bound_to('i', ['h']))

    def test_failing_command_is_an_error(self):
        pool = guests.pool("sh -c 'echo no database >&2; exit 3'")
        error = self.assertRaises(exceptions.TroveCephError, pool.is_bound_to, 'i', ['g'])
        self.assertIn('exited with 3: no database', str(error))
