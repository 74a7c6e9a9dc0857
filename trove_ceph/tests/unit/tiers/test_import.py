# SPDX-License-Identifier: Apache-2.0
"""Import of clouds as deployment tools create them.

The recorded documents have the shape of the answers of Ceph 18 and Cinder, and are put together
from what the sources and guides of the tools make: cephadm with the steps of "Block Devices and
OpenStack" in Ceph's manual (and an erasure-coded archive), ceph-ansible with ``openstack_config``,
Kolla-Ansible with an external Ceph that has rules by device class, and DevStack's plugin for Ceph.
"""

import json
from pathlib import Path

import fixtures
import testscenarios
import yaml
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.tiers import fake_cloud, sample, world
from trove_ceph.tiers import ceph, cinder, import_command, importing, tiers_file, trove
from trove_ceph.tiers.tier_types import Purpose, Role, TierLimits

_CEPH = ceph.Ceph
_TROVE = trove.Trove
_RECORDED = Path(__file__).with_name('recorded')


class RecordedCloud:
    """Ceph, Cinder and Trove that replay recorded answers and refuse changes."""

    def __init__(self, tool):
        self.content = json.loads((_RECORDED / f'{tool}.json').read_text())
        self.cinder = fake_cloud.FakeCinder()
        self.cinder.types = {one['id']: one for one in self.content['cinder']['volume_types']}
        self.cinder.qos = {one['id']: one for one in self.content['cinder']['qos_specs']}
        self.cinder.volumes = self.content['cinder']['volumes']
        self.cinder.pools = self.content['cinder']['pools']
        self.trove = fake_cloud.FakeTroveManage()
        self.trove.associations = {
            version: set(types) for version, types in self.content['trove'].items()
        }

    def ceph(self, program, *words, timeout_sec=60):
        words = [str(word) for word in words[4:]]
        if words[0] == '--connect-timeout':
            words = words[2:]
        if words[:3] == ['config', 'pool', 'list']:
            return json.dumps(self.content['rbd config pool list'][words[-1]])
        assert words[-2:] == ['--format', 'json'], f'a change: {words}'
        return json.dumps(self.content[' '.join([program, *words[:-2]])])

    def run(self, **purposes):
        return import_command.run(
            _CEPH('ceph.conf', 'admin', run=self.ceph),
            cinder.Cinder(self.cinder.client()),
            _TROVE('trove-manage', 'trove.conf', run=self.trove),
            list(self.content['trove']),
            {pool: Purpose(purpose) for pool, purpose in purposes.items()},
        )


class RecordedStatesTestCase(testscenarios.WithScenarios, base.BaseTestCase):
    scenarios = [
        (tool, {'tool': tool, 'purposes': purposes, 'tiers': tiers, 'users': users})
        for tool, purposes, tiers, users in (
            (
                'cephadm',
                {'archive': 'vault'},
                {'volumes': 'data', 'images': 'images', 'archive': 'vault'},
                {'client.cinder', 'client.glance'},
            ),
            (
                'ceph-ansible',
                {'backups': 'vault'},
                {'volumes': 'data', 'images': 'images', 'backups': 'vault'},
                {'client.cinder', 'client.glance', 'client.cinder-backup', 'client.openstack'},
            ),
            (
                'kolla-ansible',
                {},
                {'volumes': 'data', 'images': 'images'},
                {'client.cinder', 'client.glance', 'client.cinder-backup', 'client.nova'},
            ),
            (
                'devstack',
                {},
                {'volumes': 'data', 'images': 'images'},
                {'client.cinder', 'client.glance', 'client.cinder-bak', 'client.openstack'},
            ),
        )
    ]

    def setUp(self):
        super().setUp()
        self.cloud = RecordedCloud(self.tool)
        self.result = self.cloud.run(**self.purposes)

    def test_plan_is_empty(self):
        self.assertEqual(((), ()), (self.result.plan.changes, self.result.plan.problems))

    def test_every_cap_is_declared(self):
        # A note would report undeclared caps.
        self.assertEqual([], [note for note in self.result.plan.notes if 'cephx' in note])
        self.assertEqual(self.users, set(self.result.content.users))
        self.assertEqual([], [u for u in self.result.content.users.values() if u.exclusive])

    def test_text_round_trip(self):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'tiers.yaml'
        import_command.write(str(path), self.result.text)
        self.assertEqual(self.result.content, tiers_file.load(str(path)))
        self.assertNotIn('AQDC2', self.result.text)

    def test_tiers(self):
        found = {tier.pool: str(tier.purpose) for tier in self.result.content.tiers.values()}
        self.assertEqual(self.tiers, found)


