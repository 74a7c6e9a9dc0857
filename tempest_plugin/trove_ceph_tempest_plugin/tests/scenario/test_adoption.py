# SPDX-License-Identifier: Apache-2.0
"""An administrator adopts snapshots and clones made with librbd, and works on with Cinder alone."""

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
    """Volumes without servers, so each test takes seconds. Fails if anything is left behind."""

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
        backends = {each.backend_name: each for each in cls.cinder.list_backends()}
        types = [cls.cinder.find_type(name) for name in options.volume_types]
        cls.places = {one.name: backends[one.backend_name] for one in types}

    def setUp(self):
        super().setUp()
        self._figures = {}
        self.volume_type, *others = self.places
        self.other_type = others[0] if others else self.volume_type
        self._before = self._everything()
        # Last of all: what is deleted by then must be gone.
        self.addCleanup(self._check_nothing_left)
        self.source = self._create_volume()
        self.image = self._image(self.source)
        self.storage.write(self.image, WRITTEN_BYTES)
        self.written = self.storage.digest(self.image, WRITTEN_BYTES)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a101')
    def test_deleted_in_every_order(self):
        """Snapshot, clones in the same and in another pool: each goes at once, the source last.

        Cinder refuses to delete a volume that has snapshots.
        """
        for order in itertools.permutations(('snapshot', 'near', 'far')):
            snapshot_id = self._adopt_snapshot()
            clones = {
                'near': self._adopt_clone(snapshot_id, self.volume_type),
                'far': self._adopt_clone(snapshot_id, self.other_type),
            }
            with self._measured(' '.join(order)):
                for what in order:
                    if what == 'snapshot':
                        self.assertRaises(
                            tempest_exceptions.BadRequest,
                            self.volumes.delete_volume,
                            self.source,
                        )
                        self._delete_snapshot(snapshot_id)
                    else:
                        self._delete_volume(clones[what])
            self.assertEqual((), self.storage.describe(self.image).snapshots)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a102')
    def test_clone_outlives_source(self):
        """With its snapshot gone, the source waits for its clones or is copied into them."""
        snapshot_id = self._adopt_snapshot()
        clone = self._adopt_clone(snapshot_id, self.other_type)
        self._delete_snapshot(snapshot_id)
        (kept,) = self.storage.describe(self.image).snapshots
        self.assertTrue(kept.removed)
        error = self.assertRaises(exceptions.BusyError, self._delete_completely, self.source)
        self.assertIn(f'volume-{clone}', str(error))
        # Cinder of itself does not refuse: it copies, here little, elsewhere all night.
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
        """A clone grows, and so does its source; the snapshot keeps its size."""
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
        """Of a snapshot of an adopted clone, too, which is a clone of a clone."""
        snapshot_id = self._adopt_snapshot()
        clone = self._adopt_clone(snapshot_id, self.volume_type)
        made = self.snapshots.create_snapshot(volume_id=clone)['snapshot']['id']
        self._wait_for(lambda: self.cinder.find_snapshot(made).status == 'available')
        volumes_made = [self._create_volume(snapshot_id=each) for each in (snapshot_id, made)]
        for volume_id in volumes_made:
            self._check_content(volume_id)
        self._delete_snapshot(made)
        self._delete_snapshot(snapshot_id)
        for volume_id in reversed([self.source, clone, *volumes_made]):
            self._delete_completely(volume_id)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a106')
    def test_retype_to_another_pool(self):
        """Cinder copies: the volume is a clone no more, and nothing is left in its old pool."""
        if self.other_type == self.volume_type:
            raise self.skipException('[trove_ceph] volume_types names only one')
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
        self.assertEqual(self.places[self.other_type].pool, after.image.pool)
        self.assertIsNone(after.parent)
        self._check_content(clone)
        self._delete_completely(clone)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a107')
    def test_given_to_another_project(self):
        """Its member deletes the volume; both projects' quotas are right."""
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
        (left,) = [
            one for one in self.storage.list_trash(self.image.pool) if one.name == self.image.name
        ]
        self.storage.purge(left)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a109')
    def test_clone_of_format_1(self):
        """The caps of Cinder's user reach the other pool, so Cinder copies and does not fail."""
        snapshot_id = self._adopt_snapshot()
        clone = self._adopt_clone(snapshot_id, self.other_type, clone_format=1)
        with self._measured('delete a snapshot with a clone of format 1'):
            self._delete_snapshot(snapshot_id)
        self.assertIsNone(self.storage.describe(self._image(clone)).parent)
        self._check_content(clone)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a10a')
    def test_run_again(self):
        """Operations that were killed after each step, and are run again."""
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
        """Cinder gives up on what is not there; its records go, and the quota is as before."""
        nothing = lambda: None  # noqa: E731
        adoptions = [
            self._snapshot_adoption(str(uuid.uuid4()), nothing),
            self._volume_adoption(str(uuid.uuid4()), self.volume_type, nothing, nothing),
        ]
        for adoption in adoptions:
            error = self.assertRaises(exceptions.AdoptionFailedError, adoption.ensure_managed)
            self.assertIn('is in status error', str(error))
            adoption.remove_managed()

    # What the tests are made of.

    def _create_volume(self, **facts):
        made = self.volumes.create_volume(size=1, volume_type=self.volume_type, **facts)['volume']
        self.addCleanup(self._remove, made['id'])
        self._wait_for_volume(made['id'])
        return made['id']

    def _snapshot_adoption(self, operation_id, make=None):
        taken = self.image.snapshot(names.snapshot_name('backup', operation_id))
        wanted = resources.SnapshotToAdopt(operation_id, taken, self.source, 'adopted')
        make = make or (lambda: self.storage.create_snapshot(taken))
        return snapshots.SnapshotAdoption(self.storage, self.cinder, wanted, make)

    def _adopt_snapshot(self):
        adoption = self._snapshot_adoption(str(uuid.uuid4()))
        with self._measured('adopt a snapshot'):
            steps.run('adopt a snapshot', adoption.steps())
        snapshot_id = adoption.snapshot_id
        self.addCleanup(self._delete_snapshot, snapshot_id)
        (taken,) = self.storage.describe(self.image).snapshots
        self.assertEqual(f'snapshot-{snapshot_id}', taken.name)
        return snapshot_id

    def _volume_adoption(self, operation_id, volume_type, make, remove, owner=None):
        place = self.places[volume_type]
        image = _restored(place, operation_id)
        wanted = resources.ImageToAdopt(operation_id, image, volume_type, place.name, 'adopted')
        return volumes.VolumeAdoption(self.storage, self.cinder, wanted, make, remove, owner)

    def _adopt_clone(self, snapshot_id, volume_type, owner=None, clone_format=2):
        operation_id = str(uuid.uuid4())
        parent = self.image.snapshot(f'snapshot-{snapshot_id}')
        image = _restored(self.places[volume_type], operation_id)
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
        pools = {place.name: place.pool for place in self.places.values()}
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
                self.fail('Cinder took too long')
            time.sleep(POLL_SEC)

    def _remove(self, volume_id):
        """Delete what a test did not, its snapshots first."""
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

    def _everything(self):
        """What the pools hold, and what the quotas of our projects say, which nobody else uses."""
        found = {
            f'{place.pool}/{name}'
            for place in self.places.values()
            for name in self.storage.list_names(place.pool)
        }
        for cinder in (self.cinder, self.owner):
            quota = self.quotas.show_quota_set(cinder.project_id, params={'usage': True})
            for name, entry in quota['quota_set'].items():
                if name != 'id' and entry['in_use']:
                    found.add(f'quota of project {cinder.project_id}: {name} {entry["in_use"]}')
        return found

    def _check_nothing_left(self):
        new = self._everything() - self._before
        self.assertEqual(set(), {name for name in new if not self._is_of_others(name)})

    def _is_of_others(self, name):
        """Tell whether it is the image of a volume that somebody else made meanwhile."""
        found = self.cinder.find_volume(name.rpartition('/volume-')[2])
        projects = (self.cinder.project_id, self.owner.project_id)
        return found is not None and found.project_id not in projects


class _Measured:
    """Notes how long a block takes."""

    def __init__(self, case, what):
        self._case, self._what = case, what

    def __enter__(self):
        self._began = time.monotonic()

    def __exit__(self, *exc_info):
        self._case.note(self._what, round(time.monotonic() - self._began, 2))


def _restored(place, operation_id):
    return image_types.ImageRef(place.pool, names.image_name('restore', operation_id))


def _cinder(manager):
    """Return Cinder with the token of Tempest's user in its project."""
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
