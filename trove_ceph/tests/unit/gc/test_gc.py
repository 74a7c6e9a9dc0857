# SPDX-License-Identifier: Apache-2.0
import datetime
import json
import uuid

import fixtures
from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions, steps
from trove_ceph.cmd.manage import gc as gc_command
from trove_ceph.gc import collector as gc_collector
from trove_ceph.gc.orphan import Kind
from trove_ceph.storage import golden, image_types, names, tasks
from trove_ceph.strategies.backup import volume_cleanup
from trove_ceph.strategies.guests.dependencies import ResourceKind
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.gc import world as worlds
from trove_ceph.tests.unit.strategies import vault_helpers
from trove_ceph.tests.unit.strategies import world as strategy_worlds


class FindTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()

    def only(self, **options):
        (found,) = self.world.find(**options)
        return found

    def test_finds_nothing_if_nothing_was_left(self):
        self.world.take_backup()
        self.assertEqual([], self.world.found())

    def test_finds_one_orphan_of_each_kind(self):
        self.world.litter()
        left = self.world.left
        expected = {
            Kind.IMAGE: str(left[Kind.IMAGE]),
            Kind.SNAPSHOT: str(left[Kind.SNAPSHOT]),
            Kind.TRASHED_IMAGE: str(left[Kind.TRASHED_IMAGE]),
            Kind.VOLUME: f'volume {left[Kind.VOLUME]["id"]} (available)',
            Kind.VOLUME_SNAPSHOT: f'snapshot {left[Kind.VOLUME_SNAPSHOT]["id"]} (available)',
            Kind.GUEST: f'server server-0 ({left[Kind.GUEST].name})',
            Kind.BACKUP_RECORD: left[Kind.BACKUP_RECORD],
            Kind.VOLUME_RECORD: left[Kind.VOLUME_RECORD],
            Kind.TRASH_RECORD: left[Kind.TRASH_RECORD],
        }
        found = {one.kind: one.name for one in self.world.find()}
        self.assertTrue(found.pop(Kind.JOB).startswith('copy ('))
        self.assertEqual(expected, found)

    def test_ignores_young_objects(self):
        self.world.litter()
        # The clock of the jobs is older.
        self.assertEqual([Kind.JOB], [one.kind for one in self.world.find(days=0.5)])

    def test_ignores_names_that_are_not_ours(self):
        self.world.storage.create_snapshot(self.world.volume_image.snapshot('by hand'))
        for name in ('trove_ceph', 'trove_ceph.vault', 'trove_ceph.x.y', 'volume-x', 'trove-1'):
            image = image_types.ImageRef('volumes', name)
            self.world.storage.create_image(image, units.Mi, image_types.ImageOptions())
        trashed = image_types.ImageRef('volumes', f'volume-{uuid.uuid4()}')
        self.world.storage.create_image(trashed, units.Mi, image_types.ImageOptions())
        self.world.storage.trash(trashed)
        self.world.add_volume(self.world.gone_instance, name='mine')
        self.world.add_volume_snapshot(self.world.gone_backup, name='mine')
        self.world.add_volume('no id')
        self.assertEqual([], self.world.found())

    def test_ignores_metadata_of_other_projects(self):
        for verb, owner in (
            (self.world.add_volume, self.world.gone_instance),
            (self.world.add_volume_snapshot, self.world.gone_backup),
        ):
            verb(owner)['project'] = 'a tenant'
        self.assertEqual([], self.world.found())

    def test_keeps_objects_that_this_trove_never_had(self):
        stranger = str(uuid.uuid4())
        self.world.make_image('restore', stranger)
        found = self.only()
        self.assertIn(
            f'this Trove knows no instance, backup or guest {stranger}', found.stays_because()
        )
        self.assertIsNone(found.stays_because(include_unknown=True))

    def test_finds_servers_and_ports_of_guests_without_a_record(self):
        self.world.warm_guests.leave(ResourceKind.SERVER, 'waiting')
        self.world.warm_guests.ids.add('waiting')
        left = self.world.warm_guests.leave(ResourceKind.PORT, 'lost')
        collector = self.world.collector()
        (found,) = collector.find()
        self.assertEqual('guest lost has no record', found.reason)
        # Another Trove may have it.
        self.assertIn('knows no instance, backup or guest lost', found.stays_because())
        collector.remove(found, include_unknown=True)
        self.assertNotIn(left.resource_id, self.world.warm_guests.resources)
        self.assertEqual([], self.world.found())

    def test_finds_volumes_of_guests_without_a_record(self):
        guest_id = str(uuid.uuid4())
        volume = self.world.add_volume(guest_id, name=f'trove-guest-{guest_id}')
        self.world.warm_guests.ids.add(guest_id)
        # Cinder does not manage it yet.
        image = self.world.make_image('restore', guest_id)
        self.assertEqual([], self.world.found())
        self.world.storage.remove(image)
        self.world.warm_guests.ids.clear()
        found = self.only()
        self.assertEqual(f'guest {guest_id} has no record', found.reason)
        self.assertEqual(volume['id'], found.target.id)

    def test_keeps_the_volume_of_a_guest_whose_instance_got_another_one(self):
        guest_id = str(uuid.uuid4())
        volume = self.world.add_volume(self.world.instance.id)
        self.world.warm_guests.ids.add(guest_id)
        self.world.warm_guests.volumes[guest_id] = volume['id']
        self.assertEqual([], self.world.found())
        self.world.warm_guests.ids.clear()
        self.assertIn('has another volume', self.only().reason)

    def test_finds_a_vault_image_without_backups(self):
        backup = self.world.take_backup()
        vault = self.world.make_image('vault', self.world.instance.id, 'vault')
        self.assertEqual('no backup has a copy in it', self.only().reason)
        copy = vault.snapshot(names.snapshot_name('backup', backup))
        with vault_helpers.claimed(self.world, backup) as claim:
            self.world.records.results.begin_copying(claim, copy)
        self.assertEqual([], self.world.found())
        # A copy without a backup, beside one that belongs to a backup.
        self.world.storage.create_snapshot(copy)
        left = vault.snapshot(names.snapshot_name('backup', self.world.gone_backup))
        self.world.storage.create_snapshot(left)
        self.assertEqual([(Kind.SNAPSHOT, str(left))], self.world.found())

    def test_finds_copies_without_a_backup(self):
        """Copies have the names that Cinder gave to their source snapshots."""
        backup = self.world.take_backup()
        vault = self.world.make_image('vault', self.world.instance.id, 'vault')
        copy = vault.snapshot(self.world.records.get(backup).location.name)
        left, manual = (vault.snapshot(one) for one in (f'snapshot-{uuid.uuid4()}', 'by-hand'))
        for one in (copy, left, manual):
            self.world.storage.create_snapshot(one)
        with vault_helpers.claimed(self.world, backup) as claim:
            self.world.records.results.begin_copying(claim, copy)
        found = self.only()
        self.assertEqual((Kind.SNAPSHOT, str(left)), (found.kind, found.name))
        self.assertEqual('no backup has this copy', found.reason)
        self.assertIsNone(found.stays_because())
        collector = self.world.collector()
        collector.remove(collector.find()[0])
        self.assertEqual({copy.name, 'by-hand'}, set(self.world.snapshots(vault)))
        # Snapshots that Cinder lists are examined there alone.
        self.world.storage.create_snapshot(self.world.volume_image.snapshot(left.name))
        self.assertEqual([], self.world.found())

    def test_finds_a_vault_image_whose_copies_have_no_backup(self):
        vault = self.world.make_image('vault', self.world.instance.id, 'vault')
        left = vault.snapshot(f'snapshot-{uuid.uuid4()}')
        self.world.storage.create_snapshot(left)
        found = self.only()
        self.assertEqual((Kind.IMAGE, None), (found.kind, found.stays_because()))
        self.world.storage.create_snapshot(vault.snapshot('by-hand'))
        self.assertIn('by-hand', self.only().stays_because())
        self.assertNotIn(left.name, self.only().stays_because())

    def test_ignores_a_volume_that_is_being_restored(self):
        image = self.world.make_image('restore', self.world.instance.id)
        self.assertEqual(
            f'instance {self.world.instance.id} has another volume', self.only().reason
        )
        self.world.instance.update(volume_id=None)
        self.assertEqual([], self.world.found(), image)

    def test_finds_the_second_snapshot_of_a_backup(self):
        backup = self.world.take_backup()
        left = self.world.volume_image.snapshot(names.snapshot_name('backup', backup))
        self.world.storage.create_snapshot(left)
        found = self.only()
        self.assertEqual(str(left), found.name)
        self.assertEqual(f'backup {backup} has another snapshot', found.reason)
        twice = self.world.add_volume_snapshot(backup)
        self.world.storage.remove_snapshot(left)
        self.assertIn(twice['id'], self.only().name)

    def test_ignores_images_that_a_job_uses(self):
        clone = self.world.make_image('check', self.world.gone_backup)
        self.assertEqual('no inspection is under way', self.only().reason)
        work = tasks.InspectTask(self.world.image.snapshot('s'), self.world.gone_backup, '9.7.4')
        dying = self.world.service(
            'dying', threads=strategy_worlds.service_world.DeferredExecutor()
        )
        self.assertEqual(clone, work.clone)
        dying.jobs.start('inspect', work)
        self.assertEqual([], self.world.found())
        self.world.expire_dead_clients()
        # A caller can still continue the job.
        self.assertEqual([Kind.JOB], [one.kind for one in self.world.find()])

    def make_golden_volume(self, state=None):
        volume = golden.GoldenVolume('volumes', '9.7.4', 1)
        self.world.make_image('golden', volume.id)
        self.world.storage.set_image_metadata(volume.image, {golden.METADATA_KEY: volume.content})
        if state:
            self.world.storage.create_snapshot(volume.snapshot(state))
        return volume

    def test_removes_the_clone_of_an_inspection_of_a_golden_volume(self):
        """It has the id of the golden volume, which is no instance and no backup."""
        volume = self.make_golden_volume(golden.State.READY)
        clone = self.world.make_image('check', volume.id)
        orphan = self.only()
        self.assertEqual((str(clone), None), (orphan.name, orphan.unknown_id))

    def test_ignores_golden_volumes(self):
        for state in (golden.State.READY, golden.State.RETIRED):
            volume = self.make_golden_volume(state)
            self.assertEqual([], self.world.found())
            self.world.storage.remove_snapshot(volume.snapshot(state))
            self.world.storage.remove(volume.image)

    def test_removes_what_an_interrupted_build_left(self):
        for state in (None, golden.State.BUILT):
            volume = self.make_golden_volume(state)
            self.assertEqual('its build was interrupted', self.only().reason)
            collector = self.world.collector()
            collector.remove(*collector.find())
            self.assertNotIn(volume.image.name, self.world.images())
            self.assertEqual([], self.world.found())

    def test_ignores_a_golden_volume_that_a_job_builds(self):
        volume = self.make_golden_volume()
        dying = self.world.service(
            'dying', threads=strategy_worlds.service_world.DeferredExecutor()
        )
        dying.jobs.start('golden', tasks.GoldenTask.of(volume))
        self.assertEqual([], self.world.found())

    def test_keeps_objects_with_clones(self):
        self.world.litter(Kind.SNAPSHOT, Kind.VOLUME_SNAPSHOT)
        clone = image_types.ImageRef('vault', 'clone')
        for source in (
            self.world.left[Kind.SNAPSHOT],
            self.world.volume_image.snapshot(
                f'snapshot-{self.world.left[Kind.VOLUME_SNAPSHOT]["id"]}'
            ),
        ):
            self.world.storage.clone(source, clone, image_types.ImageOptions())
            stays = [one.stays_because() for one in self.world.find() if one.stays_because()]
            self.assertIn(f'it has clones: {clone}', stays)
            self.world.storage.remove(clone)

    def test_keeps_objects_in_use(self):
        volume = self.world.add_volume(self.world.gone_instance, status='in-use')
        self.assertEqual('its status is in-use', self.only().stays_because())
        volume['status'] = 'available'
        self.world.records.keep_volume(volume['id'], self.world.gone_instance, self.world.project)
        self.assertEqual([], self.world.found())

    def test_reports_a_backup_without_snapshot_and_copy(self):
        """Its record is not removed, but an operator must see it."""
        record = self.world.records.get(self.world.take_backup())
        self.world.storage.remove_snapshot(record.location)
        del self.world.cinder.snapshots[record.cinder_snapshot_id]
        found = self.only()
        self.assertEqual(Kind.BACKUP_RECORD, found.kind)
        self.assertEqual(
            'the backup is taken, but neither its snapshot nor a copy exists', found.reason
        )
        self.assertIn('Trove shows it to project', found.stays_because())


class RemoveTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()

    def test_keeps_what_has_come_into_use_since(self):
        backup = self.world.take_backup()
        vault = self.world.make_image('vault', self.world.instance.id, 'vault')
        collector = self.world.collector()
        (found,) = collector.find()
        copy = vault.snapshot(names.snapshot_name('backup', backup))
        with vault_helpers.claimed(self.world, backup) as claim:
            self.world.records.results.begin_copying(claim, copy)
        error = self.assertRaises(exceptions.BusyError, collector.remove, found)
        self.assertIn("is in use now", str(error))
        self.assertEqual(vault, self.world.storage.describe(vault).image)

    def test_refuses_to_remove_what_must_stay(self):
        image = self.world.make_image('restore', str(uuid.uuid4()))
        collector = self.world.collector()
        (found,) = collector.find()
        self.assertRaises(exceptions.BusyError, collector.remove, found)
        collector.remove(found, include_unknown=True)
        collector.finish()
        self.assertRaises(exceptions.NotFoundError, self.world.storage.describe, image)
        self.assertEqual([], self.world.trash())


class RemovalInterruptionTest(strategy_worlds.RequestInterruptionTests, base.BaseTestCase):
    """Removals that take more than one request."""

    def make_world(self):
        world = worlds.World()
        world.litter(Kind.IMAGE, Kind.TRASHED_IMAGE, Kind.VOLUME_SNAPSHOT)
        return world

    def make_operation(self, world, strike=None):
        deps = world.deps(strike)
        found = world.find()
        removals = [
            step for one in found for step in gc_collector.removal(deps, world.warm_guests, one)
        ]
        purge = steps.Step('finish', lambda: volume_cleanup.purge_trashed(deps), commits=True)
        return [*removals, purge]

    def check_done(self, world):
        volume_cleanup.reclaim(world.deps())
        self.assertEqual([], world.found())
        self.assertEqual([], world.trash())
        self.assertEqual([], world.snapshots())
        self.assertEqual({world.volume_image.name}, world.images())
        self.assertEqual({}, world.cinder.snapshots)

    def check_undone(self, world):
        raise AssertionError('a removal is never undone')


class CommandTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.calls = []
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.gc.factory.make_collector', self.make_collector)
        )

    def make_collector(self, config_files, min_age):
        self.calls.append((config_files, min_age))
        return self.world.collector(min_age=max(min_age, worlds.MIN_AGE))

    def command(self, *arguments):
        """Return exit status and output."""
        result = command.run('gc', *arguments)
        self.err = result.err
        return result.status, result.out

    def test_prints_that_there_is_nothing(self):
        for verb in ('list', 'remove'):
            self.assertEqual((0, '\n'), self.command(verb))
            self.assertEqual('There are no orphans.\n', self.err)
        day = datetime.timedelta(hours=24)
        self.assertEqual((['/etc/trove/trove.conf'], day), self.calls[0])
        self.command('list', '--min-age-hours', '1.5', '--config-file', 'a', '--config-file', 'b')
        self.assertEqual((['a', 'b'], datetime.timedelta(hours=1.5)), self.calls[-1])

    def test_lists_and_removes(self):
        self.world.litter()
        before = self.world.found()
        status, text = self.command('list')
        self.assertEqual(1, status)
        self.assertIn(f'backup {self.world.gone_backup} failed', text)
        status, text = self.command('remove')
        self.assertEqual(1, status)
        self.assertIn('would be removed', text)
        self.assertEqual(before, self.world.found())
        arguments = ('--yes', '--include-unknown', '--format', 'json')
        status, text = self.command('remove', *arguments)
        self.assertEqual(0, status, text)
        outcomes = {one['outcome'] for one in json.loads(text)}
        self.assertEqual({'removed'}, outcomes)
        status, text = self.command('list', '--format', 'json')
        self.assertEqual((0, []), (status, json.loads(text)))

    def test_continues_if_one_removal_fails(self):
        self.world.litter(Kind.IMAGE, Kind.VOLUME, Kind.VOLUME_RECORD)
        volume = self.world.left[Kind.VOLUME]
        with self.world.storage.open_writer(self.world.cinder.image(volume)):
            status, text = self.command('remove', '--yes')
        self.assertEqual(1, status)
        self.assertIn('stays: ', text)
        (found,) = self.world.find()
        self.assertEqual(Kind.VOLUME, found.kind)

    def test_records_the_end_of_each_sweep(self):
        self.world.litter(Kind.IMAGE, Kind.VOLUME, Kind.VOLUME_RECORD)
        none = dict.fromkeys(map(str, Kind), 0)
        found = none | {'image': 1, 'volume': 1, 'volume record': 1}
        for verb in ('list', 'remove'):
            self.command(verb)
            sweep = self.world.sweeps.find()
            self.assertEqual((found, none), (sweep.found, sweep.removed))
        volume = self.world.left[Kind.VOLUME]
        with self.world.storage.open_writer(self.world.cinder.image(volume)):
            self.command('remove', '--yes')
        sweep = self.world.sweeps.find()
        self.assertEqual((found, none | {'volume': 1}), (sweep.found, sweep.left))

    def test_a_sweep_that_leaves_out_a_lot_is_not_recorded(self):
        self.command('list', '--min-age-hours', str(24 * 7 + 1))
        self.assertIsNone(self.world.sweeps.find())
        self.command('list', '--min-age-hours', str(24 * 7))
        self.assertIsNotNone(self.world.sweeps.find())

    def test_shows_its_result_even_if_the_sweep_cannot_be_recorded(self):
        self.world.litter(Kind.IMAGE)

        class Sweeps:
            def record(self, *_):
                raise exceptions.ServiceUnavailableError('no table')

        self.world.sweeps = Sweeps()
        status, text = self.command('remove', '--yes', '--format', 'json')
        self.assertEqual((0, ['removed']), (status, [one['outcome'] for one in json.loads(text)]))
        self.assertEqual('The sweep is not recorded: no table\n', self.err)

    def test_kinds_for_other_commands(self):
        self.world.litter(Kind.IMAGE, Kind.VOLUME)
        found = gc_command.find_kinds(['a'])
        self.assertEqual(['image', 'volume'], sorted(found))
        self.assertEqual((['a'], datetime.timedelta(hours=24)), self.calls[-1])
        self.assertEqual('storage close', self.world.events[-1])

    def test_fails_if_no_service_answers(self):
        def fail(*_):
            raise exceptions.ServiceUnavailableError('no answer')

        self.useFixture(fixtures.MonkeyPatch('trove_ceph.gc.factory.make_collector', fail))
        self.assertEqual(3, self.command('list')[0])
        self.assertEqual('trove-ceph-manage: no answer\n', self.err)
