# SPDX-License-Identifier: Apache-2.0
import testscenarios
from oslotest import base

from trove_ceph.tests.unit.tiers import arrangements, sample, world


class ProblemsTestCase(testscenarios.WithScenarios, base.BaseTestCase):
    """Problems, on an empty cluster or one that matches the unchanged file."""

    scenarios = [
        (name, {'changes': changes, 'arrange': arrange, 'options': options, 'expected': expected})
        for name, options, changes, arrange, expected in (
            (
                'class without an OSD',
                {},
                {'tiers/fast/device_class': 'ssd'},
                None,
                'tier fast: there is no OSD of device class ssd',
            ),
            (
                'failure domain with too few members',
                {'hosts': 1},
                {'tiers/vault': None},
                None,
                'tier fast: 2 copies need 2 of failure domain host with OSDs of device class nvme '
                'under default, there is 1',
            ),
            (
                'failure domain without members',
                {},
                {'tiers/fast/failure_domain': 'rack'},
                None,
                'tier fast: 2 copies need 2 of failure domain rack',
            ),
            (
                'code that cannot be placed',
                {},
                {'tiers/vault/erasure': {'k': 4, 'm': 2}},
                None,
                'tier vault: the code 4+2 needs 6 of failure domain host',
            ),
            (
                'metadata without an OSD',
                {},
                {'tiers/vault/erasure/metadata_device_class': 'ssd'},
                None,
                'tier vault: there is no OSD of device class ssd',
            ),
            (
                'more placement groups than OSDs may have',
                {},
                {'tiers/fast/placement_groups': {'count': 1024}},
                None,
                'device class nvme: 344 placement groups on each OSD, including copies, exceed '
                'mon_max_pg_per_osd = 250',
            ),
            (
                'new pool with one copy',
                {'single_copies': False},
                {},
                None,
                'pool replicas is to have one copy, and the monitors refuse that: run "ceph config '
                'set mon mon_allow_pool_size_one true" first',
            ),
            (
                'pool that loses its other copies',
                {},
                {'tiers/fast/copies': 1, 'tiers/fast/allow_single_copy': True},
                lambda fakes: setattr(fakes.ceph, 'single_copies', False),
                'pool volumes-fast is to have one copy',
            ),
            (
                'pool on another class',
                {},
                {},
                arrangements.pool('volumes-fast', crush_rule=3),
                'pool volumes-fast exists on hdd by host under default, not on nvme by host',
            ),
            (
                'pool with a rule of its own kind',
                {},
                {},
                lambda fakes: fakes.ceph.rules[1]['steps'].append({'op': 'take', 'item_name': 'x'}),
                'with the CRUSH rule nvme-host, which tiers do not support',
            ),
            (
                'pool of the other type',
                {},
                {},
                arrangements.pool('volumes-fast', type=3, erasure_code_profile='default'),
                'pool volumes-fast exists and is erasure-coded, not replicated',
            ),
            (
                'code of a pool',
                {'hosts': 4},
                {'tiers/vault/erasure/m': 2},
                lambda fakes: None,
                'pool vault-data exists and is coded 2+1, not 2+2, which cannot change',
            ),
            (
                'profile of that name',
                {},
                {},
                lambda fakes: fakes.ceph.profiles['vault-data'].update(technique='cauchy'),
                'erasure code profile vault-data exists with other values',
            ),
            (
                'rule of that name',
                {},
                {},
                lambda fakes: fakes.ceph.rules[1]['steps'][0].update(item_name='default~hdd'),
                'CRUSH rule nvme-host exists and places on hdd by host under default, not on nvme',
            ),
            (
                'type in use with another back end',
                {},
                {'tiers/fast/volume_type/backend': 'other'},
                lambda fakes: fakes.cinder.add_volume('fast', 10),
                'volume type fast is in use by 1 volumes with the back end fast, not other',
            ),
            (
                'version that does not exist',
                {},
                {'tiers/fast/datastore_versions': ['mysql/1']},
                None,
                'datastore version mysql/1 does not exist in Trove',
            ),
        )
    ]

    def test_problem(self):
        fakes = world.World(**self.options)
        if self.arrange:
            fakes.apply(sample.read())
            self.arrange(fakes)
        before = fakes.state()
        content = sample.read(self.changes)
        plan = fakes.plan(content)
        self.assertIn(self.expected, '\n'.join(plan.problems))
        self.assertEqual(before, fakes.state())
