# SPDX-License-Identifier: Apache-2.0
"""Any value of any key gives a cluster, or an error with its line."""

import re
from pathlib import Path

import fixtures
import yaml
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.sizing import costs, fleet_file, plan, report
from trove_ceph.tests.unit.sizing import sample, test_costs

#: Scalars as people type them: without a unit, too large, of the wrong kind.
TYPED = (
    *('1e308', '.nan', '9' * 5000, '-1', '0', '2', '2.5', '1000', 'true', '~', '[]', '{}'),
    *('{k: 4, m: 2}', '!!int x', '1GiB', '800GB', '64TiB', 'ssd', 'hdd', 'rack', 'capacity'),
)
FLEET = sample.changed(
    {
        'io_size': '16KiB',
        'write_share': 0.5,
        'cluster': {
            'optimised_for': 'iops',
            'device': {
                **{'class': 'nvme', 'size': '3.84TB', 'iops': 40000, 'throughput': '2GB'},
                **{'osds': 1, 'db': 'none'},
            },
            'copies': 3,
            'failure_domain': 'host',
            'nodes_per_rack': 8,
            'nodes': 16,
            'devices_per_node': 2,
            'bays': 4,
            'cores': 40,
            'network_gbit': 25,
            'monitors': 5,
            'fill_percent': 70,
            'pgs_per_osd': 150,
            'pilot': False,
            'recovery': {'hours': 1, 'share': 0.5},
        },
        'hardware': test_costs.HARDWARE | {'db_device': 300},
    }
)
MARK = 'VALUE-OF-THE-TEST'
LOCATED = re.compile(r'\S+\.yaml(, line \d+(: \S.*)?: .+|: is not YAML: .*line \d+.*)', re.DOTALL)
#: What is found only when the cluster is planned names its field itself.
PLANNED = re.compile(r'(databases|cluster\.device\.size|hardware\.currency): .+')


def keys_of(content, path=()):
    """Yield the path of each value."""
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from keys_of(value, (*path, key))


def with_value(content, path, text):
    """Return the text of a file with one value replaced by literal text."""
    steps = '/'.join(map(str, path))
    return yaml.safe_dump(changed(content, steps), sort_keys=False).replace(MARK, text)


def changed(content, steps):
    """Return a copy of content with a mark at a path."""
    copy = yaml.safe_load(yaml.safe_dump(content))
    *parents, last = (int(step) if step.isdecimal() else step for step in steps.split('/'))
    holder = copy
    for step in parents:
        holder = holder[step]
    holder[last] = MARK
    return copy


class AnyValueTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.path = Path(self.useFixture(fixtures.TempDir()).path) / 'file.yaml'

    def check(self, content, path, text, use):
        """Check one value; return whether it is accepted."""
        self.path.write_text(with_value(content, path, text))
        try:
            use(str(self.path))
        except exceptions.InvalidFleetError as error:
            message = str(error)
            is_located = LOCATED.fullmatch(message) or PLANNED.fullmatch(message)
            self.assertTrue(is_located, (path, text[:20], message))
            self.assertLess(len(message), 1500)
            return False
        return True

    def check_all(self, content, use):
        accepted = [
            self.check(content, path, text, use) for path in keys_of(content) for text in TYPED
        ]
        # Neither is everything accepted nor is everything refused.
        self.assertEqual({True, False}, set(accepted))

    def test_the_example_is_valid(self):
        self.assertEqual((), plan.make(fleet_file.parse(FLEET)).violations)

    def test_fleet_file(self):
        prices = costs.load(None)

        def use(path):
            planned = plan.make(fleet_file.load(path, {}))
            made = report.Report(planned, costs.compare(planned, prices))
            self.assertIn('Cluster: ', report.text(made, explain=True))
            self.assertEqual(planned.nodes, report.document(made)['cluster']['nodes'])

        self.check_all(FLEET, use)

    def test_price_table(self):
        planned = sample.cluster()
        self.check_all(
            {'prices': [test_costs.PRICE]}, lambda path: costs.compare(planned, costs.load(path))
        )
