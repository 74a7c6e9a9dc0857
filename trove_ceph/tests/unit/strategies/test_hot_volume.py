# SPDX-License-Identifier: Apache-2.0
"""The volumes of hot guests, from the clone to the instance, or to their deletion."""

import dataclasses
import datetime
import uuid

from oslotest import base
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions, steps
from trove_ceph.cinder import resources
from trove_ceph.db.guest_record import GuestState
from trove_ceph.storage import golden
from trove_ceph.strategies.backup import volume_cleanup
from trove_ceph.strategies.guests import hot_spec, hot_volume
from trove_ceph.strategies.guests.dependencies import guest_name
from trove_ceph.strategies.restore import flatten
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.db import guest_helpers
from trove_ceph.tests.unit.strategies import golden_world
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database

SPEC = hot_spec.HotSpec(hot_spec.HotVolume('nvme', 1), golden_world.VERSION, '[mysqld]')


class Nova:
    """Attaches at once."""

    def __init__(self, world):
        self._world = world
        self.requests = []

    def attach_volume(self, server_id, volume_id):
        self.requests.append((server_id, volume_id))
        self._world.cinder.volumes[volume_id]['status'] = 'in-use'


def make_world():
    world = golden_world.make_world()
    world.guest_record = guest_helpers.record(
        str(uuid.uuid4()), datetime.datetime(2026, 1, 1), GuestState.LOADING, server_id='server'
    )
    return world


def volumes_of(world, strike=None):
    world.nova = Nova(world)
    return hot_volume.HotVolumes(world.deps(strike), world.nova)


def created(world):
    (volume,) = [one for one in world.cinder.volumes.values() if one is not world.volume]
    return volume


class CreateInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    def make_world(self):
        return make_world()

    def make_operation(self, world, strike=None):
        source = volumes_of(world).find_source(SPEC)
        return volumes_of(world, strike).plan(world.guest_record, SPEC, source).steps()

    def check_done(self, world):
        world.cinder.work()
        volume = created(world)
        self.assertEqual(
            ('available', worlds.SERVICE, guest_name(world.guest_record.guest_id), 1),
            tuple(volume[name] for name in ('status', 'project', 'name', 'size')),
        )
        facts = world.storage.describe(world.cinder.image(volume))
        self.assertEqual(world.golden.snapshot(golden.State.READY), facts.parent)
        self.assertIsNone(trove_database.instance(world.new.id).volume_id)
        self.assertEqual(
            {world.volume_image.name, world.golden.image.name, facts.image.name}, world.images()
        )

    def check_undone(self, world):
        world.cinder.work()
        self.assertEqual([world.volume], list(world.cinder.volumes.values()))
        self.assertEqual(
            ({world.volume_image.name, world.golden.image.name}, []),
            (world.images(), world.trash()),
        )

    def test_removed_after_each_request(self):
        """A guest that is not needed any more while its volume is created."""
        for number in range(100):
            world = make_world()
            strike = worlds.Strike(number, after=True, lost=True)
            try:
                steps.run('creation', self.make_operation(world, strike))
            except exceptions.TroveCephError:
                pass
            if not strike.struck:
                return
            world.cinder.work()
            for _ in range(2):
                volumes_of(world).remove(world.guest_record)
                world.cinder.work()
            with interruption.annotated(f'request {number}'):
                self.check_undone(world)


class HotVolumeTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = make_world()
        self.volumes = volumes_of(self.world)

    def create(self):
        source = self.volumes.find_source(SPEC)
        volume_id = self.volumes.create(self.world.guest_record, SPEC, source)
        self.guest = dataclasses.replace(self.world.guest_record, volume_id=volume_id)
        return volume_id

    def facts(self):
        return self.world.storage.describe(self.world.cinder.image(created(self.world)))

    def test_only_a_golden_volume_of_exactly_this_size(self):
        self.assertEqual(self.world.golden, self.volumes.find_source(SPEC).volume)
        for volume in (hot_spec.HotVolume('nvme', 2), hot_spec.HotVolume('nvme', 16)):
            spec = dataclasses.replace(SPEC, volume=volume)
            self.assertIsNone(self.volumes.find_source(spec))
        other = dataclasses.replace(SPEC, version='9.7.5')
        self.assertIsNone(self.volumes.find_source(other))

    def test_it_is_not_flattened_before_an_instance_has_it(self):
        """Its guest could not be told, and would never trim it."""
        self.create()
        flatten.flatten_dependents(self.world.deps())
        self.assertIsNotNone(self.facts().parent)

    def test_attached_once(self):
        volume_id = self.create()
        for _ in range(2):
            self.volumes.ensure_attached('server', volume_id)
        self.assertEqual([('server', volume_id)], self.world.nova.requests)
        created(self.world)['status'] = 'error'
        error = self.assertRaises(
            exceptions.ServiceUnavailableError, self.volumes.ensure_attached, 'server', volume_id
        )
        self.assertIn('found error', str(error))

    def test_handed_over_to_an_instance(self):
        volume_id = self.create()
        self.volumes.ensure_attached('server', volume_id)
        self.volumes.hand_over(volume_id, self.world.new.id, 1)
        self.assertEqual(volume_id, trove_database.instance(self.world.new.id).volume_id)
        volume = created(self.world)
        self.assertEqual(f'trove-{self.world.new.id}', volume['name'])
        self.assertEqual(self.world.new.id, volume['metadata'][resources.OPERATION_KEY])
        flatten.flatten_volume(self.world.deps(), self.world.new.id)
        self.assertIsNone(self.facts().parent)
        flatten.flatten_volume(self.world.deps(), self.world.new.id)
        self.assertTrue(self.world.guests[self.world.new.id].is_flattened)

    def test_handed_over_to_a_larger_instance(self):
        volume_id = self.create()
        self.volumes.ensure_attached('server', volume_id)
        self.volumes.hand_over(volume_id, self.world.new.id, 3)
        self.world.cinder.work()
        self.assertEqual(
            ('in-use', 3), tuple(created(self.world)[one] for one in ('status', 'size'))
        )

    def test_volume_of_an_instance_is_not_deleted_with_the_guest(self):
        volume_id = self.create()
        self.volumes.hand_over(volume_id, self.world.new.id, 1)
        bound = dataclasses.replace(self.guest, volume_id=None)
        self.volumes.remove(bound)
        self.assertEqual(volume_id, created(self.world)['id'])
        self.assertEqual([], self.world.records.kept_volumes())

    def test_volume_of_an_instance_whose_creation_failed(self):
        volume_id = self.create()
        self.volumes.hand_over(volume_id, self.world.new.id, 1)
        # The taskmanager died before the guest was bound, and the guest is deleted first.
        trove_database.instance(self.world.new.id).update(
            task_status=InstanceTasks.BUILDING_ERROR_SERVER
        )
        self.volumes.remove(self.guest)
        self.assertEqual(volume_id, created(self.world)['id'])
        # Or its instance got another one right then.
        self.assertTrue(self.volumes.take_back(self.guest, self.world.new.id))
        volume = created(self.world)
        self.assertEqual(guest_name(self.guest.guest_id), volume['name'])
        self.assertEqual(self.guest.guest_id, volume['metadata'][resources.OPERATION_KEY])
        self.volumes.remove(self.guest)
        self.world.cinder.work()
        self.assertEqual([self.world.volume], list(self.world.cinder.volumes.values()))

    def test_volume_that_cannot_be_deleted_yet_is_deleted_later(self):
        volume_id = self.create()
        self.volumes.ensure_attached('server', volume_id)
        self.assertFalse(self.volumes.remove(self.guest))
        (kept,) = self.world.records.kept_volumes()
        self.assertEqual((volume_id, self.guest.guest_id), (kept.volume_id, kept.instance_id))

    def test_volume_that_is_created_again_is_not_deleted(self):
        """Its removal was interrupted; an instance may have it when that would be continued."""
        volume_id = self.create()
        self.world.records.keep_volume(volume_id, self.guest.guest_id, worlds.SERVICE)
        self.assertEqual(volume_id, self.create())
        volume_cleanup.reclaim(self.world.deps())
        self.assertIn(volume_id, self.world.cinder.volumes)
        self.assertEqual([], self.world.records.kept_volumes())

    def test_removed(self):
        self.create()
        self.assertTrue(self.volumes.remove(self.guest))
        self.assertTrue(self.volumes.remove(self.guest))
        self.assertEqual([self.world.volume], list(self.world.cinder.volumes.values()))

    def test_foreign_volumes_stay(self):
        foreign = self.world.cinder.add_volume(
            'tenant',
            worlds.NVME,
            metadata={resources.OPERATION_KEY: self.world.guest_record.guest_id},
        )
        self.volumes.remove(self.world.guest_record)
        self.assertIn(foreign['id'], self.world.cinder.volumes)


class HotSpecTest(base.BaseTestCase):
    def test_option(self):
        self.assertIsNone(hot_spec.parse(''))
        self.assertEqual(hot_spec.HotVolume('fast:nvme', 10), hot_spec.parse('fast:nvme:10'))
        for text in ('nvme', 'nvme:', ':10', 'nvme:0', 'nvme:1.5', 'nvme:99999', '10'):
            error = self.assertRaises(exceptions.InvalidConfigurationError, hot_spec.parse, text)
            self.assertIn('hot_volume', str(error))

    def test_digest(self):
        same = dataclasses.replace(SPEC, contents='[mysqld]')
        self.assertEqual(SPEC.digest, same.digest)
        texts = [
            f'[mysqld]\n{name} = {n}\nx = 1' for name in ('server_id', 'server-id') for n in '12'
        ]
        self.assertEqual(1, len({dataclasses.replace(SPEC, contents=one).digest for one in texts}))
        others = [
            dataclasses.replace(SPEC, contents='[mysqld]\nmax_connections = 1'),
            dataclasses.replace(SPEC, version='9.7.5'),
            dataclasses.replace(SPEC, volume=hot_spec.HotVolume('ssd', 1)),
            dataclasses.replace(SPEC, volume=hot_spec.HotVolume('nvme', 2)),
        ]
        self.assertEqual(5, len({SPEC.digest, *(one.digest for one in others)}))
