# SPDX-License-Identifier: Apache-2.0
"""Ask Ceph about an image through its command lines, which need no Python bindings."""

import dataclasses
import json
import subprocess

from trove_ceph import exceptions

COMMAND_TIMEOUT_SEC = 300
_NO_SUCH_IMAGE = 2  # ENOENT


@dataclasses.dataclass(frozen=True)
class Image:
    """An RBD image, as far as finding its objects goes."""

    name: str
    pool: str
    data_pool: str
    block_name_prefix: str
    size_bytes: int
    object_size_bytes: int


@dataclasses.dataclass(frozen=True)
class Osd:
    """An OSD: its device class, and the buckets above it by their type."""

    osd_id: int
    device_class: str
    buckets: dict[str, str]


class Ceph:
    """One cluster, as a user that may read its maps and images.

    :raises trove_ceph.exceptions.StorageCommandError: from every method, when Ceph does not
        answer or refuses.
    """

    def __init__(self, conf: str, user: str):
        self._options = ['--conf', conf, '--id', user]

    def find_image(self, pool: str, name: str) -> Image | None:
        done = self._run('rbd', ['info', '--format', 'json', f'{pool}/{name}'])
        if done.returncode == _NO_SUCH_IMAGE:
            return None
        info = self._parsed(done)
        return Image(
            name=name,
            pool=pool,
            data_pool=info.get('data_pool', pool),
            block_name_prefix=info['block_name_prefix'],
            size_bytes=info['size'],
            object_size_bytes=info['object_size'],
        )

    def in_trash(self, pool: str, name: str) -> bool:
        """Return whether an image of this name waits in the pool's trash."""
        listed = self._parsed(self._run('rbd', ['trash', 'ls', '--all', '--format', 'json', pool]))
        return any(entry['name'] == name for entry in listed)

    def objects(self, image: Image) -> list[str]:
        """Return the names of the image's data objects that exist."""
        extents = self._parsed(
            self._run(
                'rbd',
                ['diff', '--whole-object', '--format', 'json', f'{image.pool}/{image.name}'],
            )
        )
        numbers = set()
        for extent in extents:
            first = extent['offset'] // image.object_size_bytes
            last = (extent['offset'] + extent['length'] - 1) // image.object_size_bytes
            numbers.update(range(first, last + 1))
        return [f'{image.block_name_prefix}.{number:016x}' for number in sorted(numbers)]

    def osds_of(self, pool: str, objects: list[str]) -> dict[str, list[int]]:
        """Return the OSDs that hold each object, as the monitors map it.

        One process maps all of them: ceph reads commands from its standard input.
        """
        commands = ''.join(f'osd map {pool} {name}\n' for name in objects)
        done = self._run('ceph', ['--format', 'json'], commands)
        self._require(done)
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
        mapped = {answer['objname']: answer['acting'] for answer in answers}
        if set(mapped) != set(objects):
            raise exceptions.StorageCommandError(
                f'ceph osd map in {pool}: {len(mapped)} answers to {len(objects)} objects'
            )
        return mapped

    def osds(self) -> dict[int, Osd]:
        """Return all OSDs by id, with their places in the CRUSH hierarchy."""
        nodes = self._parsed(self._run('ceph', ['osd', 'tree', '--format', 'json']))['nodes']
        parents = {child: node for node in nodes for child in node.get('children', [])}
        found = {}
        for node in nodes:
            if node['type'] != 'osd':
                continue
            buckets, above = {'osd': node['name']}, parents.get(node['id'])
            while above:
                buckets[above['type']] = above['name']
                above = parents.get(above['id'])
            found[node['id']] = Osd(node['id'], node.get('device_class', ''), buckets)
        return found

    def _parsed(self, done):
        self._require(done)
        return json.loads(done.stdout)

    def _require(self, done):
        if done.returncode:
            raise exceptions.StorageCommandError(
                f'{" ".join(done.args)} ended with {done.returncode}: {done.stderr.strip()[-400:]}'
            )

    def _run(self, program, arguments, text=''):
        command = [program, *self._options, *arguments]
        try:
            return subprocess.run(
                command, input=text, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_SEC
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise exceptions.StorageCommandError(f'{" ".join(command)}: {error}') from error
