# SPDX-License-Identifier: Apache-2.0
"""A world with golden volumes, and a new instance without a volume."""

from oslo_utils import units
from trove.instance.tasks import InstanceTasks

from trove_ceph.storage import golden, image_types
from trove_ceph.strategies.restore import golden_volume
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database

VERSION = '9.7.4'
SIZES_GIB = [1, 3]


def add_golden_volume(world, size_gib=1, state=golden.State.READY, pool='volumes'):
    """Add a golden volume to a world."""
    volume = golden.GoldenVolume(pool, VERSION, size_gib)
    world.storage.create_image(volume.image, size_gib * units.Gi, image_types.ImageOptions())
    with world.storage.open_writer(volume.image) as writer:
        writer.set_metadata(golden.METADATA_KEY, volume.content)
        writer.write(0, b'XFSB').result()
    if state is not golden.State.BUILDING:
        world.storage.create_snapshot(volume.snapshot(state))
    return volume


def make_world():
    world = worlds.World()
    world.golden = add_golden_volume(world)
    world.new = trove_database.add_instance(
        world.project, None, server_id=None, task_status=InstanceTasks.BUILDING
    )
    world.guests[world.new.id] = worlds.Guest(world)
    return world


def request(world, **facts):
    values = {'version': VERSION, 'volume_type': 'nvme', 'size_gib': 2}
    return golden_volume.GoldenRequest(world.new.id, **values | facts)


def find(world, deps=None, **facts):
    return golden_volume.find_source(deps or world.deps(), request(world, **facts), SIZES_GIB)
