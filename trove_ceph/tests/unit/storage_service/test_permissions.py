# SPDX-License-Identifier: Apache-2.0
"""Each verb declares a permission, and refuses images and snapshots that are not managed."""

import dataclasses
import datetime
import inspect
import json
import uuid

import fixtures
import testscenarios
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import fencing, golden, image_types, names, tasks
from trove_ceph.storage_service import (
    endpoint,
    message_keys,
    permissions,
    serializer,
    signed_client,
)
from trove_ceph.storage_service import transport as storage_transport
from trove_ceph.tests.unit.storage_service import bus, service_world

ID = str(uuid.uuid4())
MANAGED = names.image_name('restore', ID)
VAULT = names.image_name('vault', ID)
VOLUME = f'volume-{ID}'
#: Names that resemble those of volumes or managed images, but are neither.
FOREIGN = (
    'image',
    f'{VOLUME}.deleted',
    f'volume-{ID[:-1]}',
    f'image-{ID}',
    f'trove_ceph.backup.{ID}',
    f'trove_ceph.restore.{ID}x',
    f'xtrove_ceph.restore.{ID}',
    f'backup.{ID}',
)
MANAGED_SNAPSHOT = names.snapshot_name('backup', ID)
OF_CINDER = f'snapshot-{ID}'
QOS = image_types.Qos(iops=300)
load_tests = testscenarios.load_tests_apply_scenarios


def verbs():
    return [
        (name, member)
        for name, member in vars(endpoint.Endpoint).items()
        if inspect.isfunction(member) and not name.startswith('_')
    ]


def attacks(name):
    """Return, by verb, the arguments with which a request attacks the image of this name."""
    image = image_types.ImageRef('volumes', name)
    snapshot = image.snapshot('s')
    other = image_types.ImageRef('volumes', VOLUME)
    qos = {'qos': QOS}
    works = (
        tasks.FlattenTask(image),
        tasks.CopyTask(other.snapshot(MANAGED_SNAPSHOT), image),
        tasks.CopyTask(snapshot, image_types.ImageRef('vault', VAULT)),
        tasks.VerifyTask(snapshot, snapshot),
        tasks.InspectTask(snapshot, ID, '9.7.4'),
        tasks.FenceTask(image),
    )
    return {
        'create_snapshot': [{'snapshot': image.snapshot('t')}],
        'remove_snapshot': [{'snapshot': snapshot}],
        'rename_snapshot': [{'snapshot': snapshot, 'name': 't'}],
        'clone': [
            {
                'snapshot': snapshot,
                'image': image_types.ImageRef('volumes', MANAGED),
                'options': None,
            }
            | qos,
            {'snapshot': other.snapshot(OF_CINDER), 'image': image, 'options': None} | qos,
        ],
        'set_qos': [{'image': image} | qos],
        'unfence': [{'image': image}],
        'trash': [{'image': image}],
        'restore': [{'pool': 'volumes', 'image_id': None, 'name': name}],
        'start': [{'operation_id': 'operation', 'work': work} for work in works],
    }


class DeclarationTest(base.BaseTestCase):
    def test_every_verb_declares_a_permission(self):
        declared = endpoint.permissions_of(endpoint.Endpoint)
        for name, _member in verbs():
            self.assertIsInstance(declared.get(name), permissions.Permission, name)

    def test_every_kind_of_task_declares_a_check(self):
        self.assertEqual(set(tasks.Task.__subclasses__()), set(permissions.CHECKS_BY_TASK))

    def test_every_verb_that_changes_something_is_attacked_here(self):
        changing = {
            name
            for name, permission in endpoint.permissions_of(endpoint.Endpoint).items()
            if permission.changes
        }
        # A job is canceled by its operation id, which loses no data.
        self.assertEqual(changing - {'cancel'}, set(attacks('image')))
        attacked = {type(one['work']) for one in attacks('image')['start']}
        # A purge names no image, and a build requires the name of what it builds.
        others = {tasks.PurgeTask, tasks.GoldenTask}
        self.assertEqual(set(tasks.Task.__subclasses__()) - others, attacked)

    def test_verbs_that_only_read_change_nothing(self):
        """Verbs with permission READ change nothing in the cluster."""
        world = service_world.World(MANAGED, VAULT)
        service = world.service()
        before = json.dumps(serializer.encode(world.storage.describe(world.image)))
        reads = {
            'describe': {'image': world.image, 'with_usage': True},
            'list_images': {'pool': 'volumes', 'prefix': '', 'after': '', 'limit': 10},
            'list_trash': {'pool': 'volumes'},
            'usage': {'pool': 'volumes'},
            'usage_of_tier': {'tier': 'slow'},
            'find_job': {'operation_id': 'none'},
            'list_jobs': {},
            'survey_jobs': {},
            'version': {},
        }
        declared = endpoint.permissions_of(endpoint.Endpoint)
        self.assertEqual({name for name, one in declared.items() if not one.changes}, set(reads))
        entries = json.dumps(world.cluster.entries)
        for verb, arguments in reads.items():
            try:
                getattr(service.endpoint, verb)({}, **arguments)
            except Exception as error:
                self.assertEqual('find_job', verb, error)
        self.assertEqual(before, json.dumps(serializer.encode(world.storage.describe(world.image))))
        self.assertEqual(entries, json.dumps(world.cluster.entries))

    def test_an_undeclared_verb_cannot_be_called(self):
        class Extended(endpoint.Endpoint):
            def wipe(self):
                raise AssertionError('was called')

        self.assertNotIn('wipe', endpoint.permissions_of(Extended))


