# SPDX-License-Identifier: Apache-2.0
"""The storage back end of a real Ceph cluster."""

import contextlib
import dataclasses
import datetime
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

import rados
import rbd
from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.storage import backend, image_types
from trove_ceph.storage.ceph import (
    children,
    connection,
    description,
    flattening,
    limits,
    metadata,
    objects,
    performance,
    placement,
    snapshots,
    stale_names,
    streams,
    trash_entry,
)

LOG = logging.getLogger(__name__)


class CephBackend(backend.Backend):
    """A cluster accessed by one connection; the reference lists the caps that its key needs."""

    def __init__(self, link: connection.Connection):
        self._link = link
        self._rbd = rbd.RBD()

    @property
    def cluster_id(self) -> str:
        return self._link.cluster.get_fsid()

    def create_image(
        self, image: image_types.ImageRef, size_bytes: int, options: image_types.ImageOptions
    ) -> None:
        with self._pool(image.pool, f'creating {image}', options.data_pool) as context:
            names = (context, image.name, size_bytes)
            stale_names.create(
                *(context, image.name),
                lambda: self._rbd.create(*names, old_format=False, **_options(options)),
            )

    def list_images(
        self, pool: str, prefix: str = '', after: str = '', limit: int = 1000
    ) -> list[image_types.ListedImage]:
        with self._pool(pool, f'listing pool {pool}') as context:
            listed = {one['name']: one['id'] for one in self._rbd.list2(context)}
        names = sorted(name for name in listed if name.startswith(prefix) and name > after)
        return [
            image_types.ListedImage(image_types.ImageRef(pool, name), listed[name])
            for name in names[:limit]
        ]

    def describe(
        self, image: image_types.ImageRef, with_usage: bool = True
    ) -> image_types.ImageFacts:
        with self._image(image, 'describing', read_only=True) as (handle, context):
            facts = description.describe(handle, image, context, self._link)
            used_bytes = description.used_bytes(handle) if with_usage else None
            return dataclasses.replace(facts, used_bytes=used_bytes)

    def describe_pool(self, pool: str) -> Iterator[image_types.ImageFacts]:
        with self._pool(pool, f'listing pool {pool}') as context:
            names = self._rbd.list(context)
        for name in names:
            image = image_types.ImageRef(pool, name)
            try:
                with self._image(image, 'describing', read_only=True) as (handle, context):
                    facts = description.describe(handle, image, context, self._link)
            except exceptions.NotFoundError:
                continue
            yield facts

    def create_snapshot(self, snapshot: image_types.SnapshotRef) -> None:
        with self._image(snapshot.of, f'creating snapshot {snapshot.name} of') as (
            handle,
            context,
        ):
            snapshots.create(handle, context, snapshot.name)

    def remove_snapshot(self, snapshot: image_types.SnapshotRef) -> None:
        subject = f'removing snapshot {snapshot.name} of'
        with self._image(snapshot.of, subject) as (handle, context):
            handle.remove_snap(snapshot.name)
            self._release_lost(snapshot.of, handle, context)

    def _release_lost(
        self, image: image_types.ImageRef, handle: rbd.Image, context: rados.Ioctx
    ) -> None:
        try:
            lost = children.Children(handle, context, self._link).release_lost()
        except (rados.Error, rbd.Error) as error:
            LOG.warning('%s: what lost clones hold stays for now: %s', image, error)
        else:
            if lost:
                LOG.warning('%s: released what %s lost clones have held', image, lost)

    def rename_snapshot(self, snapshot: image_types.SnapshotRef, name: str) -> None:
        with self._image(snapshot.of, f'renaming snapshot {snapshot.name} to {name} of') as (
            handle,
            _,
        ):
            handle.rename_snap(snapshot.name, name)

    def clone(
        self,
        snapshot: image_types.SnapshotRef,
        image: image_types.ImageRef,
        options: image_types.ImageOptions,
    ) -> None:
        verb = f'cloning {snapshot} as {image}'
        with (
            self._pool(snapshot.pool, verb) as parent,
            self._pool(image.pool, verb, options.data_pool) as child,
        ):
            names = (parent, snapshot.image, snapshot.name, child, image.name)
            stale_names.create(
                child, image.name, lambda: self._rbd.clone(*names, **_options(options))
            )
            # The clone has inherited the limits and the other metadata of its parent.
            image_id = metadata.image_id(child, image.name)
            metadata.change(child, image_id, dict.fromkeys(metadata.read(child, image_id)))

    def flatten(
        self,
        image: image_types.ImageRef,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        flattening.Flattening(self._link, image, progress, cancel).run()

    def set_qos(self, image: image_types.ImageRef, qos: image_types.Qos) -> None:
        with self._image(image, 'limiting') as (handle, _):
            for option, value in limits.changes(qos):
                if value is not None:
                    handle.config_set(option, value)
                else:
                    # An option that is not set answers ENOENT.
                    with contextlib.suppress(rbd.ImageNotFound, KeyError):
                        handle.config_remove(option)

    def remove(self, image: image_types.ImageRef) -> None:
        try:
            with self._pool(image.pool, f'removing {image}') as context:
                if not stale_names.remove(context, image.name):
                    self._rbd.remove(context, image.name)
        except exceptions.BusyError as error:
            raise self._explain_busy(image, error) from error

    def trash(
        self, image: image_types.ImageRef, image_id: str | None = None
    ) -> image_types.TrashedImage:
        try:
            with self._pool(image.pool, f'moving {image} to the trash') as context:
                # librbd would move even a stale name.
                stale_names.remove(context, image.name)
                found_id = stale_names.find_id(context, image.name)
                if image_id is not None and found_id not in (None, image_id):
                    raise _wrong_id(image, image_id)
                before = {one['id'] for one in self._rbd.trash_list(context)}
                self._rbd.trash_move(context, image.name)
                moved = self._find_moved(context, image, found_id, before)
                if image_id is not None and moved != image_id:
                    # librbd moves by name. Another client may just have created a new image with
                    # this name, which is restored.
                    self._rbd.trash_restore(context, moved, image.name)
                    raise _wrong_id(image, image_id)
        except exceptions.BusyError as error:
            raise self._explain_busy(image, error) from error
        return self._describe_trashed(image.pool, moved)

    def _find_moved(
        self,
        context: rados.Ioctx,
        image: image_types.ImageRef,
        image_id: str | None,
        before: set[str],
    ) -> str:
        """Return the id of the image that was just moved to the trash.

        :param image_id: the id of the name before; None if an earlier move was interrupted
        :param before: the ids that were in the trash before
        """
        entries = [one for one in self._rbd.trash_list(context) if one['name'] == image.name]
        moved = [one for one in entries if one['id'] not in before]
        if not moved and image_id in [one['id'] for one in entries]:
            # This call completed an interrupted move.
            return str(image_id)
        return max(moved or entries, key=lambda one: one['deletion_time'])['id']

    def list_trash(self, pool: str) -> list[image_types.TrashedImage]:
        with self._pool(pool, f'listing the trash of pool {pool}') as context:
            entries = list(self._rbd.trash_list(context))
        found = []
        for entry in entries:
            with contextlib.suppress(exceptions.NotFoundError):
                found.append(self._describe_trashed(pool, entry['id']))
        return found

    def _describe_trashed(self, pool: str, image_id: str) -> image_types.TrashedImage:
        """Describe an image in the trash, even if an interrupted purge left only its entry.

        The same goes for an image that cannot be opened, since Ceph misses a part of it.
        """
        subject = f'describing image {image_id} in the trash of pool {pool}'
        with self._pool(pool, subject) as context:
            clones: tuple[image_types.Child, ...] = ()
            size_bytes = None
            if stale_names.has_header(context, image_id):
                with (
                    contextlib.suppress(
                        rbd.ImageNotFound, rados.ObjectNotFound, exceptions.NotFoundError
                    ),
                    rbd.Image(context, image_id=image_id, read_only=True) as handle,
                ):
                    clones = children.Children(handle, context, self._link).all()
                    size_bytes = handle.size()
            # Last, since it may have been purged meanwhile.
            entry = self._rbd.trash_get(context, image_id)
        trashed_at = entry['deletion_time'].replace(tzinfo=datetime.UTC)
        return image_types.TrashedImage(
            pool, image_id, entry['name'], trashed_at, clones, size_bytes
        )

    def restore(self, pool: str, image_id: str, name: str) -> None:
        with self._pool(pool, f'restoring image {image_id} as {pool}/{name}') as context:
            if stale_names.find_name(context, image_id) is None:
                trash_entry.end_move(context, image_id)
            self._rbd.trash_restore(context, image_id, name)

    def purge(self, pool: str, image_id: str) -> None:
        with self._pool(pool, f'purging image {image_id} of pool {pool}') as context:
            name = image_types.ImageRef(pool, self._rbd.trash_get(context, image_id)['name'])
            if stale_names.find_name(context, image_id) is not None:
                # Moving or restoring it was interrupted. librbd would refuse to remove it, but only
                # after its snapshots are removed.
                raise exceptions.BusyError(
                    f'{name} (in the trash, id {image_id}): is also listed as an image; trash or '
                    'restore it by its name'
                )
            trash_entry.end_move(context, image_id)
            # An earlier purge that was interrupted at its end has removed the header.
            if stale_names.has_header(context, image_id):
                self._remove_snapshots(context, name, image_id)
            self._rbd.trash_remove(context, image_id, force=True)

    def _remove_snapshots(
        self, context: rados.Ioctx, name: image_types.ImageRef, image_id: str
    ) -> None:
        with rbd.Image(context, image_id=image_id) as handle:
            clones = children.Children(handle, context, self._link)
            if found := clones.all():
                raise exceptions.BusyError(
                    f'{name} (in the trash, id {image_id}): has the children '
                    f'{", ".join(map(str, found))}'
                )
            clones.release_lost()
            for snapshot in list(handle.list_snaps()):
                handle.remove_snap_by_id(snapshot['id'])

    def usage(self, pool: str) -> image_types.PoolUsage:
        return self._link.usage(pool)

    def busiest_images(self, pool: str) -> list[image_types.ImagePerformance]:
        return performance.busiest(self._link, pool)

    def open_reader(self, snapshot: image_types.SnapshotRef) -> streams.Reader:
        return streams.Reader(self._link, snapshot)

    def open_writer(self, image: image_types.ImageRef) -> streams.Writer:
        return streams.Writer(self._link, image)

    def read_header(self, image: image_types.ImageRef) -> image_types.ImageHeader:
        with self._image(image, 'reading the header of', read_only=True) as (handle, context):
            return description.read_header(handle, image, context)

    def find_clients(self, image: image_types.ImageRef) -> image_types.Clients:
        with self._image(image, 'listing the clients of', read_only=True) as (handle, _):
            return description.clients_of(handle, self._link)

    def do_clients_answer(self, image: image_types.ImageRef, timeout_sec: float = 5) -> bool:
        with self._pool(image.pool, f'asking the clients of {image}') as context:
            header = metadata.header_of(metadata.image_id(context, image.name))
            try:
                # A notification without content is that the header has changed (ImageWatcher.cc in
                # src/librbd of Ceph's source): each client reads it again, and acknowledges.
                context.notify(header, timeout_ms=round(timeout_sec * 1000))
            except rados.TimedOut:
                return False
            return True

    def set_image_metadata(
        self, image: image_types.ImageRef, entries: Mapping[str, str | None]
    ) -> None:
        with self._pool(image.pool, f'changing metadata of {image}') as context:
            metadata.change(context, metadata.image_id(context, image.name), entries)

    def blocklist_expiries(self) -> Mapping[str, datetime.datetime]:
        return {
            entry['addr']: datetime.datetime.fromisoformat(entry['until'])
            for entry in self._link.mon_command('osd blocklist ls') or ()
        }

    def blocklist(self, addresses: Iterable[str], expire_sec: int) -> None:
        for address in addresses:
            with self._link.using() as cluster, self._link.translated(f'blocklisting {address}'):
                cluster.blocklist_add(address, expire_sec)

    def unblocklist(self, addresses: Iterable[str]) -> None:
        listed = self.blocklisted()
        for address in addresses:
            if address in listed:
                self._link.mon_command('osd blocklist', blocklistop='rm', addr=address)

    def break_lock(self, image: image_types.ImageRef, owner: str) -> None:
        with self._image(image, 'breaking the lock of') as (handle, _):
            if description.clients_of(handle, self._link).lock_owner == owner:
                handle.lock_break(rbd.RBD_LOCK_MODE_EXCLUSIVE, owner)

    def await_blocklist(self, image: image_types.ImageRef) -> None:
        with self._image(image, 'opening', read_only=True) as (handle, context):
            data_pool = description.data_pool_of(handle, context, self._link)
        groups = {
            pool['pool_name']: pool['pg_num']
            for pool in self._link.mon_command('osd dump')['pools']
        }
        subject = f'waiting for the OSD map, for {image}'
        with self._link.using() as cluster, self._link.translated(subject):
            cluster.wait_for_latest_osdmap()
        for pool in filter(None, (image.pool, data_pool)):
            with self._pool(pool, f'querying each placement group of pool {pool}') as context:
                # A request carries the epoch of our map. The objects do not exist, but any answer
                # will do.
                objects.absent(context, placement.one_object_per_group(groups[pool]))

    @contextlib.contextmanager
    def _pool(self, pool: str, subject: str, data_pool: str | None = None) -> Iterator[rados.Ioctx]:
        pools = [pool, data_pool] if data_pool else [pool]
        with self._link.pool(pool) as context, self._link.translated(subject, pools):
            yield context

    @contextlib.contextmanager
    def _image(
        self,
        image: image_types.ImageRef,
        verb: str,
        image_id: str | None = None,
        read_only: bool = False,
    ) -> Iterator[tuple[rbd.Image, rados.Ioctx]]:
        name = None if image_id else image.name
        with (
            self._link.pool(image.pool) as context,
            self._link.translated(f'{verb} {image}', [image.pool]),
            rbd.Image(context, name, read_only=read_only, image_id=image_id) as handle,
        ):
            yield handle, context

    def _explain_busy(
        self, image: image_types.ImageRef, error: exceptions.BusyError
    ) -> exceptions.BusyError:
        facts = self.describe(image, with_usage=False)
        # Only with clients: it is one more request, and not every key has the caps for it.
        obstacles = facts.obstacles(self.blocklisted() if facts.clients else ())
        return exceptions.BusyError(f'{error}: it has {obstacles}' if obstacles else str(error))


def _wrong_id(image: image_types.ImageRef, image_id: str) -> exceptions.NotFoundError:
    return exceptions.NotFoundError(f'{image}: is another image now, expected id {image_id}')


def _options(options: image_types.ImageOptions) -> dict[str, object]:
    return {
        'order': options.object_bytes.bit_length() - 1,
        'features': rbd.RBD().features_from_string(','.join(sorted(options.features))),
        'data_pool': options.data_pool,
    }