class DescriptionTestCase(base.BaseTestCase):
    def _tier(self, tool, pool, **purposes):
        self.result = RecordedCloud(tool).run(**purposes)
        (found,) = [one for one in self.result.content.tiers.values() if one.pool == pool]
        return found

    def test_default_rule_has_no_device_class(self):
        tier = self._tier('cephadm', 'volumes')
        self.assertEqual((None, 'host'), (tier.device_class, tier.failure_domain))

    def test_coded_pool(self):
        code = self._tier('cephadm', 'archive', archive='vault').erasure
        self.assertEqual(('archive-data', 4, 2, 5), (code.pool, code.k, code.m, code.min_size))

    def test_known_role_with_the_pool_of_nova(self):
        self._tier('kolla-ansible', 'volumes')
        user = self.result.content.users['client.cinder']
        self.assertEqual((Role.CINDER, ('vms',), {}), (user.role, user.pools, dict(user.caps)))
        glance = self.result.content.users['client.glance']
        self.assertEqual((Role.GLANCE, (), {}), (glance.role, glance.pools, dict(glance.caps)))

    def test_other_caps_are_declared_literally(self):
        self._tier('devstack', 'volumes')
        user = self.result.content.users['client.cinder']
        self.assertIsNone(user.role)
        self.assertEqual((('allow rw',), ('allow r',)), (user.caps['mgr'], user.caps['mon']))
        self.assertIn('allow class-read object_prefix rbd_children', user.caps['osd'])
        self.assertIn('allow rwx pool=vms', user.caps['osd'])

    def test_type_of_the_only_back_end_need_not_name_it(self):
        tier = self._tier('kolla-ansible', 'volumes')
        self.assertEqual(
            ('__DEFAULT__', 'rbd-1'), (tier.volume_type.name, tier.volume_type.backend)
        )
        self.assertFalse(tier.volume_type.names_backend)
        self.assertEqual(('mysql/8.4',), tier.datastore_versions)

    def test_qos_specs_of_other_kinds_stay(self):
        tier = self._tier('ceph-ansible', 'volumes')
        # A type that a version may use comes first, then "rbd" before "rbd-gold".
        self.assertEqual('rbd', tier.volume_type.name)
        self.assertEqual(TierLimits.KEEP, tier.qos)
        self.assertIn(
            'volume type rbd-gold uses the same back end rbd', ' '.join(self.result.notes)
        )

    def test_promise_is_read_from_fixed_limits(self):
        cloud = RecordedCloud('ceph-ansible')
        cloud.trove.associations = {'mysql/8.4': {'a2'}, 'postgresql/16': set()}
        (tier,) = [one for one in cloud.run().content.tiers.values() if one.pool == 'volumes']
        self.assertEqual(('rbd-gold', 4000), (tier.volume_type.name, tier.iops.volume_iops(1024)))
        self.assertEqual((200, TierLimits.KEEP), (tier.throughput_mib_per_sec, tier.qos))

    def test_weights_of_the_autoscaler_stay(self):
        groups = self._tier('kolla-ansible', 'volumes').placement_groups
        self.assertEqual(0.8, groups.autoscale)
        self.assertTrue(self._tier('cephadm', 'volumes').placement_groups.keep)
        # The ratios of one device class may exceed 1 in total: to Ceph they are weights.
        self.assertTrue(self._tier('kolla-ansible', 'vms', vms='replica').placement_groups.keep)
        (volumes,) = [one for one in self.result.content.tiers.values() if one.pool == 'volumes']
        self.assertTrue(volumes.placement_groups.keep)

    def test_pool_of_glance_by_its_user(self):
        cloud = RecordedCloud('kolla-ansible')
        text = json.dumps(cloud.content).replace('"images"', '"glance"')
        cloud.content = json.loads(text.replace('pool=images', 'pool=glance'))
        found = cloud.run().content.tiers
        self.assertEqual(Purpose.IMAGES, found['glance'].purpose)

    def test_one_copy_is_declared(self):
        self.assertEqual(1, self._tier('devstack', 'volumes').copies)

    def test_notes_what_is_left_out(self):
        self._tier('cephadm', 'volumes')
        notes = ' '.join(self.result.notes)
        self.assertIn(
            'pool vms is not a tier: neither a back end of Cinder nor Glance uses it', notes
        )
        self.assertIn('back end remote is on another Ceph cluster', notes)
        self.assertIn('# Left out: pool vms is not a tier', self.result.text)


