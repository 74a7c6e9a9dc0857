# SPDX-License-Identifier: Apache-2.0
"""An administrator adopts snapshots and clones created with librbd, and then uses Cinder alone."""

import itertools
import time
import uuid

import testtools.content
from keystoneauth1 import session
from keystoneauth1.identity import v3
from oslo_utils import units
from tempest import config, test
from tempest.lib import decorators
from tempest.lib import exceptions as tempest_exceptions

from trove_ceph import exceptions, steps
from trove_ceph.cinder import client, deletion, resources, snapshots, volumes, wait
from trove_ceph.storage import image_types, names
from trove_ceph_tempest_plugin import images

CONF = config.CONF
GIB = units.Gi
WRITTEN_BYTES = 8 * 1024**2
POLL_SEC = 0.5


class TestAdoption(test.BaseTestCase):
    """Use volumes without servers, so that tests are fast; fail if a test leaves a resource."""

    credentials = ['admin', 'primary']

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        options = CONF.trove_ceph
        if not (options.volume_types and options.ceph_conf and options.ceph_storage_user):
            raise cls.skipException(
                '[trove_ceph] volume_types, ceph_conf and ceph_storage_user are not all set'
            )

    @classmethod
    def setup_clients(cls):
        super().setup_clients()
        options = CONF.trove_ceph
        cls.volumes = cls.os_admin.volumes_client_latest
        cls.snapshots = cls.os_admin.snapshots_client_latest
        cls.quotas = cls.os_admin.volume_quotas_client_latest
        cls.cinder = _cinder(cls.os_admin)
        cls.owner = _cinder(cls.os_primary)
        cls.storage = images.Images(options.ceph_conf, options.ceph_storage_user)
        by_name = {each.backend_name: each for each in cls.cinder.list_backends()}
        types = [cls.cinder.find_type(name) for name in options.volume_types]
        cls.backends = {one.name: by_name[one.backend_name] for one in types}

    def setUp(self):
        super().setUp()
        self._figures = {}
        self.volume_type, *others = self.backends
        self.other_type = others[0] if others else self.volume_type
        self._before = self._all_resources()
        # The last cleanup to run, after all deletions.
        self.addCleanup(self._check_nothing_left)
        self.source = self._create_volume()
        self.image = self._image(self.source)
        self.storage.write(self.image, WRITTEN_BYTES)
        self.written = self.storage.digest(self.image, WRITTEN_BYTES)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a101')
    def test_deleted_in_every_order(self):
        """Delete a snapshot and its clones in two pools in every order; the source comes last.

        Cinder refuses to delete a volume that has snapshots.
        """
        for order in itertools.permutations(('snapshot', 'near', 'far')):
            snapshot_id = self._adopt_snapshot()
            clones = {
                'near': self._adopt_clone(snapshot_id, self.volume_type),
                'far': self._adopt_clone(snapshot_id, self.other_type),
            }
            with self._measured(' '.join(order)):
                for each in order:
                    if each == 'snapshot':
                        self.assertRaises(
                            tempest_exceptions.BadRequest,
                            self.volumes.delete_volume,
                            self.source,
                        )
                        self._delete_snapshot(snapshot_id)
                    else:
                        self._delete_volume(clones[each])
            self.assertEqual((), self.storage.describe(self.image).snapshots)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a102')
    def test_clone_outlives_source(self):
        """After its snapshot, trove_ceph refuses to delete the source of a clone; Cinder copies."""
        snapshot_id = self._adopt_snapshot()
        clone = self._adopt_clone(snapshot_id, self.other_type)
        self._delete_snapshot(snapshot_id)
        (snapshot,) = self.storage.describe(self.image).snapshots
        self.assertTrue(snapshot.removed)
        error = self.assertRaises(exceptions.BusyError, self._delete_completely, self.source)
        self.assertIn(f'volume-{clone}', str(error))
        # Cinder itself does not refuse: it flattens the clone, which can take hours elsewhere.
        with self._measured('delete a source with a clone'):
            self._delete_volume(self.source)
        self._check_content(clone)
        self.assertIsNone(self.storage.describe(self._image(clone)).parent)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a103')
    def test_flattened_clone_frees_its_source(self):
        snapshot_id = self._adopt_snapshot()
        clone = self._adopt_clone(snapshot_id, self.other_type)
        self._delete_snapshot(snapshot_id)
        self.storage.flatten(self._image(clone))
        self.assertEqual((), self.storage.describe(self.image).snapshots)
        with self._measured('delete a source without clones'):
            self._delete_completely(self.source)
        self._check_content(clone)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a104')
    def test_extend(self):
        """Extend a clone and its source; the snapshot keeps its size."""
        snapshot_id = self._adopt_snapshot()
        clone = self._adopt_clone(snapshot_id, self.other_type)
        for volume_id in (clone, self.source):
            self.volumes.extend_volume(volume_id, new_size=2)
            self._wait_for_volume(volume_id)
            self.assertEqual(2 * GIB, self.storage.describe(self._image(volume_id)).size_bytes)
        self._check_content(clone)
        later = self._adopt_clone(snapshot_id, self.volume_type)
        self.assertEqual(1, self.cinder.find_volume(later).size_gib)
        self._check_content(later)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a105')
    def test_cinder_makes_volumes_of_adopted_snapshots(self):
        """Also from a snapshot of an adopted clone, which gives a clone of a clone."""
        snapshot_id = self._adopt_snapshot()
        clone = self._adopt_clone(snapshot_id, self.volume_type)
        second_id = self.snapshots.create_snapshot(volume_id=clone)['snapshot']['id']
        self._wait_for(lambda: self.cinder.find_snapshot(second_id).status == 'available')
        created = [self._create_volume(snapshot_id=each) for each in (snapshot_id, second_id)]
        for volume_id in created:
            self._check_content(volume_id)
        self._delete_snapshot(second_id)
        self._delete_snapshot(snapshot_id)
        for volume_id in reversed([self.source, clone, *created]):
            self._delete_completely(volume_id)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a106')
    def test_retype_to_another_pool(self):
        """Cinder copies the volume, which is then no clone; its old pool keeps nothing of it."""
        if self.other_type == self.volume_type:
            raise self.skipException('[trove_ceph] volume_types lists only one')
        snapshot_id = self._adopt_snapshot()
        clone = self._adopt_clone(snapshot_id, self.volume_type)
        before = self._image(clone)
        with self._measured('retype'):
            self.volumes.retype_volume(
                clone, new_type=self.other_type, migration_policy='on-demand'
            )
            self._wait_for(lambda: self.cinder.find_volume(clone).volume_type == self.other_type)
            self._wait_for_volume(clone)
        self.assertRaises(exceptions.NotFoundError, self.storage.describe, before)
        after = self.storage.describe(self._image(clone))
        self.assertEqual(self.backends[self.other_type].pool, after.image.pool)
        self.assertIsNone(after.parent)
        self._check_content(clone)
        self._delete_completely(clone)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a107')
    def test_given_to_another_project(self):
        """A member of that project deletes the volume; the quotas of both projects are correct."""
        snapshot_id = self._adopt_snapshot()
        clone = self._adopt_clone(snapshot_id, self.other_type, self.owner)
        shown = self.os_primary.volumes_client_latest.show_volume(clone)['volume']
        self.assertEqual('available', shown['status'])
        self.assertEqual(self.os_primary.credentials.user_id, shown['user_id'])
        self.assertEqual('false', shown['bootable'])
        self.os_primary.volumes_client_latest.delete_volume(clone)
        self._wait_until_gone(clone)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a108')
    def test_snapshot_that_cinder_does_not_know(self):
        """Cinder would leave the image in the trash; trove_ceph refuses."""
        unknown = self.image.snapshot(names.snapshot_name('move', str(uuid.uuid4())))
        self.storage.create_snapshot(unknown)
        error = self.assertRaises(exceptions.BusyError, self._delete_completely, self.source)
        self.assertIn(unknown.name, str(error))
        self._delete_volume(self.source)
        (trashed,) = [
            one for one in self.storage.list_trash(self.image.pool) if one.name == self.image.name
        ]
        self.storage.purge(trashed)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a109')
    def test_clone_of_format_1(self):
        """Cinder's user has caps on the other pool, so Cinder flattens the clone."""
        snapshot_id = self._adopt_snapshot()
        clone = self._adopt_clone(snapshot_id, self.other_type, clone_format=1)
        with self._measured('delete a snapshot with a clone of format 1'):
            self._delete_snapshot(snapshot_id)
        self.assertIsNone(self.storage.describe(self._image(clone)).parent)
        self._check_content(clone)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a10a')
    def test_run_again(self):
        """Interrupt the adoption after each step, and run it again."""
        operation_id = str(uuid.uuid4())
        adoption = self._snapshot_adoption(operation_id)
        for number in range(len(adoption.steps()) + 1):
            for step in self._snapshot_adoption(operation_id).steps()[:number]:
                step.do()
        self.assertEqual(1, len(self.cinder.list_snapshots(self.source)))
        adoption.remove()
        self.assertEqual([], self.cinder.list_snapshots(self.source))
        self.assertEqual((), self.storage.describe(self.image).snapshots)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a10b')
    def test_failure_leaves_nothing(self):
        """Cinder fails to adopt a missing image; its records and quota usage are removed."""
        no_op = lambda: None  # noqa: E731
        adoptions = [
            self._snapshot_adoption(str(uuid.uuid4()), no_op),
            self._volume_adoption(str(uuid.uuid4()), self.volume_type, no_op, no_op),
        ]
        for adoption in adoptions:
            error = self.assertRaises(exceptions.AdoptionFailedError, adoption.ensure_managed)
            self.assertIn('is in status error', str(error))
            adoption.remove_managed()

    def _create_volume(self, **options):
        volume = self.volumes.create_volume(size=1, volume_type=self.volume_type, **options)[
            'volume'
        ]
        self.addCleanup(self._remove, volume['id'])
        self._wait_for_volume(volume['id'])
        return volume['id']

    def _snapshot_adoption(self, operation_id, create=None):
        snapshot = self.image.snapshot(names.snapshot_name('backup', operation_id))
        target = resources.SnapshotToAdopt(operation_id, snapshot, self.source, 'adopted')
        create = create or (lambda: self.storage.create_snapshot(snapshot))
        return snapshots.SnapshotAdoption(self.storage, self.cinder, target, create)

    def _adopt_snapshot(self):
        adoption = self._snapshot_adoption(str(uuid.uuid4()))
        with self._measured('adopt a snapshot'):
            steps.run('adopt a snapshot', adoption.steps())
        snapshot_id = adoption.snapshot_id
        self.addCleanup(self._delete_snapshot, snapshot_id)
        (snapshot,) = self.storage.describe(self.image).snapshots
        self.assertEqual(f'snapshot-{snapshot_id}', snapshot.name)
        return snapshot_id

    def _volume_adoption(self, operation_id, volume_type, create, remove, owner=None):
        backend = self.backends[volume_type]
        image = _restored(backend, operation_id)
        target = resources.ImageToAdopt(operation_id, image, volume_type, backend.name, 'adopted')
        return volumes.VolumeAdoption(self.storage, self.cinder, target, create, remove, owner)

    def _adopt_clone(self, snapshot_id, volume_type, owner=None, clone_format=2):
        operation_id = str(uuid.uuid4())
        parent = self.image.snapshot(f'snapshot-{snapshot_id}')
        image = _restored(self.backends[volume_type], operation_id)
        adoption = self._volume_adoption(
            operation_id,
            volume_type,
            lambda: self.storage.clone(parent, image, clone_format),
            lambda: self.storage.remove(image),
            owner,
        )
        with self._measured('adopt a clone'):
            steps.run('adopt a clone', adoption.steps())
        volume_id = adoption.volume_id
        self.addCleanup(self._remove, volume_id)
        volume = self.cinder.find_volume(volume_id)
        self.assertEqual(
            (1, 'available', (owner or self.cinder).project_id, volume_type),
            (volume.size_gib, volume.status, volume.project_id, volume.volume_type),
        )
        self.assertEqual(parent, self.storage.describe(self._image(volume_id)).parent)
        return volume_id

    def _image(self, volume_id):
        volume = self.cinder.find_volume(volume_id)
        pools = {backend.name: backend.pool for backend in self.backends.values()}
        return image_types.ImageRef(pools[volume.backend], volume.image_name)

    def _check_content(self, volume_id):
        self.assertEqual(self.written, self.storage.digest(self._image(volume_id), WRITTEN_BYTES))

    def _delete_completely(self, volume_id):
        deleting = deletion.VolumeDeletion(self.storage, self.cinder, volume_id)
        steps.run(f'delete {volume_id}', deleting.steps())

    def _delete_volume(self, volume_id):
        self.cinder.delete_volume(volume_id)
        self._wait_until_gone(volume_id)

    def _delete_snapshot(self, snapshot_id):
        self.cinder.delete_snapshot(snapshot_id)
        wait.WaitLimits().until_gone(self.cinder.find_snapshot, snapshot_id)

    def _wait_until_gone(self, volume_id):
        wait.WaitLimits().until_gone(self.cinder.find_volume, volume_id)

    def _wait_for_volume(self, volume_id):
        self._wait_for(lambda: self.cinder.find_volume(volume_id).status == 'available')

    def _wait_for(self, condition):
        deadline = time.monotonic() + CONF.trove_ceph.delete_timeout_sec
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f'Cinder took more than {CONF.trove_ceph.delete_timeout_sec} s')
            time.sleep(POLL_SEC)

    def _remove(self, volume_id):
        """Delete a volume that a test left, its snapshots first."""
        if self.cinder.find_volume(volume_id):
            for snapshot in self.cinder.list_snapshots(volume_id):
                self._delete_snapshot(snapshot.id)
            self._delete_volume(volume_id)

    def _measured(self, what):
        return _Measured(self, what)

    def note(self, what, seconds):
        """Attach a figure to the result: the longest of its kind."""
        self._figures[what] = max(seconds, self._figures.get(what, 0))
        self.addDetail('figures', testtools.content.json_content({'seconds': dict(self._figures)}))

    def _all_resources(self):
        """Return the images of the pools, and the quota usage of the projects of these tests."""
        found = {
            f'{backend.pool}/{name}'
            for backend in self.backends.values()
            for name in self.storage.list_names(backend.pool)
        }
        for cinder in (self.cinder, self.owner):
            quota = self.quotas.show_quota_set(cinder.project_id, params={'usage': True})
            for name, entry in quota['quota_set'].items():
                if name != 'id' and entry['in_use']:
                    found.add(f'quota of project {cinder.project_id}: {name} {entry["in_use"]}')
        return found

    def _check_nothing_left(self):
        new = self._all_resources() - self._before
        self.assertEqual(set(), {name for name in new if not self._is_foreign(name)})

    def _is_foreign(self, name):
        """Return whether an image is that of a volume of another project."""
        found = self.cinder.find_volume(name.rpartition('/volume-')[2])
        projects = (self.cinder.project_id, self.owner.project_id)
        return found is not None and found.project_id not in projects


class _Measured:
    """Record the duration of a block."""

    def __init__(self, case, what):
        self._case, self._what = case, what

    def __enter__(self):
        self._began = time.monotonic()

    def __exit__(self, *exc_info):
        self._case.note(self._what, round(time.monotonic() - self._began, 2))


def _restored(backend, operation_id):
    return image_types.ImageRef(backend.pool, names.image_name('restore', operation_id))


def _cinder(manager):
    """Return a Cinder client with the credentials of Tempest's user."""
    credentials = manager.credentials
    identity = v3.Password(
        auth_url=CONF.identity.uri_v3,
        username=credentials.username,
        password=credentials.password,
        project_id=credentials.project_id,
        user_domain_id=credentials.user_domain_id,
    )
    return client.Cinder.of_session(
        session.Session(identity), region_name=CONF.identity.region or None
    )
