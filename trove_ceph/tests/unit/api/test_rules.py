# SPDX-License-Identifier: Apache-2.0
"""The default policies, as operators see and override them."""

from pathlib import Path

import fixtures
from oslo_policy import policy as oslo_policy
from oslotest import base
from trove.common import policy as trove_policy

import trove_ceph
from trove_ceph.api import rules
from trove_ceph.tests.unit.api import world

PAGES = Path(trove_ceph.__file__).parent.parent / 'doc/source/admin'


def _page(rule):
    """Return the name of the page that describes a rule."""
    resource = rule.partition(':')[0]
    pages = {'failover': 'failover', 'failover_policy': 'automatic-failover'}
    pages['instance_detail'] = 'instance-details'
    pages |= dict.fromkeys(('replication', 'replication_policy'), 'replicas')
    return pages.get(resource, 'backup-policies')


class RulesTest(base.BaseTestCase):
    def test_each_rule_has_a_description(self):
        for rule in rules.list_rules():
            page = (PAGES / f'{_page(rule.name)}.rst').read_text()
            row = f'   * - ``{rule.name}``\n     - ``{rule.check_str}``\n     - '
            self.assertIn(row, page)

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
