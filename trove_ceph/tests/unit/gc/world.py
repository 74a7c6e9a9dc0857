# SPDX-License-Identifier: Apache-2.0
"""A world with one orphan of each kind, and with objects that look like orphans."""

import datetime
import types
import uuid

from oslo_utils import units

from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.db import orphan_sweeps, replicas, transactions
from trove_ceph.gc import collector, guests
from trove_ceph.gc.orphan import Kind
from trove_ceph.storage import image_types, names, tasks
from trove_ceph.strategies.backup import create
from trove_ceph.strategies.guests.dependencies import GuestResource, ResourceKind
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database

POOLS = ('volumes', 'vault')
MIN_AGE = datetime.timedelta(hours=24)


class World(worlds.World):
    """An instance in use, and the ids of an instance and of a backup that were deleted."""

    def __init__(self):
        super().__init__()
        self.gone_backup = self.add_backup(deleted=True).id
        gone = trove_database.add_instance(self.project, None)
        gone.update(deleted=True)
        self.gone_instance = gone.id
        self.warm_guests = Guests()
        self.replicas = replicas.ReplicaStore()
        self.sweeps = orphan_sweeps.OrphanSweepStore(transactions.Transactions(worlds.emptied()))
        #: Their orphans, by kind.
        self.left = {}

    def take_backup(self):
        """Take a backup of the instance, and return its id."""
        backup = self.add_backup().id
        create.create_backup(self.deps(), backup)
        return backup

    def collector(self, strike=None, days=2, min_age=MIN_AGE):
        """Return the command's collector, as of a number of days later."""
        now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
        deps = self.deps(strike)
        stores = (self.replicas, self.sweeps)
        return collector.Collector(deps, self.warm_guests, *stores, POOLS, min_age, now)

    def find(self, **options):
        return self.collector(**options).find()

    def found(self, **options):
        """Return the kinds and names of the orphans."""
        return sorted((one.kind, one.name) for one in self.find(**options))

    def make_image(self, kind, owner_id, pool='volumes'):
        image = image_types.ImageRef(pool, names.image_name(kind, owner_id))
        self.storage.create_image(image, 4 * units.Mi, image_types.ImageOptions())
        return image

    def litter(self, *kinds):
        """Leave one orphan of each of these kinds; without any, one of every kind."""
        for kind, leave in {
            Kind.IMAGE: lambda: self.make_image('restore', self.gone_instance),
            Kind.SNAPSHOT: self.leave_snapshot,
            Kind.TRASHED_IMAGE: lambda: self.storage.trash(
                self.make_image('vault', self.gone_instance, 'vault')
            ),
            Kind.VOLUME: lambda: self.add_volume(self.gone_instance),
            Kind.VOLUME_SNAPSHOT: lambda: self.add_volume_snapshot(self.gone_backup),
            Kind.GUEST: self.warm_guests.leave_server,
            Kind.JOB: self.interrupt_job,
            Kind.BACKUP_RECORD: self.leave_record,
            Kind.VOLUME_RECORD: self.leave_volume_record,
            Kind.TRASH_RECORD: self.leave_trash_record,
        }.items():
            if not kinds or kind in kinds:
                self.left[kind] = leave()

    def leave_snapshot(self):
        snapshot = self.volume_image.snapshot(names.snapshot_name('backup', self.gone_backup))
        self.storage.create_snapshot(snapshot)
        return snapshot

    def leave_record(self):
        claim = self.records.begin_taking(
            self.gone_backup, self.instance.id, self.project, self.worker()
        )
        self.records.record_failed(claim, 'of a reason')
        return self.gone_backup

    def leave_volume_record(self):
        volume_id = str(uuid.uuid4())
        self.records.keep_volume(volume_id, self.gone_instance, self.project)
        return volume_id

    def leave_trash_record(self):
        self.records.record_trashed('vault', '1f9a', 'trove_ceph.vault.x')
        return 'vault/trove_ceph.vault.x (in the trash, id 1f9a)'

    def add_volume(self, operation_id, **facts):
        metadata = {cinder_resources.OPERATION_KEY: operation_id}
        values = {'name': f'trove-{operation_id}', 'metadata': metadata}
        return self.cinder.add_volume(worlds.SERVICE, worlds.NVME, **values | facts)

    def add_volume_snapshot(self, operation_id, **facts):
        metadata = {cinder_resources.OPERATION_KEY: operation_id}
        values = {'name': f'trove-{operation_id}-backup', 'metadata': metadata}
        return self.cinder.add_snapshot(self.volume, **values | facts)

    def interrupt_job(self):
        """Kill a copy of the service while it copies a backup."""
        self.storage.create_snapshot(self.image.snapshot('t'))
        work = tasks.CopyTask(self.image.snapshot('t'), image_types.ImageRef('vault', 'elsewhere'))
        dying = self.service('dying', threads=worlds.service_world.DeferredExecutor())
        begun = dying.jobs.start('copy', work)
        self.expire_dead_clients()
        return begun.operation_id


class Guests(guests.Guests):
    """Warm guests; those with a record are in ``ids``, and their volumes in ``volumes``."""

    def __init__(self):
        super().__init__(self, self)
        self.ids, self.volumes, self.resources = set(), {}, {}

    def leave_server(self):
        return self.leave(ResourceKind.SERVER, str(uuid.uuid4()))

    def leave(self, kind, guest_id):
        resource_id = f'{kind}-{len(self.resources)}'
        now = datetime.datetime.now(datetime.UTC)
        found = GuestResource(kind, resource_id, f'trove-guest-{guest_id}', now)
        self.resources[resource_id] = found
        return found

    # Nova, Neutron and the store.

    def list_resources(self):
        return list(self.resources.values())

    def list(self):
        return [
            types.SimpleNamespace(guest_id=one, volume_id=self.volumes.get(one)) for one in self.ids
        ]

    def delete_server(self, server_id):
        del self.resources[server_id]

    def delete_ports(self, port_ids):
        for port_id in port_ids:
            del self.resources[port_id]
