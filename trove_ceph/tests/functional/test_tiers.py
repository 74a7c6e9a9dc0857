# SPDX-License-Identifier: Apache-2.0
"""The basis of tiers: placement by device class, bounded keys, clones, repeatable changes."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import rados
import rbd
from oslo_utils import units

from trove_ceph.tests.functional import base, ceph
from trove_ceph.tests.unit.tiers import fake_cloud
from trove_ceph.tiers import apply, cinder, import_command, resources, systems, tier_types, trove
from trove_ceph.tiers import ceph as tiers_ceph

# For copies of little data on a busy machine.
TIMEOUT_SEC = 180

MIB = units.Mi
# The time for the manager to report the usage of a new pool on a busy machine.
USAGE_SEC = 300


class TiersTest(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        self.cluster = ceph.shared_cluster()
        self.image = self.directory.name

    def _make_image(self, pool, size_mib=16, **options):
        with self.cluster.pool(pool) as context:
            rbd.RBD().create(context, self.image, size_mib * MIB, **options)
            with rbd.Image(context, self.image) as image:
                image.write(b'd' * size_mib * MIB, 0)
        self.addCleanup(self._remove, pool, self.image)

    def _remove(self, pool, name):
        with self.cluster.pool(pool) as context:
            rbd.RBD().remove(context, name)

    def _classes_of(self, pool):
        """Return the device classes of the OSDs that store the objects of a pool."""
        tree = self.cluster.mon_command('osd tree')['nodes']
        classes = {node['id']: node['device_class'] for node in tree if node['type'] == 'osd'}
        with self.cluster.pool(pool) as context:
            names = [item.key for item in context.list_objects()]
        self.assertNotEqual([], names, f'{pool} holds nothing')
        found = set()
        for name in names:
            mapped = self.cluster.mon_command('osd map', pool=pool, object=name)
            found |= {classes[osd] for osd in mapped['acting']}
        return found

    def test_objects_are_on_the_device_class_of_their_tier(self):
        for pool, device_class in (('volumes-nvme', 'nvme'), ('volumes-hdd', 'hdd')):
            self._make_image(pool)
            self.assertEqual({device_class}, self._classes_of(pool))

    def test_erasure_coded_pool_keeps_data_on_its_class(self):
        self._make_image('volumes-hdd', data_pool='vault-data')
        self.assertEqual({'hdd'}, self._classes_of('vault-data'))
        with self.cluster.pool('volumes-hdd') as context:
            with rbd.Image(context, self.image) as image:
                image.write(b'overwritten', 4 * MIB - 5)
                self.assertEqual(b'overwritten', image.read(4 * MIB - 5, 11))

    def test_key_reaches_its_own_pool_only(self):
        user = 'client.nvme-only'
        with self.cluster.pool('volumes-nvme', user) as context:
            rbd.RBD().create(context, self.image, MIB)
            rbd.RBD().remove(context, self.image)
        with self.cluster.pool('volumes-hdd', user) as context:
            self.assertRaises(rbd.PermissionError, rbd.RBD().create, context, self.image, MIB)
        with self.cluster.connection(user) as handle:
            code, _, _ = handle.mon_command('{"prefix": "auth ls"}', b'', timeout=20)
            self.assertEqual(-13, code)
        self.assertRaises(rados.ObjectNotFound, self._connect_as, 'client.stranger')

    def _connect_as(self, user):
        with self.cluster.connection(user):
            self.fail(f'{user} has no key, but was let in')

    def test_clone_survives_its_snapshot_across_pools(self):
        """Clone format 2: no protection needed, and the snapshot may go before the clone."""
        self._make_image('volumes-nvme')
        pool = self.cluster.pool
        with pool('volumes-nvme') as source, pool('volumes-hdd') as target:
            with rbd.Image(source, self.image) as image:
                image.create_snap('s')
                self.assertFalse(image.is_protected_snap('s'))
            rbd.RBD().clone(source, self.image, 's', target, self.image)
            self.addCleanup(self._remove, 'volumes-hdd', self.image)
            with rbd.Image(source, self.image) as image:
                image.write(b's' * 100, 0)
                image.remove_snap('s')
                kinds = [image.snap_get_namespace_type(s['id']) for s in image.list_snaps()]
                self.assertEqual([rbd.RBD_SNAP_NAMESPACE_TYPE_TRASH], kinds)
            with rbd.Image(target, self.image) as clone:
                self.assertEqual(b'd' * 101, clone.read(0, 101))
                clone.write(b'c' * 100, 0)
                clone.flatten()
                self.assertEqual(b'c' * 100 + b'd', clone.read(0, 101))
            with rbd.Image(source, self.image) as image:
                self.assertEqual([], list(image.list_snaps()))
                self.assertEqual(b's' * 100 + b'd', image.read(0, 101))


class ApplyTest(base.FunctionalTestCase):
    """``trove-ceph-manage tiers`` on a private cluster."""

    def setUp(self):
        super().setUp()
        self.cluster = ceph.Cluster(self.directory / 'c', {'ssd': 3}, osd_gib=3)
        self.addCleanup(self.cluster.try_tool, 'destroy')
        self.cluster.create()
        self.cluster.start()

    def _pool(self, name):
        pools = self.cluster.mon_command('osd dump')['pools']
        (found,) = [pool for pool in pools if pool['pool_name'] == name]
        return found

    def _shape(self, name):
        pool = self._pool(name)
        return pool['size'], pool['min_size'], pool['pg_num_target']

    def test_applies_to_an_empty_cluster_and_repeats(self):
        content = {
            'tiers': {
                'data': ceph.tier('data', 'ssd', 'data', 3, 16, min_size=1),
                'replica': ceph.tier('replica', 'ssd', 'replica', 1, 8),
                'images': ceph.tier('images', 'ssd', 'images', 2, 8)
                | {'placement_groups': {'autoscale': 0.5}},
                'vault': ceph.tier('vault', 'ssd', 'vault', 2, 8, erasure={'k': 2, 'm': 1})
                | {'compression': {'mode': 'aggressive', 'algorithm': 'zstd'}},
            },
            'users': {'client.cinder': {'role': 'cinder'}, 'client.ours': {'role': 'storage'}},
        }
        self.assertEqual(1, self.cluster.tiers('check', content).returncode)
        self.assertTrue(self.cluster.apply(content)['changed'])
        check = self.cluster.tiers('check', content)
        self.assertEqual((0, 'ok'), (check.returncode, json.loads(check.stdout)['status']))
        before = self.cluster.mon_command('osd dump')['pools']
        expected = {'changed': False, 'changes': [], 'waiting': []}
        self.assertEqual(expected, self.cluster.apply(content))
        self.assertEqual(before, self.cluster.mon_command('osd dump')['pools'])

        shapes = {name: self._pool(name) for name in ('data', 'replica', 'images', 'vault-data')}
        self.assertEqual([3, 1, 2, 3], [pool['size'] for pool in shapes.values()])
        self.assertEqual([1, 1, 1, 2], [pool['min_size'] for pool in shapes.values()])
        self.assertEqual('on', shapes['images']['pg_autoscale_mode'])
        self.assertEqual('zstd', shapes['vault-data']['options']['compression_algorithm'])
        self._check_new_images_put_their_data_into_the_coded_pool()

    def _check_new_images_put_their_data_into_the_coded_pool(self):
        self.cluster.create_image('vault', 'image', 8)
        with self.cluster.pool('vault-data') as data, self.cluster.pool('vault') as vault:
            with rbd.Image(vault, 'image') as image:
                self.assertEqual(data.get_pool_id(), image.data_pool_id())
                image.write(b'd' * 8 * MIB, 0)
            self.assertNotEqual([], [item.key for item in data.list_objects()])

    @base.long
    def test_each_consequence_needs_its_option(self):
        self.cluster.apply({'tiers': {'data': ceph.tier('data', 'ssd', 'p', 2, 8)}})
        for copies, min_size, pg_num, flag in (
            (3, 2, 8, '--yes-move-data'),
            (3, 2, 16, '--yes-move-data'),
            (3, 1, 16, '--yes-lower-redundancy'),
            (2, 1, 16, '--yes-lower-redundancy'),
        ):
            described = ceph.tier('data', 'ssd', 'p', copies, pg_num, min_size=min_size)
            before = self._shape('p')
            refused = self.cluster.tiers('apply', {'tiers': {'data': described}})
            self.assertEqual(2, refused.returncode, refused.stderr)
            self.assertIn(f'add {flag}', refused.stderr)
            self.assertEqual(before, self._shape('p'))
            self.cluster.apply({'tiers': {'data': described}}, flag)
            self.assertEqual((copies, min_size, pg_num), self._shape('p'))

    def test_raises_min_size_once_the_copies_exist(self):
        self.cluster.apply({'tiers': {'data': ceph.tier('replica', 'ssd', 'w', 1, 8)}})
        self.cluster.create_image('w', 'image', 8)
        content = {'tiers': {'data': ceph.tier('replica', 'ssd', 'w', 3, 8, min_size=2)}}
        first = self.cluster.tiers('apply', content, '--yes-move-data')
        self.assertEqual(1, first.returncode, first.stderr)
        (waiting,) = json.loads(first.stdout)['waiting']
        self.assertEqual(('min_size', 1, 2), tuple(waiting[k] for k in ('attribute', 'from', 'to')))
        self.assertEqual((3, 1, 8), self._shape('w'))
        deadline = time.monotonic() + TIMEOUT_SEC
        while self.cluster.tiers('apply', content).returncode:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(1)
        self.assertEqual((3, 2, 8), self._shape('w'))

    def test_problems_change_nothing(self):
        tiers = {
            'class': ceph.tier('data', 'nvme', 'class', 2, 8),
            'copies': ceph.tier('data', 'ssd', 'copies', 4, 8),
            'domain': ceph.tier('data', 'ssd', 'domain', 2, 8, failure_domain='host'),
            'code': ceph.tier('vault', 'ssd', 'code', 2, 8, erasure={'k': 3, 'm': 1}),
        }
        self._check_refused(
            tiers,
            'there is no OSD of device class nvme',
            '4 copies need 4 of failure domain osd',
            '2 copies need 2 of failure domain host',
            'the code 3+1 needs 4 of failure domain osd',
        )
        tiers = {'groups': ceph.tier('data', 'ssd', 'groups', 3, 1024)}
        self._check_refused(tiers, 'exceed mon_max_pg_per_osd = 500')
        self._allow_single_copies('false')
        self.addCleanup(self._allow_single_copies, 'true')
        tiers = {'single': ceph.tier('replica', 'ssd', 'single', 1, 8)}
        self._check_refused(tiers, 'set mon mon_allow_pool_size_one true')

    def _allow_single_copies(self, value):
        option = ('config', 'set', 'mon_allow_pool_size_one', value)
        subprocess.run(
            ['ceph', '--conf', self.cluster.conf, 'tell', 'mon.*', *option],
            check=True,
            capture_output=True,
        )

    def _check_refused(self, tiers, *reasons):
        result = self.cluster.tiers('apply', {'tiers': tiers})
        self.assertEqual(2, result.returncode, result.stderr)
        for reason in reasons:
            self.assertIn(reason, result.stderr)
        pools = {pool['pool_name'] for pool in self.cluster.mon_command('osd dump')['pools']}
        self.assertEqual(set(), pools & set(tiers))
        rules = self.cluster.mon_command('osd crush rule dump')
        self.assertEqual(['replicated_rule'], [rule['rule_name'] for rule in rules])

    @base.long
    def test_completes_a_run_killed_while_creating_a_pool(self):
        content = {'tiers': {'data': ceph.tier('data', 'ssd', 'p', 2, 8)}}
        self.cluster.apply(content)
        half_made = 'osd pool create q 8 8 replicated ssd-osd --size 3'
        subprocess.run(
            ['ceph', '--conf', self.cluster.conf, *half_made.split()],
            check=True,
            capture_output=True,
        )
        # Nothing of a pool is lowered while its usage is unknown.
        self._wait_for_usage('q')
        content['tiers']['replica'] = ceph.tier('replica', 'ssd', 'q', 1, 8)
        self.assertTrue(self.cluster.apply(content)['changed'])
        self.assertEqual(1, self._pool('q')['size'])
        self.assertEqual(0, self.cluster.tiers('check', content).returncode)

    def _wait_for_usage(self, name):
        deadline = time.monotonic() + USAGE_SEC
        while name not in [one['name'] for one in self.cluster.mon_command('df')['pools']]:
            self.assertLess(time.monotonic(), deadline, f'no usage of pool {name}')
            time.sleep(0.2)


class ImportTest(base.FunctionalTestCase):
    """Import of a cluster that was set up by Ceph's manual for OpenStack."""

    def setUp(self):
        super().setUp()
        self.cluster = ceph.Cluster(self.directory / 'c', {'ssd': 3}, osd_gib=3)
        self.addCleanup(self.cluster.try_tool, 'destroy')
        self.cluster.create()
        self.cluster.start()
        self._make_what_openstack_uses()

    def _make_what_openstack_uses(self):
        for pool in ('volumes', 'images', 'backups', 'vms'):
            self._ceph('osd', 'pool', 'create', pool, '8', '8', 'replicated', 'replicated_rule')
            self._ceph('osd', 'pool', 'application', 'enable', pool, 'rbd')
        self._ceph(
            *('osd', 'erasure-code-profile', 'set', 'ec21-osd'),
            *('k=2', 'm=1', 'crush-failure-domain=osd'),
        )
        self._ceph('osd', 'pool', 'create', 'archive-data', '8', '8', 'erasure', 'ec21-osd')
        self._ceph('osd', 'pool', 'set', 'archive-data', 'allow_ec_overwrites', 'true')
        self._ceph('osd', 'pool', 'application', 'enable', 'archive-data', 'rbd')
        self._ceph('osd', 'crush', 'rule', 'create-simple', 'by-osd', 'default', 'osd')
        self._ceph('osd', 'pool', 'create', 'archive', '8', '8', 'replicated', 'by-osd')
        self._ceph('osd', 'pool', 'application', 'enable', 'archive', 'rbd')
        self._rbd('config', 'pool', 'set', 'archive', 'rbd_default_data_pool', 'archive-data')
        rbd_of = 'profile rbd pool={}'.format
        nova = f'{rbd_of("volumes")}, {rbd_of("vms")}'
        self._user('glance', rbd_of('images'), rbd_of('images'))
        self._user('cinder', f'{nova}, profile rbd-read-only pool=images', nova)
        self._user('cinder-backup', rbd_of('backups'), rbd_of('backups'))
        old = 'allow class-read object_prefix rbd_children, allow rwx pool=volumes'
        self._ceph('auth', 'get-or-create', 'client.old', 'mon', 'allow r', 'osd', old)

    def _user(self, name, osd, mgr):
        words = ('mon', 'profile rbd', 'osd', osd, 'mgr', mgr)
        self._ceph('auth', 'get-or-create', f'client.{name}', *words)

    def _ceph(self, *words):
        command = ['ceph', '--conf', self.cluster.conf, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def _rbd(self, *words):
        subprocess.run(['rbd', '--conf', self.cluster.conf, *words], check=True)

    def _cinder(self):
        found = fake_cloud.FakeCinder(backends=['rbd-1'])
        fsid = json.loads(self._ceph('fsid', '--format', 'json'))['fsid']
        found.locations['rbd-1'] = f'ceph:/etc/ceph/ceph.conf:{fsid}:cinder:volumes'
        block_storage = cinder.Cinder(found.client())
        block_storage.create_type(
            resources.VolumeType('__DEFAULT__', None, 'Default Volume Type', True, None)
        )
        found.changes.clear()
        return found

    def _state(self):
        dump = self.cluster.mon_command('osd dump')
        users = self.cluster.mon_command('auth ls')['auth_dump']
        pools = [
            {key: value for key, value in pool.items() if not key.startswith('last_')}
            for pool in dump['pools']
        ]
        rules = self.cluster.mon_command('osd crush rule dump')
        return [pools, dump['erasure_code_profiles'], users, rules]

    def test_import_plan_and_apply_change_nothing(self):
        fake = self._cinder()
        fake.types['id-of-__DEFAULT__']['extra_specs'].clear()
        before = self._state()
        clients = (
            tiers_ceph.Ceph(str(self.cluster.conf), 'admin'),
            cinder.Cinder(fake.client()),
            None,
        )
        found = import_command.run(*clients, [], {'archive': tier_types.Purpose.VAULT})
        self.assertEqual(((), ()), (found.plan.changes, found.plan.problems))
        tiers = {tier.pool: tier for tier in found.content.tiers.values()}
        self.assertEqual({'volumes', 'images', 'archive'}, set(tiers))
        self.assertIsNone(tiers['volumes'].device_class)
        self.assertEqual('archive-data', tiers['archive'].erasure.pool)
        users = found.content.users
        self.assertEqual({'client.cinder', 'client.glance', 'client.old'}, set(users))
        self.assertEqual(
            (tier_types.Role.CINDER, ('vms',)),
            (users['client.cinder'].role, users['client.cinder'].pools),
        )
        self.assertIsNone(users['client.old'].role)

        changes = []
        apply.run(
            found.content, systems.Systems(found.content, *clients), frozenset(), changes.append
        )
        self.assertEqual([], changes)
        self.assertEqual([], fake.changes)
        self.assertEqual(before, self._state())

    def test_grants_more_and_revokes_nothing(self):
        clients = (tiers_ceph.Ceph(str(self.cluster.conf), 'admin'), None, None)
        found = import_command.run(*clients, [], {})
        users = dict(found.content.users)
        glance = users['client.glance']
        users['client.glance'] = dataclasses.replace(glance, pools=('backups',))
        content = dataclasses.replace(found.content, users=users)
        changes = []
        apply.run(content, systems.Systems(content, *clients), frozenset(), changes.append)
        self.assertEqual(['cephx user client.glance'], [str(one).split(':')[0] for one in changes])
        (user,) = self.cluster.mon_command('auth get', entity='client.glance')
        expected = 'profile rbd pool=images, profile rbd pool=backups'
        self.assertEqual({'mgr': expected, 'mon': 'profile rbd', 'osd': expected}, user['caps'])


class AssociationsTest(base.FunctionalTestCase):
    """``trove-manage`` on a private database."""

    def setUp(self):
        super().setUp()
        program = Path(sys.executable).with_name('trove-manage')
        conf = self.directory / 'trove.conf'
        database = self.directory / 'trove.sqlite'
        conf.write_text(f'[database]\nconnection = sqlite:///{database}\n')
        self.trove = trove.Trove(str(program), str(conf))
        version = ('datastore_version_update', 'mysql', '9.7.4', 'mysql', 'image', '', '1')
        for words in (('db_sync',), ('datastore_update', 'mysql', ''), version):
            subprocess.run(
                [program, '--config-file', conf, *words], check=True, capture_output=True
            )

    def _associations(self, version='mysql/9.7.4'):
        return self.trove.observe([version]).associations[version]

    @base.long
    def test_reads_and_changes_associations(self):
        self.assertEqual(frozenset(), self._associations())
        for name in ('nvme', 'a name with blanks'):
            self.trove.associate('mysql/9.7.4', name)
        self.assertEqual({'nvme', 'a name with blanks'}, self._associations())
        self.trove.dissociate('mysql/9.7.4', 'nvme')
        self.assertEqual({'a name with blanks'}, self._associations())
        # Trove keeps deleted rows, and must find them again.
        self.trove.associate('mysql/9.7.4', 'nvme')
        self.assertEqual({'nvme', 'a name with blanks'}, self._associations())

    def test_reports_missing_versions_and_types(self):
        self.assertIsNone(self._associations('mysql/1'))
        self.assertIsNone(self._associations('maria/1'))
