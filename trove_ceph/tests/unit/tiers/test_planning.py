# SPDX-License-Identifier: Apache-2.0
import testscenarios
from oslotest import base

from trove_ceph.tests.unit.tiers import arrangements, sample, world
from trove_ceph.tiers import planning, render, resources

MOVES, LOWERS, REVOKES = '--yes-move-data', '--yes-lower-redundancy', '--yes-revoke-access'


class ChangesTestCase(testscenarios.WithScenarios, base.BaseTestCase):
    """Changes and their risks, starting from a cloud that matches the file."""

    scenarios = [
        (name, {'arrange': arrange, 'expected': expected})
        for name, arrange, expected in (
            ('nothing', lambda fakes: None, []),
            (
                'pool missing',
                arrangements.without('pools', 'images'),
                [('pool images: create', [])],
            ),
            (
                'fewer copies than described',
                arrangements.pool('images', size=1, min_size=1),
                [('pool images: size 1 -> 2', [MOVES])],
            ),
            (
                'more copies than described',
                arrangements.pool('images', size=3),
                [('pool images: size 3 -> 2', [LOWERS])],
            ),
            (
                'copies of an unfinished pool that holds nothing',
                arrangements.pool('images', size=3, application_metadata={}),
                [('pool images: size 3 -> 2', []), ('pool images: rbd no -> yes', [])],
            ),
            (
                'fewer copies needed for a write',
                arrangements.pool('images', min_size=2),
                [('pool images: min_size 2 -> 1', [LOWERS])],
            ),
            (
                'more copies needed for a write',
                arrangements.pool('vault-data', min_size=1),
                [('pool vault-data: min_size 1 -> 2', [])],
            ),
            (
                'other number of placement groups',
                arrangements.pool('volumes-fast', pg_num_target=32),
                [('pool volumes-fast: pg_num 32 -> 64', [MOVES])],
            ),
            ('number that the autoscaler chose', arrangements.pool('images', pg_num_target=8), []),
            (
                'autoscaler switched on',
                arrangements.pool('volumes-fast', pg_autoscale_mode='on'),
                [('pool volumes-fast: autoscale on -> off', [])],
            ),
            (
                'autoscaler switched off',
                arrangements.pool('images', pg_autoscale_mode='off'),
                [('pool images: autoscale off -> on', [MOVES])],
            ),
            (
                'autoscaler with another share',
                arrangements.options('images', target_size_ratio=0.5),
                [('pool images: target_size_ratio 0.5 -> 0.1', [MOVES])],
            ),
            (
                'compressed',
                arrangements.options(
                    'volumes-fast', compression_mode='force', compression_algorithm='zlib'
                ),
                [('pool volumes-fast: compression_mode force -> none', [])],
            ),
            (
                'compressed otherwise',
                arrangements.options('vault-data', compression_algorithm='lz4'),
                [('pool vault-data: compression_algorithm lz4 -> zstd', [])],
            ),
            (
                'no overwrites',
                arrangements.pool('vault-data', flags_names='hashpspool'),
                [('pool vault-data: overwrites no -> yes', [])],
            ),
            (
                'data elsewhere',
                arrangements.pool('vault', _data_pool='other'),
                [('pool vault: data_pool other -> vault-data', [])],
            ),
            (
                'narrower failure domain',
                arrangements.rule('osd'),
                [('pool images: rule other -> hdd-host', [MOVES])],
            ),
            (
                'wider failure domain',
                arrangements.rule('rack'),
                [('pool images: rule other -> hdd-host', [MOVES, LOWERS])],
            ),
            ('rule of another name that does the same', arrangements.rule('host'), []),
            (
                'user missing',
                arrangements.without('users', 'client.glance'),
                [('cephx user client.glance: create', [])],
            ),
            (
                'user with less',
                arrangements.user_has(mgr=''),
                [('cephx user client.glance: caps + mgr profile rbd pool=images', [])],
            ),
            (
                'user with more',
                arrangements.user_has(mds='allow *'),
                [],
            ),
            (
                'type of another back end',
                arrangements.volume_type(
                    extra_specs={'volume_backend_name': 'x', 'multiattach': 'no'}
                ),
                [('volume type fast: backend x -> fast', [])],
            ),
            (
                'type hidden',
                arrangements.volume_type(is_public=False, description=None),
                [
                    ('volume type fast: description none -> NVMe', []),
                    ('volume type fast: public no -> yes', []),
                ],
            ),
            (
                'type without limits',
                arrangements.volume_type(qos_specs_id=None),
                [('volume type fast: qos none -> fast', [])],
            ),
            (
                'limits for the back end',
                arrangements.qos(consumer='both'),
                [('QoS specs fast: consumer both -> front-end', [])],
            ),
            (
                'other limits',
                arrangements.qos(
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
                arrangements.associated('slow'),
                [('datastore version mysql/9.7.4: volume types + fast', [])],
            ),
            (
                'type allowed by its id, and one of no tier',
                arrangements.associated('id-of-fast', 'slow'),
                [],
            ),
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
        arrangements.pool('volumes-fast', size=3)(fakes)
        arrangements.pool('images', size=1, min_size=1)(fakes)
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
            arrangements.qos(**changes)(self.world)
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