class PermissionTestCase(base.BaseTestCase):
    """Over the signed bus, as a caller with the keys."""

    def setUp(self):
        super().setUp()
        keys = message_keys.KeyFile(self.useFixture(fixtures.TempDir()).join('keys.json'))
        message_keys.create(keys.path)
        self.world = service_world.World(MANAGED, VAULT)
        self.service = self.world.service()
        self.useFixture(fixtures.FakeLogger())
        now = 1_700_000_000.0
        served = bus.Bus(self.service, keys, lambda: now)
        self.useFixture(
            fixtures.MonkeyPatch('oslo_messaging.get_rpc_client', lambda *_, **__: served)
        )
        connection = storage_transport.Connection(None, keys, 0)
        self.client = signed_client.SignedClient(connection, None, 60, lambda: now)
        self.volume = image_types.ImageRef('volumes', VOLUME)
        self.make(self.volume)

    def make(self, image, *snapshots):
        self.world.storage.create_image(image, 8 * service_world.MIB, image_types.ImageOptions())
        for name in snapshots:
            self.world.storage.create_snapshot(image.snapshot(name))
        return image

    def call(self, verb, **arguments):
        return self.client.call({}, verb, **arguments)

    def state(self):
        """Return everything that a verb could have changed."""
        listed = [
            one.image
            for pool in service_world.POOLS.images
            for one in self.world.storage.list_images(pool)
        ]
        facts = [self.world.storage.describe(image) for image in listed]
        trash = [self.world.storage.list_trash(pool) for pool in service_world.POOLS.images]
        return (
            [dataclasses.replace(one, used_bytes=None) for one in facts],
            trash,
            self.world.storage.blocklisted(),
            json.dumps(self.world.cluster.entries),
        )

    def assert_refused(self, verb, **arguments):
        before = self.state()
        error = self.assertRaises(exceptions.NotPermittedError, self.call, verb, **arguments)
        self.assertIn('not permitted: ', str(error))
        self.assertEqual(before, self.state())
        self.assertEqual([], self.world.held_locks())
        return str(error)


class ForeignTest(PermissionTestCase):
    scenarios = [(name, {'name': name}) for name in FOREIGN]

    def test_every_verb_is_refused(self):
        image = self.make(image_types.ImageRef('volumes', self.name), 's')
        trashed = self.make(image_types.ImageRef('vault', self.name))
        image_id = self.world.storage.trash(trashed).image_id
        for verb, cases in attacks(image.name).items():
            for arguments in cases:
                if verb == 'restore':
                    arguments = arguments | {'pool': 'vault', 'image_id': image_id}
                self.assert_refused(verb, **arguments)
        self.assert_refused('start', operation_id='op', work=tasks.PurgeTask('vault', image_id))


