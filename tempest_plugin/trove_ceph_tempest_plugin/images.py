# SPDX-License-Identifier: Apache-2.0
"""The operations of trove_ceph.storage that scenarios need, through the command ``rbd``.

Hosts that run Tempest need no Python bindings of Ceph.
"""

import datetime
import hashlib
import subprocess

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph_tempest_plugin import ceph

_NOT_FOUND = 2  # ENOENT
_BUSY = (16, 39)  # EBUSY, ENOTEMPTY


class Images(ceph.Ceph):
    """One cluster, accessed as a user that may create and remove images and snapshots.

    Methods raise the same errors as those of trove_ceph.storage.backend.
    """

    def describe(
        self, image: image_types.ImageRef, with_usage: bool = False
    ) -> image_types.ImageFacts:
        info = self._query('info', str(image))
        snapshots = self._query('snap', 'ls', '--all', str(image))
        watchers = self._query('status', str(image)).get('watchers', [])
        parent = info.get('parent')
        return image_types.ImageFacts(
            image=image,
            image_id=info['id'],
            size_bytes=info['size'],
            object_bytes=info['object_size'],
            features=frozenset(info['features']),
            data_pool=info.get('data_pool'),
            parent=parent
            and image_types.SnapshotRef(parent['pool'], parent['image'], parent['snapshot']),
            snapshots=tuple(_snapshot(one) for one in snapshots),
            children=tuple(self._children(image, snapshots)),
            clients=tuple(one['address'] for one in watchers),
            lock_owner=None,
            qos=image_types.Qos(),
            metadata={},
        )

    def _children(self, image, snapshots):
        for snapshot in snapshots:
            listed = self._query('children', '--all', '--snap-id', str(snapshot['id']), str(image))
            for child in listed:
                found = image_types.ImageRef(child['pool'], child['image'])
                yield image_types.Child(
                    found, child['id'], snapshot['name'], bool(child.get('trash'))
                )

    def create_snapshot(self, snapshot: image_types.SnapshotRef) -> None:
        self._execute('snap', 'create', '--no-progress', str(snapshot))

    def remove_snapshot(self, snapshot: image_types.SnapshotRef) -> None:
        self._execute('snap', 'rm', '--no-progress', str(snapshot))

    def clone(
        self, snapshot: image_types.SnapshotRef, image: image_types.ImageRef, clone_format: int = 2
    ) -> None:
        option = f'--rbd-default-clone-format={clone_format}'
        self._execute('clone', option, str(snapshot), str(image))

    def flatten(self, image: image_types.ImageRef) -> None:
        self._execute('flatten', '--no-progress', str(image))

    def remove(self, image: image_types.ImageRef) -> None:
        self._execute('rm', '--no-progress', str(image))

    def list_names(self, pool: str) -> list[str]:
        """Return the names of a pool's images, including those in the trash."""
        return sorted([*self._query('ls', pool), *(str(one) for one in self.list_trash(pool))])

    def list_trash(self, pool: str) -> list[image_types.TrashedImage]:
        now = datetime.datetime.now(datetime.UTC)
        return [
            image_types.TrashedImage(pool, one['id'], one['name'], now, ())
            for one in self._query('trash', 'ls', '--all', pool)
        ]

    def purge(self, trashed: image_types.TrashedImage) -> None:
        """Delete an image in the trash, with its snapshots."""
        options = ['--pool', trashed.pool, '--image-id', trashed.image_id]
        self._execute('snap', 'purge', '--no-progress', *options)
        spec = f'{trashed.pool}/{trashed.image_id}'
        self._execute('trash', 'rm', '--no-progress', '--force', spec)

    def write(self, image: image_types.ImageRef, size_bytes: int) -> None:
        """Write to the beginning of an image."""
        bench = ['bench', '--io-type', 'write', '--io-pattern', 'seq', '--io-size', '1M']
        self._execute(*bench, '--io-total', str(size_bytes), str(image))

    def digest(self, image: image_types.ImageRef | image_types.SnapshotRef, size_bytes: int) -> str:
        """Return a checksum of the beginning of an image or a snapshot."""
        command = ['rbd', *self._options, 'export', '--no-progress', str(image), '-']
        with subprocess.Popen(command, stdout=subprocess.PIPE) as exporting:
            content = exporting.stdout.read(size_bytes)
            exporting.kill()
        if len(content) != size_bytes:
            raise exceptions.StorageCommandError(
                f'{" ".join(command)}: expected {size_bytes} bytes, found {len(content)}'
            )
        return hashlib.sha256(content).hexdigest()

    def _query(self, *arguments):
        result = self._run('rbd', [*arguments, '--format', 'json'])
        self._translate_error(result)
        return self._parse(result)

    def _execute(self, *arguments):
        result = self._run('rbd', list(arguments))
        self._translate_error(result)
        self._require_success(result)

    @staticmethod
    def _translate_error(result):
        message = f'{" ".join(result.args)}: {result.stderr.strip()[-400:]}'
        if result.returncode == _NOT_FOUND:
            raise exceptions.NotFoundError(message)
        if result.returncode in _BUSY:
            raise exceptions.BusyError(message)


def _snapshot(listed):
    namespace = listed['namespace']
    removed = namespace['type'] == 'trash'
    return image_types.SnapshotFacts(
        name=listed['name'],
        snapshot_id=listed['id'],
        size_bytes=listed['size'],
        created_at=datetime.datetime.strptime(listed['timestamp'], '%c').astimezone(),
        removed=removed,
        removed_name=namespace.get('original_name'),
    )
