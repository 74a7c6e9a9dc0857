# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of datastore versions; test_checks.py has them broken and well."""

from oslotest import base

from trove_ceph.doctor import checks
from trove_ceph.tests.unit.doctor import facts
from trove_ceph.tests.unit.doctor.version_facts import lost


class VersionsTest(base.BaseTestCase):
    def test_lost_version_says_what_is_lost_and_how_to_get_it_back(self):
        (one,) = (each for each in checks.ALL if each.name == 'mysql-versions')
        (found,) = one.run(facts.FakeSources(**lost(backups=(facts.backup(),))))
        self.assertIn('guest manager trove.Manager; 1 of its instances', found.observed)
        self.assertIn('--registry-ext trove_ceph.guestagent.manager.Manager', found.command)
