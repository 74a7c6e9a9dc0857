# SPDX-License-Identifier: Apache-2.0
import fnmatch
import uuid

from oslotest import base

from trove_ceph.storage import names

ID = '0b7a2f3e-8c7d-4e51-9a3e-6f2d1c0b9a87'


class NamesTest(base.BaseTestCase):
    def test_an_operation_always_has_the_same_names(self):
        self.assertEqual(f'trove_ceph.backup.{ID}', names.snapshot_name('backup', ID))
        self.assertEqual(names.image_name('restore', ID.upper()), names.image_name('restore', ID))

    def test_parse(self):
        for kind in names.SNAPSHOT_KINDS:
            self.assertEqual(names.Name(kind, ID), names.parse(names.snapshot_name(kind, ID)))
        for kind in names.IMAGE_KINDS:
            self.assertEqual(names.Name(kind, ID), names.parse(names.image_name(kind, ID)))

    def test_other_names_are_not_parsed(self):
        for name in (
            f'volume-{ID}',
            f'trove-{ID}',
            f'trove_ceph.other.{ID}',
            f'trove_ceph.backup.{ID}.clone_snap',
            f'x.trove_ceph.backup.{ID}',
            'trove_ceph.backup.1',
            f'trove_ceph.backup.{ID}\n',
        ):
            self.assertIsNone(names.parse(name), name)

    def test_names_match_no_pattern_of_cinder_and_trove(self):
        created = [names.snapshot_name(kind, ID) for kind in names.SNAPSHOT_KINDS]
        created += [names.image_name(kind, ID) for kind in names.IMAGE_KINDS]
        for name in created:
            for pattern in ('*.clone_snap', 'backup.*.snap.*', 'trove-*', 'volume-*', 'snapshot-*'):
                self.assertFalse(fnmatch.fnmatch(name, pattern), (name, pattern))

    def test_refuses_invalid_kinds_and_ids(self):
        self.assertRaises(ValueError, names.snapshot_name, 'vault', ID)
        self.assertRaises(ValueError, names.image_name, 'backup', ID)
        self.assertRaises(ValueError, names.snapshot_name, 'backup', 'no-uuid')
        self.assertRaises(ValueError, names.snapshot_name, 'backup', f'{uuid.uuid4()}.clone_snap')
