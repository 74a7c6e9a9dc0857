# SPDX-License-Identifier: Apache-2.0
"""The commands for details of instances, through python-troveclient and Trove's real API."""

import types

import fixtures
from oslo_utils import units

from trove_ceph.db.roles import Role
from trove_ceph.osc import instances
from trove_ceph.tests.unit.api import world
from trove_ceph.tests.unit.osc import harness

TIERS = '''
tiers:
  gold:
    purpose: data
    device_class: nvme
    pool: volumes
    copies: 2
    placement_groups: {count: 32}
    volume_type: {name: nvme, backend: nvme}
'''


class CommandsTest(harness.CommandTestCase):
    prefix = 'database instance detail'

    def setUp(self):
        super().setUp()
        guest = types.SimpleNamespace(get_volume_info=lambda: self.volume)
        self.volume = {'used': 0.25, 'total': 1.0}
        for name, value in (
            ('trove.common.clients.create_guest_client', lambda *_, **__: guest),
            # Trove asks Nova for it.
            ('trove.common.server_group.ServerGroup.load', lambda *_: None),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))

    def damage(self, backup):
        claim = self.world.records.claims.claim(Role.VERIFY, backup.id, world.WORKER)
        self.world.records.results.record_damaged(claim, {}, 1.0, 'page 7 is corrupt')

    def test_lists(self):
        self.world.add_backup(self.instance, 'taken')
        (row,) = self.shown('list')
        self.assertEqual(
            (self.instance.id, 'HEALTHY', 1, 1, None),
            tuple(
                row[title]
                for title in ('ID', 'Operating Status', 'Size (GiB)', 'Good Backups', 'Problem')
            ),
        )
        self.assertNotIn('Used', row)
        (row,) = self.shown('list --long')
        self.assertEqual(
            ('taken', self.world.project), (row['Last Good Backup State'], row['Project ID'])
        )

    def test_lists_with_the_used_space(self):
        (row,) = self.shown('list --used')
        self.assertEqual(units.Gi // 4, row['Used'])
        status, table = self.run_command('list --used')
        self.assertEqual(0, status)
        self.assertIn('256 MiB', table)
        self.assertNotIn('None', table)

    def test_lists_the_others_if_one_is_deleted_meanwhile(self):
        other = self.world.add_instance()
        used_bytes = instances._used_bytes

        def delete_first(api, instance_id):
            other.update(deleted=True)
            return used_bytes(api, instance_id)

        self.useFixture(fixtures.MonkeyPatch('trove_ceph.osc.instances._used_bytes', delete_first))
        found = {row['ID']: row['Used'] for row in self.shown('list --used')}
        self.assertEqual({self.instance.id: units.Gi // 4, other.id: None}, found)

    def test_refuses_negative_limits(self):
        self.damage(self.world.add_backup(self.instance, 'taken'))
        for options in ('--limit -1', '--problems --limit -1', '--limit many'):
            status, _output = self.run_command(f'list {options}')
            self.assertEqual(2, status, options)

    def test_lists_how_replicas_follow(self):
        replica = self.world.add_replica(
            self.instance, is_replicating=True, lag_sec=2.5, lag_transactions=7, own_bytes=4096
        )
        (row,) = [one for one in self.shown('list --long') if one['ID'] == replica.id]
        self.assertEqual(
            (2.5, 7, 4096, '2026-01-01T12:00:00Z', None, None),
            tuple(
                row[title]
                for title in (
                    *('Lag', 'Lag Transactions', 'Replica Own Space', 'Cloned'),
                    *('Reprovisioned', 'Last Reason'),
                )
            ),
        )
        _status, table = self.run_command(f'show {replica.id}')
        self.assertIn('4 KiB', table)

    def test_lists_only_those_with_problems(self):
        damaged = self.world.add_instance()
        self.damage(self.world.add_backup(damaged, 'taken'))
        (row,) = self.shown('list --problems')
        self.assertEqual(damaged.id, row['ID'])
        self.assertIn('damaged', row['Problem'])
        # The limit is that of the list, not of those that are looked at.
        for _ in range(2):
            self.world.add_instance()
        (row,) = self.shown('list --problems --limit 1')
        self.assertEqual(damaged.id, row['ID'])

    def test_shows_the_throughput_without_a_unit_of_time(self):
        self.useFixture(world.TiersFile(f'{TIERS}    throughput_mib_per_sec: 250\n'))
        self.world.restart()
        (row,) = self.shown('list --long')
        self.assertEqual(250, row['Throughput (MiB/s)'])
        _status, table = self.run_command(f'show {self.instance.id}')
        self.assertRegex(table, r'throughput_mib_per_sec +\| 250 +\|')

    def test_shows_the_ids_of_damaged_backups(self):
        _status, table = self.run_command(f'show {self.instance.id}')
        self.assertRegex(table, r'damaged_backups +\| +\|')
        damaged = self.world.add_backup(self.instance, 'taken')
        self.damage(damaged)
        _status, table = self.run_command(f'show {self.instance.id}')
        self.assertRegex(table, rf'damaged_backups +\| {damaged.id} +\|')
        self.assertEqual([damaged.id], self.shown(f'show {self.instance.id}')['damaged_backups'])

    def test_shows(self):
        self.name('shop', self.instance)
        shown = self.shown('show shop')
        self.assertEqual(
            (self.instance.id, units.Gi // 4, []),
            tuple(shown[name] for name in ('id', 'used_bytes', 'damaged_backups')),
        )

    def test_shows_an_instance_whose_agent_is_silent(self):
        self.volume = {}
        status, output = self.run_command(f'show {self.instance.id} -f json')
        self.assertEqual(0, status)
        self.assertIn('"used_bytes": null', output)
