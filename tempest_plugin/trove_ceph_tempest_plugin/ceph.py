# SPDX-License-Identifier: Apache-2.0
"""Read facts about images from Ceph's command lines, which need no Python bindings."""

import dataclasses
import json
import subprocess

from trove_ceph import exceptions

COMMAND_TIMEOUT_SEC = 300
_NO_SUCH_IMAGE = 2  # ENOENT


@dataclasses.dataclass(frozen=True)
class Image:
    """An RBD image, with the facts needed to find its objects."""

    name: str
    pool: str
    data_pool: str
    block_name_prefix: str
    size_bytes: int
    object_size_bytes: int


@dataclasses.dataclass(frozen=True)
class Osd:
    """An OSD: its device class, and the CRUSH buckets above it by type."""

    osd_id: int
    device_class: str
    buckets: dict[str, str]


class Ceph:
    """One cluster, accessed as a user that may read its maps and images.

    Every method raises trove_ceph.exceptions.StorageCommandError when Ceph refuses or does not
    answer.
    """

    def __init__(self, conf: str, user: str):
        self._options = ['--conf', conf, '--id', user]

    def find_image(self, pool: str, name: str) -> Image | None:
        """Return an image, or None if it does not exist."""
        result = self._run('rbd', ['info', '--format', 'json', f'{pool}/{name}'])
        if result.returncode == _NO_SUCH_IMAGE:
            return None
        info = self._parse(result)
        return Image(
            name=name,
            pool=pool,
            data_pool=info.get('data_pool', pool),
            block_name_prefix=info['block_name_prefix'],
            size_bytes=info['size'],
            object_size_bytes=info['object_size'],
        )

    def in_trash(self, pool: str, name: str) -> bool:
        """Return whether an image of this name is in the pool's trash."""
        listed = self._parse(self._run('rbd', ['trash', 'ls', '--all', '--format', 'json', pool]))
        return any(entry['name'] == name for entry in listed)

    def objects(self, image: Image) -> list[str]:
        """Return the names of the image's existing data objects."""
        extents = self._parse(
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
        """Return the acting OSDs of each object, according to the monitors.

        A single process maps all objects: ceph reads commands from its standard input.
        """
        commands = ''.join(f'osd map {pool} {name}\n' for name in objects)
        result = self._run('ceph', ['--format', 'json'], commands)
        self._require_success(result)
        replies = [json.loads(line) for line in result.stdout.splitlines() if line.strip()]
        mapped = {reply['objname']: reply['acting'] for reply in replies}
        if set(mapped) != set(objects):
            raise exceptions.StorageCommandError(
                f'ceph osd map in {pool}: {len(mapped)} replies for {len(objects)} objects'
            )
        return mapped

    def osds(self) -> dict[int, Osd]:
        """Return all OSDs by id, with their locations in the CRUSH hierarchy."""
        nodes = self._parse(self._run('ceph', ['osd', 'tree', '--format', 'json']))['nodes']
        parents = {child: node for node in nodes for child in node.get('children', [])}
        found = {}
        for node in nodes:
            if node['type'] != 'osd':
                continue
            buckets, parent = {'osd': node['name']}, parents.get(node['id'])
            while parent:
                buckets[parent['type']] = parent['name']
                parent = parents.get(parent['id'])
            found[node['id']] = Osd(node['id'], node.get('device_class', ''), buckets)
        return found

    def _parse(self, result):
        self._require_success(result)
        return json.loads(result.stdout)

    def _require_success(self, result):
        if result.returncode:
            raise exceptions.StorageCommandError(
                f'{" ".join(result.args)} exited with {result.returncode}: '
                f'{result.stderr.strip()[-400:]}'
            )

    def _run(self, program, arguments, text=''):
        command = [program, *self._options, *arguments]
        try:
            return subprocess.run(
                command, input=text, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_SEC
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise exceptions.StorageCommandError(f'{" ".join(command)}: {error}') from error
