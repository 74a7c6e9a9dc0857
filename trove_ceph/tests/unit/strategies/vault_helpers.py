# SPDX-License-Identifier: Apache-2.0
"""Backups, and their copies in the vault, for tests."""

import contextlib
import uuid

from oslo_utils import units

from trove_ceph.db.roles import Role
from trove_ceph.storage import image_types, names
from trove_ceph.strategies.backup import create, vault_copy

MIB = units.Mi


def take(world, **facts):
    """Return the id of a new backup."""
    backup = world.add_backup(**facts)
    create.create_backup(world.deps(), backup.id)
    return backup.id


def snapshot(world):
    """Return the id of a backup that only our record has, with a requested copy."""
    backup_id = str(uuid.uuid4())
    location = world.volume_image.snapshot(names.snapshot_name('backup', backup_id))
    world.storage.create_snapshot(location)
    claim = world.records.begin_taking(backup_id, world.instance.id, world.project, world.worker())
    world.records.record_location(claim, location, world.volume['id'], 16 * MIB)
    world.records.record_taken(claim, location.name, 'cinder', 1.0, copy=True)
    return backup_id


def claim(world, backup_id, role=Role.COPY):
    """Claim a backup for a new worker, which considers all other workers dead."""
    return world.records.claims.claim(role, backup_id, world.worker())


@contextlib.contextmanager
def claimed(world, backup_id, role=Role.COPY):
    found = claim(world, backup_id, role)
    try:
        yield found
    finally:
        world.records.claims.release(found)


def copy(world, backup_id, strike=None):
    """Copy a backup to the vault, and return its record."""
    world.records.queue.request_copy(backup_id)
    with claimed(world, backup_id) as copy_claim:
        vault_copy.copy_to_vault(world.deps(strike), copy_claim)
    return world.records.get(backup_id)


def record_damaged(world, backup_id):
    with claimed(world, backup_id, Role.VERIFY) as verify_claim:
        world.records.results.record_damaged(verify_claim, {}, 1.0, 'pages are corrupt')


def write(world, letters, image=None):
    """Overwrite the objects of the instance's volume, each with a letter; ``-`` skips one."""
    with world.storage.open_writer(image or world.volume_image) as writer:
        for number, letter in enumerate(letters):
            if letter != '-':
                writer.write(number * 4 * MIB, letter.encode() * MIB).result()


def content(world, snapshot):
    """Return the content of these objects in a snapshot."""
    with world.storage.open_reader(snapshot) as reader:
        return reader.read(0, 16 * MIB).result()


def vault(world):
    return image_types.ImageRef('vault', names.image_name('vault', world.instance.id))
