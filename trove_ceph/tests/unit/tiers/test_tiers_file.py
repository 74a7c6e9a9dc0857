# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import fixtures
import testscenarios
from oslotest import base

from trove_ceph import exceptions, schema_problems
from trove_ceph.tests.unit.tiers import sample, world
from trove_ceph.tiers import tiers_file
from trove_ceph.tiers.tier_types import Purpose, TierLimits
from trove_ceph.yaml_file import Problem

SHIPPED = Path(__file__).parents[4] / 'etc' / 'trove-ceph' / 'tiers.yaml'


class DefaultsTestCase(base.BaseTestCase):
    def test_defaults(self):
        tier = sample.read({'tiers/fast/min_size': None}).tiers['fast']
        self.assertEqual(
            ('host', 'default', 1), (tier.failure_domain, tier.crush_root, tier.min_size)
        )
        self.assertEqual('none', tier.compression_mode)
        self.assertTrue(tier.volume_type.public)

    def test_min_size_is_half_of_the_copies_rounded_up(self):
        for copies, expected in ((2, 1), (3, 2), (4, 2), (5, 3)):
            content = sample.read({'tiers/fast/copies': copies, 'tiers/fast/min_size': None})
            self.assertEqual(expected, content.tiers['fast'].min_size)

    def test_erasure(self):
        code = sample.read().tiers['vault'].erasure
        self.assertEqual(
            ('vault-data', 'hdd', 16), (code.pool, code.metadata_device_class, code.metadata_pg_num)
        )
        self.assertEqual((2, 3), (code.min_size, code.chunks))
        wide = sample.read({'tiers/vault/erasure': {'k': 4, 'm': 2}}).tiers['vault'].erasure
        self.assertEqual(5, wide.min_size)

    def test_only_types_for_data_are_public(self):
        given = {'name': 'follower', 'backend': 'follower'}
        content = sample.read({'tiers/follower/volume_type': given})
        self.assertFalse(content.tiers['follower'].volume_type.public)

    def test_default_of_qos(self):
        def qos(**changes):
            changes = {f'tiers/fast/{key}': value for key, value in changes.items()}
            return sample.read({'tiers/fast/qos': None} | changes).tiers['fast'].qos

        self.assertIs(TierLimits.IMAGE, qos())
        self.assertIs(TierLimits.IMAGE, qos(iops=None))
        self.assertIs(TierLimits.IMAGE, qos(throughput_mib_per_sec=None))
        self.assertIs(TierLimits.NONE, qos(iops=None, throughput_mib_per_sec=None))

    def test_no_limits_without_volumes(self):
        promise = {'tiers/follower/iops': {'per_gib': 1, 'floor': 1, 'cap': 1}}
        self.assertIs(TierLimits.NONE, sample.read(promise).tiers['follower'].qos)

    def test_users_get_the_tiers_of_their_role(self):
        users = sample.read().users
        self.assertEqual(('fast', 'follower', 'vault', 'images'), users['client.cinder'].tiers)
        self.assertEqual(('images',), users['client.glance'].tiers)
        self.assertEqual(('fast', 'follower', 'vault'), users['client.storage'].tiers)


class SettingsTestCase(base.BaseTestCase):
    def test_tier_of_replicas(self):
        self.assertIsNone(sample.read().tiers['fast'].replicas_on)
        volume_type = {'name': 'followers', 'backend': 'followers'}
        tiers = sample.read(
            {'tiers/follower/volume_type': volume_type, 'tiers/fast/replicas_on': 'follower'}
        ).tiers
        self.assertEqual('follower', tiers['fast'].replicas_on)
        self.assertFalse(tiers['follower'].volume_type.public)

    def test_latency_objective(self):
        self.assertIsNone(sample.read().tiers['fast'].latency_ms)
        content = sample.read({'tiers/fast/latency_ms': 2.5})
        self.assertEqual(2.5, content.tiers['fast'].latency_ms)
        # It is compared with measurements, and changes nothing in Ceph and Cinder.
        fakes = world.World()
        fakes.apply(sample.read())
        self.assertEqual((), fakes.plan(content).changes)
        for invalid in (0, -1, '2', 60001):
            self.assertRaises(tiers_file.Problem, sample.read, {'tiers/fast/latency_ms': invalid})


