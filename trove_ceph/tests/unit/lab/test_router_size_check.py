# SPDX-License-Identifier: Apache-2.0
import json
from unittest import mock

import router_size_check
from oslotest import base

NORTHBOUND = 'tcp:127.0.0.1:6641'
CHECKED, EXEMPT = {'gateway_mtu': '1442'}, {'gateway_mtu': '1442', 'gateway_mtu_bypass': 'tcp'}


class RouterSizeCheckTest(base.BaseTestCase):
    def exempt(self, **ports):
        """Return the names of changed ports, and the ids and settings that OVN got."""
        rows = [
            [['uuid', f'id-of-{name}'], name, ['map', list(map(list, options.items()))]]
            for name, options in ports.items()
        ]
        answer = json.dumps({'headings': ['_uuid', 'name', 'options'], 'data': rows})
        run = mock.Mock(side_effect=[answer, *[''] * len(rows)])
        changed = router_size_check.exempt_tcp(NORTHBOUND, run)
        commands = [call.args[0] for call in run.call_args_list]
        for command in commands:
            self.assertIn(f'--db={NORTHBOUND}', command)
        return changed, [tuple(command[-2:]) for command in commands[1:]]

    def test_exempts_ports_with_a_size_check(self):
        setting = 'options:gateway_mtu_bypass=tcp'
        self.assertEqual(
            (['a', 'b'], [('id-of-a', setting), ('id-of-b', setting)]),
            self.exempt(a=CHECKED, exempt=EXEMPT, b=CHECKED, inner={}),
        )

    def test_replaces_another_exemption(self):
        changed, _ = self.exempt(a=CHECKED | {'gateway_mtu_bypass': 'udp'})
        self.assertEqual(['a'], changed)

    def test_leaves_all_other_ports_alone(self):
        self.assertEqual(([], []), self.exempt(exempt=EXEMPT, inner={}))
