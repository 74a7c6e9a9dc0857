# SPDX-License-Identifier: Apache-2.0
"""The default policies, as operators see and override them."""

import re
from pathlib import Path

import fixtures
from oslo_policy import policy as oslo_policy
from oslotest import base
from trove.common import policy as trove_policy

import trove_ceph
from trove_ceph.api import rules
from trove_ceph.tests.unit.api import world

PAGES = Path(trove_ceph.__file__).parent.parent / 'doc/source/admin'


class RulesTest(base.BaseTestCase):
    def test_a_page_lists_each_rule_once(self):
        listed = [
            resource
            for page in sorted(PAGES.glob('*.rst'))
            for arguments in re.findall(r'(?m)^\.\. policy-rules:: (.+)$', page.read_text())
            for resource in arguments.split()
        ]
        resources = {rule.name.partition(':')[0] for rule in rules.list_rules()}
        self.assertEqual(sorted(resources), sorted(listed))

    def test_each_rule_has_a_description(self):
        for rule in rules.list_rules():
            self.assertRegex(rule.description, r'^[A-Z].+\.$', rule.name)

    def test_operators_override_rules(self):
        # An enforcer of its own, so that other tests are not affected.
        self.useFixture(fixtures.MonkeyPatch('trove.common.policy._ENFORCER', None))
        api = self.useFixture(world.World())
        rules.register()
        instance = api.add_instance()
        enforcer = trove_policy.get_enforcer()
        request = {'backup_detail': {'instance': instance.id, 'name': 'frozen'}}
        for check, expected in (('!', 403), ('rule:admin_or_owner', 202)):
            changed = oslo_policy.Rules.from_dict({'backup_detail:create': check})
            enforcer.set_rules(changed, overwrite=False)
            status, body = api.ask('POST', '/backup_details', request)
            self.assertEqual(expected, status, body)