class ShippedFileTestCase(base.BaseTestCase):
    def test_has_the_classes_of_the_reference_architectures(self):
        tiers = tiers_file.load(str(SHIPPED)).tiers
        self.assertEqual(['iops', 'replica', 'throughput', 'vault', 'images'], list(tiers))
        self.assertEqual((3, 'nvme'), (tiers['iops'].copies, tiers['iops'].device_class))
        self.assertEqual((1, Purpose.REPLICA), (tiers['replica'].copies, tiers['replica'].purpose))
        self.assertEqual((3, 'hdd'), (tiers['throughput'].copies, tiers['throughput'].device_class))
        self.assertEqual((4, 2), (tiers['vault'].erasure.k, tiers['vault'].erasure.m))
        self.assertEqual(30, tiers['iops'].iops.iops_per_gib)


class MessagesTestCase(testscenarios.WithScenarios, base.BaseTestCase):
    """A message names the key of an invalid value and a valid one."""

    scenarios = [
        (f'{key}: {value}', {'change': {key: value}, 'path': path, 'words': words})
        for key, value, path, words in (
            ('tiers/fast/copies', 'two', 'tiers.fast.copies', 'must be a whole number of copies'),
            ('tiers/fast/copies', 11, 'tiers.fast.copies', 'too large; the most is 10'),
            (
                'tiers/fast/copies',
                1,
                'tiers.fast.copies',
                'for the purpose replica only, not for data',
            ),
            ('tiers/fast/copies', None, 'tiers.fast', 'lacks copies'),
            ('tiers/fast/copeis', 2, 'tiers.fast.copeis', 'did you mean copies?'),
            ('tiers/fast/min_size', 3, 'tiers.fast.min_size', '3 is more than the 2 copies'),
            ('tiers/fast/purpose', 'date', 'tiers.fast.purpose', 'did you mean data?'),
            ('tiers/fast/failure_domain', 'rak', 'tiers.fast.failure_domain', 'did you mean rack?'),
            (
                'tiers/fast/placement_groups',
                64,
                'tiers.fast.placement_groups',
                'one of the keys count',
            ),
            (
                'tiers/fast/placement_groups',
                {'number': 64},
                'tiers.fast.placement_groups',
                'must have one of the keys count, share, autoscale',
            ),
            (
                'tiers/fast/placement_groups',
                {'count': 64, 'share': 0.5},
                'tiers.fast.placement_groups.share',
                'not a key',
            ),
            (
                'tiers/fast/placement_groups/count',
                48,
                'tiers.fast.placement_groups.count',
                '48 is not a power of two',
            ),
            (
                'tiers/fast/placement_groups',
                {'count': 64, 'per_osd': 200},
                'tiers.fast.placement_groups.per_osd',
                'not a key',
            ),
            (
                'tiers/vault/placement_groups/per_osd',
                251,
                'tiers.vault.placement_groups.per_osd',
                'the most is 250',
            ),
            (
                'tiers/vault/placement_groups/share',
                0,
                'tiers.vault.placement_groups.share',
                'must be a share above 0 and up to 1',
            ),
            (
                'tiers/images/placement_groups/autoscale',
                0.6,
                'tiers.images.placement_groups',
                'device class hdd add up to 1.1',
            ),
            (
                'tiers/vault/erasure/min_size',
                4,
                'tiers.vault.erasure.min_size',
                'from k = 2 to k + m = 3',
            ),
            ('tiers/vault/erasure/m', 0, 'tiers.vault.erasure.m', 'the least is 1'),
            (
                'tiers/vault/erasure/pool',
                'vault',
                'tiers.vault.erasure.pool',
                'pool for the metadata',
            ),
            ('tiers/vault/erasure/pool', 'images', 'tiers.images.pool', 'belongs to tier vault'),
            ('tiers/follower/pool', 'volumes-fast', 'tiers.follower.pool', 'belongs to tier fast'),
            (
                'tiers/follower/volume_type',
                {'name': 'fast', 'backend': 'x'},
                'tiers.follower.volume_type.name',
                'volume type fast belongs to tier fast',
            ),
            (
                'tiers/follower/volume_type',
                {'name': 'x', 'backend': 'fast'},
                'tiers.follower.volume_type.backend',
                'back end fast belongs to tier fast',
            ),
            ('tiers/fast/volume_type', None, 'tiers.fast.volume_type', 'is missing'),
            ('tiers/fast/volume_type/name', 'a,b', 'tiers.fast.volume_type.name', 'without commas'),
            (
                'tiers/images/volume_type',
                {'name': 'x', 'backend': 'x'},
                'tiers.images.volume_type',
                'holds no volumes',
            ),
            (
                'tiers/follower/datastore_versions',
                ['mysql/9.7.4'],
                'tiers.follower.datastore_versions',
                'on tiers with the purpose data, not replica',
            ),
            (
                'tiers/fast/datastore_versions',
                ['mysql'],
                'tiers.fast.datastore_versions[0]',
                'as mysql/9.7.4',
            ),
            (
                'tiers/fast/replicas_on',
                'nowhere',
                'tiers.fast.replicas_on',
                "'nowhere' is not a tier; choose a tier with the purpose replica: follower",
            ),
            (
                'tiers/fast/replicas_on',
                'vault',
                'tiers.fast.replicas_on',
                'tier vault has the purpose vault, and must have replica',
            ),
            (
                'tiers/fast/replicas_on',
                'follower',
                'tiers.fast.replicas_on',
                'tier follower has no volume_type',
            ),
            (
                'tiers/vault/replicas_on',
                'follower',
                'tiers.vault.replicas_on',
                'on tiers with the purpose data, not vault',
            ),
            ('tiers/fast/iops/cap', 100, 'tiers.fast.iops.cap', '100 is below the floor of 3000'),
            ('tiers/fast/iops/per_gib', 0.5, 'tiers.fast.iops.per_gib', 'must be a whole number'),
            ('tiers/follower/qos', 'image', 'tiers.follower.qos', 'has nothing to limit'),
            (
                'tiers/follower',
                sample.CONTENT['tiers']['follower'] | {'throughput_mib_per_sec': 1, 'qos': 'image'},
                'tiers.follower.qos',
                'has no volume_type',
            ),
            ('tiers', {}, 'tiers', 'must not be empty'),
            ('users/client.admin', {'role': 'cinder'}, 'users', 'a name other than admin'),
            ('users/client.x', {'role': 'sinder'}, 'users.client.x.role', 'did you mean cinder?'),
            (
                'users/client.x',
                {'role': 'cinder', 'tiers': ['fats']},
                'users.client.x.tiers[0]',
                "'fats' is not a tier; choose from fast, follower, vault, images",
            ),
            (
                'users/client.x',
                {'role': 'glance', 'tiers': ['fast']},
                'users.client.x.tiers[0]',
                'to which the role glance does not apply',
            ),
        )
    ]

    def test_message(self):
        problem = self.assertRaises(Problem, sample.read, self.change)
        self.assertEqual(self.path, schema_problems.path_text(problem.path))
        self.assertIn(self.words, str(problem))


class FileTestCase(base.BaseTestCase):
    def _load(self, text):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'tiers.yaml'
        path.write_text(text)
        return tiers_file.load(str(path))

    def _message(self, text):
        return str(self.assertRaises(exceptions.InvalidTiersError, self._load, text))

    def test_message_names_file_and_line(self):
        message = self._message('tiers:\n  fast:\n    purpose: data\n    copies: 0\n')
        self.assertRegex(message, r'tiers\.yaml, line \d: tiers\.fast')

    def test_duplicate_key(self):
        message = self._message('tiers:\n  fast: {}\n  fast: {}\n')
        self.assertIn("line 2: tiers.fast: 'fast' is given twice", message)

    def test_other_content(self):
        self.assertIn('is not YAML', self._message('a: [b'))
        self.assertIn('must have the keys tiers and users', self._message('- a\n'))
        self.assertIn('must have the keys tiers and users', self._message(''))
        self.assertIn('lacks tiers', self._message('users: {}\n'))

    def test_missing_file(self):
        error = self.assertRaises(exceptions.InvalidTiersError, tiers_file.load, '/no/such')
        self.assertIn('/no/such: cannot be read', str(error))
