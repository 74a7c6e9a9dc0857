# SPDX-License-Identifier: Apache-2.0
import testscenarios
from oslotest import base

from trove_ceph.tests.unit.tiers import sample, world
from trove_ceph.tiers import planning, render, resources

MOVES, LOWERS, REVOKES = '--yes-move-data', '--yes-lower-redundancy', '--yes-revoke-access'


def pool(name, **values):
    def arrange(fakes):
        fakes.ceph.pools[name] |= values

    return arrange


def options(name, **values):
    def arrange(fakes):
        fakes.ceph.pools[name]['options'] |= values

    return arrange


def volume_type(**values):
    def arrange(fakes):
        fakes.cinder.types['id-of-fast'] |= values

    return arrange


def user_has(**caps):
    def arrange(fakes):
        fakes.ceph.users['client.glance'] |= caps

    return arrange


def without(kind, name):
    def arrange(fakes):
        del getattr(fakes.ceph, kind)[name]

    return arrange


def associated(*names):
    def arrange(fakes):
        fakes.trove.associations['mysql/9.7.4'] = set(names)

    return arrange


def qos(**values):
    def arrange(fakes):
        fakes.cinder.qos['id-of-fast'] |= values

    return arrange


def rule(domain):
    """Place the pool of images on hdd with another failure domain."""

    def arrange(fakes):
        fakes.ceph._create_rule(['other', 'default', domain, 'hdd'])
        fakes.ceph.pools['images']['crush_rule'] = len(fakes.ceph.rules) - 1

    return arrange