class VolumeTest(PermissionTestCase):
    """A Cinder volume, perhaps of another tenant."""

    def test_refused(self):
        self.world.storage.create_snapshot(self.volume.snapshot('s'))
        for verb, cases in attacks(VOLUME).items():
            for arguments in cases:
                if verb != 'restore':
                    self.assert_refused(verb, **arguments)

    def test_managed_snapshots_of_a_volume(self):
        snapshot = self.volume.snapshot(MANAGED_SNAPSHOT)
        self.call('create_snapshot', snapshot=snapshot)
        other = names.snapshot_name('backup', str(uuid.uuid4()))
        self.call('rename_snapshot', snapshot=snapshot, name=other)
        self.assert_refused('rename_snapshot', snapshot=self.volume.snapshot(other), name=OF_CINDER)
        self.call('remove_snapshot', snapshot=self.volume.snapshot(other))

    def test_snapshots_of_cinder(self):
        snapshot = self.volume.snapshot(OF_CINDER)
        self.assert_refused('create_snapshot', snapshot=snapshot)
        self.world.storage.create_snapshot(snapshot)
        self.assert_refused('remove_snapshot', snapshot=snapshot)
        self.assert_refused('rename_snapshot', snapshot=snapshot, name=MANAGED_SNAPSHOT)
        # It may be read, into a managed image.
        clone = image_types.ImageRef('volumes', names.image_name('replica', ID))
        self.call('clone', snapshot=snapshot, image=clone, qos=QOS, options=None)
        vault = image_types.ImageRef('vault', VAULT)
        self.call('start', operation_id='copy', work=tasks.CopyTask(snapshot, vault))
        self.call(
            'start',
            operation_id='verify',
            work=tasks.VerifyTask(snapshot, vault.snapshot(OF_CINDER)),
        )
        self.call('remove_snapshot', snapshot=vault.snapshot(OF_CINDER))

    def test_only_copies_create_a_vault_image(self):
        snapshot = self.world.image.snapshot('s')
        vault = image_types.ImageRef('vault', VAULT)
        text = self.assert_refused('clone', snapshot=snapshot, image=vault, qos=QOS, options=None)
        self.assertIn('only a copy may create', text)
        clone = image_types.ImageRef('vault', names.image_name('replica', ID))
        text = self.assert_refused('start', operation_id='op', work=tasks.CopyTask(snapshot, clone))
        self.assertIn('the target of a copy must be named', text)

    def test_only_builds_create_a_golden_volume(self):
        image = golden.GoldenVolume('volumes', '9.7.4', 10).image
        snapshot = self.world.image.snapshot('s')
        text = self.assert_refused('clone', snapshot=snapshot, image=image, qos=QOS, options=None)
        self.assertIn('only a build may create', text)

    def test_flatten_and_fence_require_the_image_id(self):
        image_id = self.world.storage.describe(self.volume).image_id
        for verb, work in (('flatten', tasks.FlattenTask), ('fence', tasks.FenceTask)):
            for wrong in (f'{verb}', f'{verb}.{image_id}0', f'other.{image_id}', image_id):
                text = self.assert_refused('start', operation_id=wrong, work=work(self.volume))
                self.assertIn(f'must be {verb}.{image_id}', text)
            for right in (f'{verb}.{image_id}', f'{verb}:{image_id}', f'{verb}.{image_id}.2'):
                self.call('start', operation_id=right, work=work(self.volume))

    def test_unfence_requires_a_fence(self):
        text = self.assert_refused('unfence', image=self.volume)
        self.assertIn('has fenced no client of it', text)
        with self.world.storage.open_writer(self.volume):
            fencing.fence(self.world.storage, self.volume)
        self.assertEqual(1, len(self.world.storage.blocklisted()))
        self.call('unfence', image=self.volume)
        self.assertEqual(frozenset(), self.world.storage.blocklisted())

    def test_trash_purge_and_restore_require_that_cinder_cannot_delete_it(self):
        text = self.assert_refused('trash', image=self.volume)
        self.assertIn('no clone reads from it', text)
        snapshot = self.volume.snapshot(MANAGED_SNAPSHOT)
        self.world.storage.create_snapshot(snapshot)
        clone = image_types.ImageRef('volumes', names.image_name('replica', ID))
        self.world.storage.clone(snapshot, clone, image_types.ImageOptions())
        self.assertIn('it has snapshots', self.assert_refused('trash', image=self.volume))
        self.world.storage.remove_snapshot(snapshot)
        trashed = self.call('trash', image=self.volume)
        trash_entry = {'pool': 'volumes', 'image_id': trashed.image_id}
        self.assert_refused('restore', **trash_entry, name=MANAGED)
        self.call('restore', **trash_entry, name=VOLUME)
        self.call('trash', image=self.volume)
        self.world.storage.flatten(clone)
        self.call('start', operation_id='purge', work=tasks.PurgeTask('volumes', trashed.image_id))
        self.assertEqual([], self.world.storage.list_trash('volumes'))
        # A repetition returns the result.
        again = self.call(
            'start', operation_id='purge', work=tasks.PurgeTask('volumes', trashed.image_id)
        )
        self.assertEqual(tasks.JobState.DONE, again.state)

    def test_an_image_with_another_id_is_not_trashed(self):
        before = self.state()
        for image in (self.volume, self.world.image):
            self.assertRaises(
                exceptions.NotFoundError, self.call, 'trash', image=image, image_id='00'
            )
        self.assertEqual(before, self.state())

    def test_a_clone_of_another_pool_is_trashed(self):
        snapshot = self.make(image_types.ImageRef('vault', VAULT), 's').snapshot('s')
        clone = image_types.ImageRef('volumes', f'volume-{uuid.uuid4()}')
        self.world.storage.clone(snapshot, clone, image_types.ImageOptions())
        self.call('trash', image=clone)

    def test_an_image_that_cinder_trashed_is_not_purged(self):
        image_id = self.world.storage.trash(self.volume).image_id
        trash_entry = {'pool': 'volumes', 'image_id': image_id}
        self.assert_refused('start', operation_id='op', work=tasks.PurgeTask(**trash_entry))
        self.assert_refused('restore', **trash_entry, name=VOLUME)

    def make_trashable(self):
        """Let a clone read from the volume, so that Cinder cannot delete it."""
        snapshot = self.volume.snapshot(MANAGED_SNAPSHOT)
        self.world.storage.create_snapshot(snapshot)
        clone = image_types.ImageRef('volumes', names.image_name('replica', ID))
        self.world.storage.clone(snapshot, clone, image_types.ImageOptions())
        self.world.storage.remove_snapshot(snapshot)

    def assert_not_ours(self):
        (trashed,) = self.world.storage.list_trash('volumes')
        trash_entry = {'pool': 'volumes', 'image_id': trashed.image_id}
        self.assert_refused('start', operation_id='op', work=tasks.PurgeTask(**trash_entry))
        self.assert_refused('restore', **trash_entry, name=VOLUME)

    def test_an_image_that_cinder_trashed_after_we_could_not_is_not_purged(self):
        self.make_trashable()
        with self.world.storage.open_writer(self.volume):
            self.assertRaises(exceptions.BusyError, self.call, 'trash', image=self.volume)
        self.world.storage.trash(self.volume)
        self.assert_not_ours()

    def test_an_image_that_cinder_trashed_after_we_restored_it_is_not_purged(self):
        self.make_trashable()
        image_id = self.call('trash', image=self.volume).image_id
        self.call('restore', pool='volumes', image_id=image_id, name=VOLUME)
        self.world.storage.trash(self.volume)
        self.assert_not_ours()

    def test_an_image_that_cinder_trashed_after_others_restored_it_is_not_purged(self):
        self.make_trashable()
        image_id = self.call('trash', image=self.volume).image_id
        self.world.storage.restore('volumes', image_id, VOLUME)
        self.world.storage.trash(self.volume)
        (image,) = [one for one in self.world.cluster.images if one.trashed_at]
        image.trashed_at += datetime.timedelta(hours=1)
        self.assert_not_ours()


class ManagedTest(PermissionTestCase):
    def test_every_verb_is_permitted(self):
        for verb, cases in attacks(MANAGED).items():
            for arguments in cases:
                if verb == 'restore':
                    continue
                check = endpoint.permissions_of(endpoint.Endpoint)[verb].check
                if verb == 'clone' and arguments['image'].name == MANAGED:
                    check(self.service.evidence, arguments)
                elif verb != 'start' or not isinstance(arguments['work'], tasks.CopyTask):
                    check(self.service.evidence, arguments)

    def test_other_pools_are_refused(self):
        image = image_types.ImageRef('elsewhere', VOLUME)
        for verb, arguments in (
            ('trash', {'image': image}),
            ('unfence', {'image': image}),
            ('restore', {'pool': 'elsewhere', 'image_id': '1', 'name': VOLUME}),
            ('start', {'operation_id': 'op', 'work': tasks.FenceTask(image)}),
            ('start', {'operation_id': 'op', 'work': tasks.PurgeTask('elsewhere', '1')}),
        ):
            error = self.assertRaises(exceptions.InvalidRequestError, self.call, verb, **arguments)
            self.assertIn('elsewhere: is not one of the pools', str(error))
