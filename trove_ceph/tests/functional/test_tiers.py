# SPDX-License-Identifier: Apache-2.0
"""What tiers stand on: placement by device class, bounded keys, clones, repeatable changes."""

import copy
import json

import rados
import rbd

from trove_ceph.tests.functional import base, ceph

MIB = 1024**2


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
        """The device classes of the OSDs that hold the objects of a pool."""
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

    def test_objects_lie_on_the_device_class_of_their_tier(self):
        for pool, device_class in (('volumes-nvme', 'nvme'), ('volumes-hdd', 'hdd')):
            self._make_image(pool)
            self.assertEqual({device_class}, self._classes_of(pool))

    def test_coded_pool_keeps_data_of_an_image_on_its_class(self):
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

    def test_clone_outlives_its_snapshot_across_pools(self):
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

    def test_apply_changes_nothing_when_nothing_differs(self):
        before = self.cluster.mon_command('osd dump')
        summary = self.cluster.apply(ceph.TIERS)
        self.assertEqual({'changed': False, 'changes': [], 'kept': []}, summary)
        after = self.cluster.mon_command('osd dump')
        self.assertEqual(before['pools'], after['pools'])

    def test_apply_never_lowers_redundancy(self):
        spec = copy.deepcopy(ceph.TIERS)
        spec['pools'][0] |= {'size': 1, 'pg_num': 8}
        summary = self.cluster.apply(spec)
        self.assertFalse(summary['changed'])
        self.assertEqual(
            ['pool volumes-nvme: size 2, described 1', 'pool volumes-nvme: pg_num 16, described 8'],
            summary['kept'],
        )

    def test_apply_refuses_what_cannot_be_changed(self):
        spec = copy.deepcopy(ceph.TIERS)
        spec['rules'][0]['device_class'] = 'hdd'
        path = self.directory / 'spec.json'
        path.write_text(json.dumps(spec))
        result = self.cluster.try_tool('apply', path)
        self.assertEqual(2, result.returncode)
        self.assertIn('rule nvme exists for nvme by osd', result.stderr)