class ChangesTestCase(testscenarios.WithScenarios, base.BaseTestCase):
    """Changes and their risks, starting from a cloud that matches the file."""

    scenarios = [
        (name, {'arrange': arrange, 'expected': expected})
        for name, arrange, expected in (
            ('nothing', lambda fakes: None, []),
            ('pool missing', without('pools', 'images'), [('pool images: create', [])]),
            (
                'fewer copies than described',
                pool('images', size=1, min_size=1),
                [('pool images: size 1 -> 2', [MOVES])],
            ),
            (
                'more copies than described',
                pool('images', size=3),
                [('pool images: size 3 -> 2', [LOWERS])],
            ),
            (
                'copies of an unfinished pool that holds nothing',
                pool('images', size=3, application_metadata={}),
                [('pool images: size 3 -> 2', []), ('pool images: rbd no -> yes', [])],
            ),
            (
                'fewer copies needed for a write',
                pool('images', min_size=2),
                [('pool images: min_size 2 -> 1', [LOWERS])],
            ),
            (
                'more copies needed for a write',
                pool('vault-data', min_size=1),
                [('pool vault-data: min_size 1 -> 2', [])],
            ),
            (
                'other number of placement groups',
                pool('volumes-fast', pg_num_target=32),
                [('pool volumes-fast: pg_num 32 -> 64', [MOVES])],
            ),
            ('number that the autoscaler chose', pool('images', pg_num_target=8), []),
            (
                'autoscaler switched on',
                pool('volumes-fast', pg_autoscale_mode='on'),
                [('pool volumes-fast: autoscale on -> off', [])],
            ),
            (
                'autoscaler switched off',
                pool('images', pg_autoscale_mode='off'),
                [('pool images: autoscale off -> on', [MOVES])],
            ),
            (
                'autoscaler with another share',
                options('images', target_size_ratio=0.5),
                [('pool images: target_size_ratio 0.5 -> 0.1', [MOVES])],
            ),
            (
                'compressed',
                options('volumes-fast', compression_mode='force', compression_algorithm='zlib'),
                [('pool volumes-fast: compression_mode force -> none', [])],
            ),
            (
                'compressed otherwise',
                options('vault-data', compression_algorithm='lz4'),
                [('pool vault-data: compression_algorithm lz4 -> zstd', [])],
            ),
            (
                'no overwrites',
                pool('vault-data', flags_names='hashpspool'),
                [('pool vault-data: overwrites no -> yes', [])],
            ),
            (
                'data elsewhere',
                pool('vault', _data_pool='other'),
                [('pool vault: data_pool other -> vault-data', [])],
            ),
            (
                'narrower failure domain',
                rule('osd'),
                [('pool images: rule other -> hdd-host', [MOVES])],
            ),
            (
                'wider failure domain',
                rule('rack'),
                [('pool images: rule other -> hdd-host', [MOVES, LOWERS])],
            ),
            ('rule of another name that does the same', rule('host'), []),
            (
                'user missing',
                without('users', 'client.glance'),
                [('cephx user client.glance: create', [])],
            ),
            (
                'user with less',
                user_has(mgr=''),
                [('cephx user client.glance: caps + mgr profile rbd pool=images', [])],
            ),
            (
                'user with more',
                user_has(mds='allow *'),
                [],
            ),
            (
                'type of another back end',
                volume_type(extra_specs={'volume_backend_name': 'x', 'multiattach': 'no'}),
                [('volume type fast: backend x -> fast', [])],
            ),
            (
                'type hidden',
                volume_type(is_public=False, description=None),
                [
                    ('volume type fast: description none -> NVMe', []),
                    ('volume type fast: public no -> yes', []),
                ],
            ),
            (
                'type without limits',
                volume_type(qos_specs_id=None),
                [('volume type fast: qos none -> fast', [])],
            ),
            (
                'limits for the back end',
                qos(consumer='both'),
                [('QoS specs fast: consumer both -> front-end', [])],
            ),
            (
                'other limits',
                qos(
                    specs={
                        'read_iops_sec': '5',
                        'total_iops_sec_per_gb': '3',
                        'total_iops_sec_per_gb_min': '3000',
                        'total_iops_sec_max': '20000',
                        'total_bytes_sec': '524288000',
                    }
                ),
                [
                    ('QoS specs fast: read_iops_sec 5 -> none', []),
                    ('QoS specs fast: total_iops_sec_per_gb 3 -> 30', []),
                ],
            ),
            (
                'type not allowed for the version',
                associated('slow'),
                [('datastore version mysql/9.7.4: volume types + fast', [])],
            ),
            ('type allowed by its id, and one of no tier', associated('id-of-fast', 'slow'), []),
        )
    ]

    def test_changes(self):
        fakes = world.World()
        content = sample.read()
        fakes.apply(content)
        self.arrange(fakes)
        plan = fakes.plan(content)
        self.assertEqual((), plan.problems)
        found = [(str(one), [risk.flag for risk in one.risks]) for one in plan.changes]
        self.assertEqual(self.expected, found)


class RemovedFromFileTestCase(base.BaseTestCase):
    """Keys that were removed from the file."""

    def setUp(self):
        super().setUp()
        self.world = world.World()
        other = {'name': 'slow', 'backend': 'slow'}
        self.both = {
            'tiers/slow': sample.CONTENT['tiers']['fast']
            | {'pool': 'slow', 'device_class': 'hdd', 'volume_type': other}
        }
        self.world.apply(sample.read(self.both))

    def test_association_of_a_tier_revokes_access(self):
        content = sample.read(self.both | {'tiers/slow/datastore_versions': []})
        (change,) = self.world.plan(content).changes
        self.assertEqual('datastore version mysql/9.7.4: volume types - slow', str(change))
        self.assertEqual([REVOKES], [risk.flag for risk in change.risks])

    def test_removed_tier_keeps_pool_type_and_caps(self):
        plan = self.world.plan(sample.read())
        self.assertEqual((), plan.changes)
        self.assertEqual(2, len(plan.notes))
        for note in plan.notes:
            self.assertIn('osd profile rbd pool=slow', note)

    def test_hidden_type_revokes_access(self):
        content = sample.read(self.both | {'tiers/slow/volume_type/public': False})
        (change,) = self.world.plan(content).changes
        self.assertEqual([REVOKES], [risk.flag for risk in change.risks])


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
                'pool on another class',
                {},
                {},
                pool('volumes-fast', crush_rule=3),
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
                pool('volumes-fast', type=3, erasure_code_profile='default'),
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