class RefusedTestCase(base.BaseTestCase):
    def test_missing_pool(self):
        error = self.assertRaises(
            exceptions.InvalidTiersError, RecordedCloud('devstack').run, nothing='vault'
        )
        self.assertIn('pool nothing does not exist', str(error))

    def test_unsupported_rule(self):
        cloud = RecordedCloud('devstack')
        cloud.content['ceph osd crush rule dump'][0]['steps'].insert(2, {'op': 'emit'})
        error = self.assertRaises(exceptions.InvalidTiersError, cloud.run)
        self.assertIn('there is nothing to import', str(error))
        self.assertIn('tiers do not support its CRUSH rule replicated_rule', str(error))

    def test_unreachable_scheduler(self):
        cloud = RecordedCloud('devstack')
        cloud.cinder.scheduler_answers = False
        self.assertRaises(exceptions.ServiceUnavailableError, cloud.run)

    def test_purposes(self):
        self.assertEqual({'a=b': Purpose.VAULT}, dict(importing.purposes_of(['a=b=vault'])))
        for text in ('a', 'a=fault', '=vault'):
            self.assertRaises(exceptions.InvalidTiersError, dict, importing.purposes_of([text]))


class RoundTripTestCase(base.BaseTestCase):
    """An import describes what "tiers apply" created."""

    def test_plan_is_empty(self):
        fakes = world.World()
        described = sample.read()
        fakes.apply(described)
        fsid = 'ceph:c:5e1c8c3a-0f4f-4f6e-9a61-0c1d3bb4f3aa:cinder:volumes-fast'
        fakes.cinder.locations['fast'] = fsid
        fakes.clear_changes()
        systems = fakes.systems(described)
        found = import_command.run(
            systems._ceph,
            systems._cinder,
            systems._trove,
            ['mysql/9.7.4'],
            {'vault': Purpose.VAULT, 'replicas': Purpose.REPLICA},
        )
        self.assertEqual(((), ()), (found.plan.changes, found.plan.problems))
        self.assertEqual([], fakes.changes())
        fast = found.content.tiers['fast']
        expected = described.tiers['fast']
        for name in ('purpose', 'device_class', 'copies', 'min_size', 'iops', 'qos', 'volume_type'):
            self.assertEqual(getattr(expected, name), getattr(fast, name))
        self.assertEqual(
            {name: user.role for name, user in described.users.items()},
            {name: user.role for name, user in found.content.users.items()},
        )


class CommandTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.cloud = RecordedCloud('kolla-ansible')
        self.file = Path(self.useFixture(fixtures.TempDir()).path) / 'tiers.yaml'
        for name, replacement in (
            ('ceph.Ceph', lambda conf, user: _CEPH(conf, user, run=self.cloud.ceph)),
            ('cinder.Cinder.of_environment', lambda *_: cinder.Cinder(self.cloud.cinder.client())),
            ('trove.Trove', lambda program, conf: _TROVE(program, conf, run=self.cloud.trove)),
            ('trove.list_versions', lambda *_: ['mysql/8.4']),
        ):
            self.useFixture(fixtures.MonkeyPatch(f'trove_ceph.tiers.{name}', replacement))

    def _run(self, *words, file=None):
        words = ['tiers', *words, '--file', str(file or self.file), '--trove-conf', 'trove.conf']
        return command.run(*words)

    def test_written_file_has_an_empty_plan(self):
        status, out, _ = self._run('import')
        self.assertEqual(0, status)
        self.assertIn('Everything matches the tiers file.', out)
        self.assertEqual((0, ''), self._run('check')[::2])
        self.assertEqual([], self.cloud.cinder.changes)

    def test_existing_file_is_not_overwritten(self):
        self.file.write_text('precious')
        status, _, err = self._run('import')
        self.assertEqual((2, 'precious'), (status, self.file.read_text()))
        self.assertIn('File exists', err)

    def test_text_instead_of_a_file(self):
        status, out, _ = self._run('import', file='-')
        self.assertEqual(0, status)
        self.assertEqual({'tiers', 'users'}, set(yaml.safe_load(out)))

    def test_document(self):
        _, out, _ = self._run('import', '--format', 'json')
        self.assertEqual([], json.loads(out)['plan']['changes'])

    def test_data_tiers_need_cinder(self):
        status, _, _ = self._run('import', '--only', 'ceph', '--purpose', 'volumes=data')
        self.assertEqual(0, status)
        self.assertNotIn('volumes', yaml.safe_load(self.file.read_text())['tiers'])
        self.assertIn('no volume type of Cinder offers it', self.file.read_text())


class VersionsTestCase(base.BaseTestCase):
    def test_versions_are_listed_once(self):
        class Database:
            def get(self, path):
                return fake_cloud.FakeCinder()._respond(
                    {
                        'datastores': [
                            {'name': 'mysql', 'versions': [{'name': '8.4'}, {'name': '8.4'}]},
                            {'name': 'postgresql', 'versions': [{'name': '16'}]},
                        ]
                    }
                )

        self.assertEqual(['mysql/8.4', 'postgresql/16'], trove.list_versions(Database()))

    def test_refusal(self):
        class Database:
            def get(self, path):
                return fake_cloud.FakeCinder()._respond({}, 503)

        self.assertRaises(exceptions.ServiceUnavailableError, trove.list_versions, Database())
