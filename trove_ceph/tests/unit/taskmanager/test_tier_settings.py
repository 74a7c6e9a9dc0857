# SPDX-License-Identifier: Apache-2.0
"""Guests get the rates of their own tiers."""

import types

import fixtures
import yaml
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.mysql import tuning
from trove_ceph.strategies.backup import backup_types
from trove_ceph.taskmanager import tier_settings

FLASH = tuning.Tier(30, 3000, 20000)
DISKS = tuning.Tier(1, 60, 1000)


def tier(name, rate=None):
    described = {
        'purpose': 'data',
        'device_class': name,
        'pool': name,
        'copies': 2,
        'placement_groups': {'count': 8},
        'volume_type': {'name': name, 'backend': name},
    }
    if rate:
        given = {'per_gib': rate.iops_per_gib, 'floor': rate.iops_floor, 'cap': rate.iops_cap}
        described['iops'] = given
    return described


class TierSettingsTest(base.BaseTestCase):
    """The test case acts as Cinder and as all guests."""

    def setUp(self):
        super().setUp()
        self.path = self.useFixture(fixtures.TempDir()).join('tiers.yaml')
        self.write(flash=tier('flash', FLASH), disks=tier('disks', DISKS), plain=tier('plain'))
        self.now = 0.0
        self.types = {}
        self.elsewhere = {}
        self.sent = []
        self.down = set()
        self.settings = tier_settings.TierSettings(self, self.path, self.guest, lambda: self.now)

    def write(self, **tiers):
        with open(self.path, 'w') as file:
            yaml.safe_dump({'tiers': tiers}, file)

    def list_own_volumes(self):
        return [
            types.SimpleNamespace(id=name, volume_type=kind) for name, kind in self.types.items()
        ]

    def find_volume(self, volume_id):
        found = (self.types | self.elsewhere).get(volume_id)
        return found and types.SimpleNamespace(id=volume_id, volume_type=found)

    def guest(self, instance_id):
        def apply_tier(rate):
            if instance_id in self.down:
                raise exceptions.GuestUnavailableError('no answer')
            self.sent.append((instance_id, rate))
            return True

        return types.SimpleNamespace(apply_tier=apply_tier)

    def send_due(self, *names, **facts):
        self.sent.clear()
        self.settings.send_due(
            [backup_types.Instance(name, 'project', f'volume-of-{name}', **facts) for name in names]
        )
        return self.sent

    def test_sends_each_guest_the_rate_of_its_tier(self):
        self.types = {'volume-of-a': 'flash', 'volume-of-b': 'disks', 'volume-of-c': 'plain'}
        self.assertEqual([('a', FLASH), ('b', DISKS), ('c', None)], self.send_due('a', 'b', 'c'))
        self.assertEqual([], self.send_due('a', 'b', 'c'))

    def test_sends_the_rate_again_after_a_retype(self):
        self.types = {'volume-of-a': 'flash'}
        self.send_due('a')
        self.types = {'volume-of-a': 'disks'}
        self.assertEqual([('a', DISKS)], self.send_due('a'))

    def test_sends_the_rate_again_after_a_change_of_the_tier(self):
        self.types = {'volume-of-a': 'disks'}
        self.send_due('a')
        self.write(disks=tier('disks', FLASH))
        self.assertEqual([('a', FLASH)], self.send_due('a'))

    def test_sends_the_rate_to_a_rebuilt_guest_within_the_hour(self):
        self.types = {'volume-of-a': 'disks'}
        self.send_due('a')
        self.now = 3599
        self.assertEqual([], self.send_due('a'))
        self.now = 3600
        self.assertEqual([('a', DISKS)], self.send_due('a'))

    def test_a_guest_that_does_not_answer_delays_no_other(self):
        self.types = {'volume-of-a': 'disks', 'volume-of-b': 'disks'}
        self.down = {'a'}
        self.assertEqual([('b', DISKS)], self.send_due('a', 'b'))
        self.down = set()
        self.assertEqual([], self.send_due('a', 'b'))
        self.now = 600
        self.assertEqual([('a', DISKS)], self.send_due('a', 'b'))

    def test_skips_instances_on_no_tier_and_with_other_agents(self):
        self.types = {'volume-of-a': 'lvm', 'volume-of-b': 'disks'}
        self.assertEqual([], self.send_due('a', 'without-a-volume'))
        self.assertEqual([], self.send_due('b', has_our_guest_agent=False))
        self.assertEqual([], self.send_due('b', is_deleting=True))
        self.assertEqual([], self.send_due('b', is_building=True))
        self.assertEqual([('b', DISKS)], self.send_due('b'))

    def test_finds_a_volume_of_another_project(self):
        self.elsewhere = {'volume-of-a': 'disks'}
        self.assertEqual([('a', DISKS)], self.send_due('a'))

    def test_sends_the_rate_to_a_new_instance(self):
        self.types = {'volume-of-a': 'disks'}
        instance = backup_types.Instance('a', 'project', 'volume-of-a')
        self.settings.send(instance)
        self.assertEqual([('a', DISKS)], self.sent)
        self.assertEqual([], self.send_due('a'))

    def test_logs_a_failure_for_a_new_instance(self):
        self.types = {'volume-of-a': 'disks'}
        self.down = {'a'}
        self.settings.send(backup_types.Instance('a', 'project', 'volume-of-a'))
        with open(self.path, 'w') as file:
            file.write('nonsense')
        self.settings.send(backup_types.Instance('a', 'project', 'volume-of-a'))
        self.assertEqual([], self.sent)

    def test_removes_deleted_instances_from_the_cache(self):
        self.types = {'volume-of-a': 'disks'}
        self.send_due('a')
        self.send_due()
        self.assertEqual([('a', DISKS)], self.send_due('a'))