class OrderTestCase(base.BaseTestCase):
    def test_referenced_objects_come_first(self):
        plan = world.World().plan(sample.read())
        kinds = list(dict.fromkeys(change.kind.value for change in plan.changes))
        self.assertEqual(
            [
                *('erasure code profile', 'CRUSH rule', 'pool', 'cephx user'),
                *('QoS specs', 'volume type', 'datastore version'),
            ],
            kinds,
        )
        pools = [change.name for change in plan.changes if change.kind.value == 'pool']
        self.assertLess(pools.index('vault-data'), pools.index('vault'))

    def test_removals_come_last(self):
        fakes = world.World()
        content = sample.read()
        fakes.apply(content)
        pool('volumes-fast', size=3)(fakes)
        pool('images', size=1, min_size=1)(fakes)
        fakes.ceph.users['client.glance'] = {'mon': 'allow *'}
        content = sample.read({'users/client.glance': {'role': 'glance', 'exclusive': True}})
        del fakes.cinder.types['id-of-fast']
        found = [str(change).split(':')[0] for change in fakes.plan(content).changes]
        self.assertEqual(
            [
                *('pool images', 'volume type fast'),
                *('pool volumes-fast', 'cephx user client.glance'),
            ],
            found,
        )


class CapsTestCase(base.BaseTestCase):
    """Caps of users beyond what their role needs."""

    def setUp(self):
        super().setUp()
        self.world = world.World()
        self.world.apply(sample.read())
        caps = self.world.ceph.users['client.cinder']
        caps['osd'] += ', profile rbd pool=vms'
        caps['mgr'] += ', profile rbd pool=vms'
        caps['mon'] += ', allow command "osd blocklist"'
        self.world.clear_changes()

    def _plan(self, **keys):
        user = {'role': 'cinder'} | keys
        return self.world.plan(sample.read({'users/client.cinder': user}))

    def test_undeclared_caps_stay_and_are_noted(self):
        plan = self._plan()
        self.assertEqual((), plan.changes)
        (note,) = plan.notes
        self.assertIn('cephx user client.cinder keeps caps that the file does not declare', note)
        self.assertIn('osd profile rbd pool=vms', note)

    def test_declared_caps_are_not_noted(self):
        plan = self._plan(pools=['vms'], caps={'mon': ['allow command "osd blocklist"']})
        self.assertEqual(((), ()), (plan.changes, plan.notes))

    def test_declared_exclusive_revokes_the_rest(self):
        plan = self._plan(exclusive=True, pools=['vms'])
        (change,) = plan.changes
        self.assertEqual([REVOKES], [risk.flag for risk in change.risks])
        self.assertEqual(
            'cephx user client.cinder: caps - mon allow command "osd blocklist"', str(change)
        )
        self.assertEqual((), self._plan(pools=['vms'], exclusive=False).changes)

    def test_missing_caps_are_added(self):
        fakes = self.world.ceph.users['client.cinder']
        before = dict(fakes)
        self.world.apply(sample.read({'users/client.cinder': {'role': 'cinder', 'pools': ['x']}}))
        after = self.world.ceph.users['client.cinder']
        more = ', profile rbd pool=x'
        self.assertEqual(before['osd'] + more, after['osd'])
        self.assertEqual(before['mgr'] + more, after['mgr'])
        self.assertEqual(before['mon'], after['mon'])

    def test_caps_granted_meanwhile_are_not_lost(self):
        content = sample.read({'users/client.cinder': {'role': 'cinder', 'pools': ['x']}})
        systems = self.world.systems(content)
        observed = systems.observe()
        (change,) = planning.plan(content, observed).changes
        self.world.ceph.users['client.cinder']['mds'] = 'allow r'
        systems.make(change, observed)
        self.assertEqual('allow r', self.world.ceph.users['client.cinder']['mds'])

    def test_user_without_a_role_gets_declared_caps(self):
        user = {'pools': ['vms'], 'caps': {'mon': ['profile rbd']}}
        self.world.apply(sample.read({'users/client.nova': user}))
        pool = 'profile rbd pool=vms'
        expected = {'mgr': pool, 'mon': 'profile rbd', 'osd': pool}
        self.assertEqual(expected, self.world.ceph.users['client.nova'])


class LimitsOfImagesTestCase(base.BaseTestCase):
    """A tier changes from front-end limits to limits of images."""

    def setUp(self):
        super().setUp()
        self.world = world.World()
        self.world.apply(sample.read())
        self.content = sample.read({'tiers/fast/qos': 'image'})

    def _planned(self):
        return [str(change) for change in self.world.plan(self.content).changes]

    def test_unused_specs_are_removed(self):
        expected = ['volume type fast: qos fast -> none', 'QoS specs fast: remove']
        self.assertEqual(expected, self._planned())
        self.world.apply(self.content)
        self.assertEqual({}, self.world.cinder.qos)
        self.assertEqual([], self._planned())
        self.world.apply(sample.read())
        self.assertEqual('id-of-fast', self.world.cinder.types['id-of-fast']['qos_specs_id'])

    def test_foreign_specs_stay(self):
        for changes in ({'consumer': 'back-end'}, {'specs': {'read_iops_sec': '5'}}):
            before = dict(self.world.cinder.qos['id-of-fast'])
            qos(**changes)(self.world)
            self.assertEqual(['volume type fast: qos fast -> none'], self._planned())
            self.world.cinder.qos['id-of-fast'] = before

    def test_specs_of_another_type_stay(self):
        fast = self.world.cinder.types['id-of-fast']
        self.world.cinder.types['id-of-other'] = fast | {'name': 'other', 'id': 'id-of-other'}
        self.assertEqual(['volume type fast: qos fast -> none'], self._planned())

    def test_removal_is_shown(self):
        text = render.plan_text(self.world.plan(self.content), False)
        self.assertIn('  - QoS specs fast\n', text)
        self.assertIn('0 to create, 1 to change, 1 to remove.', text)


class NotesTestCase(base.BaseTestCase):
    def test_first_association_restricts_the_version(self):
        (note,) = world.World().plan(sample.read()).notes
        self.assertIn('from now on requests must name a volume type, and only fast', note)

    def test_back_end_that_has_not_reported(self):
        fakes = world.World()
        content = sample.read()
        fakes.apply(content)
        fakes.cinder.backends = []
        plan = fakes.plan(content)
        self.assertEqual(((), ()), (plan.changes, plan.problems))
        self.assertIn('no back end fast has reported', plan.notes[0])

    def test_unreachable_scheduler_prevents_nothing(self):
        fakes = world.World()
        fakes.cinder.scheduler_answers = False
        content = sample.read()
        fakes.apply(content)
        plan = fakes.plan(content)
        self.assertEqual(((), ()), (plan.changes, plan.problems))
        self.assertIn('back ends were not checked', plan.notes[0])

    def test_limit_that_was_exceeded_before_prevents_nothing(self):
        fakes = world.World()
        content = sample.read()
        fakes.apply(content)
        fakes.ceph.max_pgs = 1
        self.assertEqual((), fakes.plan(content).problems)


class LeftOutTestCase(base.BaseTestCase):
    def test_only_what_was_observed_is_planned(self):
        fakes = world.World()
        content = sample.read()
        everything = fakes.systems(content).observe()
        for system in ('ceph', 'cinder', 'trove'):
            observed = resources.Observed(**{system: getattr(everything, system)})
            plan = planning.plan(content, observed)
            self.assertEqual({system}, {change.kind.system for change in plan.changes})
