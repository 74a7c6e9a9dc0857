# SPDX-License-Identifier: Apache-2.0
"""The files of a cluster, and the settings that it was created with."""

import dataclasses
import json
import os
import shutil
import uuid
from pathlib import Path

from cephcluster.errors import UsageError

# A Unix socket path holds 107 bytes; the longest name below the root is run/osd.NNN.asok.
MAX_ROOT_LENGTH = 90

MON = 'mon.a'
MGR = 'mgr.x'


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a cluster, fixed when it is created.

    :param fsid: the cluster's UUID.
    :param mon_addr: the address that every daemon binds to.
    :param mon_port_v2: the monitor's port for the v2 protocol.
    :param mon_port_v1: the monitor's port for the v1 protocol.
    :param osd_classes: the device class of each OSD, in the order of their ids.
    :param osd_gib: the size of each OSD in GiB (sparse).
    :param conf_dir: the directory of ceph.conf and the keyrings.
    :param log_dir: the directory of all logs.
    """

    fsid: str
    mon_addr: str
    mon_port_v2: int
    mon_port_v1: int
    osd_classes: tuple[str, ...]
    osd_gib: int
    conf_dir: str
    log_dir: str

    def differences(self, other):
        """Return the names of the fields in which other settings differ, except the fsid."""
        names = [field.name for field in dataclasses.fields(self) if field.name != 'fsid']
        return [name for name in names if getattr(self, name) != getattr(other, name)]


class Layout:
    """The paths of one cluster under its root directory."""

    def __init__(self, root):
        self.root = Path(root).absolute()
        self.settings_file = self.root / 'cluster.json'
        self.complete_file = self.root / 'complete'
        self.data = self.root / 'data'
        self.run = self.root / 'run'

    def check(self):
        """Refuse a root that is too long for Unix sockets below it.

        :raises UsageError: the path is too long.
        """
        if len(str(self.root)) > MAX_ROOT_LENGTH:
            raise UsageError(
                f'--root {self.root} has {len(str(self.root))} characters; '
                f'Unix sockets below it allow {MAX_ROOT_LENGTH}'
            )

    def daemon_dir(self, name):
        return self.data / name

    def backing_file(self, name):
        """Return the path of the sparse file behind an OSD's loop device."""
        return self.daemon_dir(name) / 'block.img'

    def admin_socket(self, name):
        return self.run / f'{name}.asok'

    def is_complete(self):
        return self.complete_file.exists()

    def mark_complete(self):
        write_atomically(self.complete_file, 'created\n')

    def save(self, settings):
        """Record the settings, which marks the directory as a cluster's."""
        self.root.mkdir(parents=True, exist_ok=True)
        write_atomically(self.settings_file, json.dumps(dataclasses.asdict(settings), indent=2))

    def find(self):
        """Return the recorded settings, or None if no creation was ever begun."""
        try:
            fields = json.loads(self.settings_file.read_text())
        except FileNotFoundError:
            return None
        fields['osd_classes'] = tuple(fields['osd_classes'])
        return Settings(**fields)

    def get(self):
        """Return the recorded settings of a completely created cluster.

        :raises UsageError: there is none, or its creation was interrupted.
        """
        settings = self.find()
        if settings is None:
            raise UsageError(f'there is no cluster under {self.root}: run create first')
        if not self.is_complete():
            raise UsageError(
                f'the creation of the cluster under {self.root} was interrupted: run create again'
            )
        return settings

    def remove_data(self, settings):
        """Delete the cluster's files; the root itself stays, because it is the lock."""
        self.complete_file.unlink(missing_ok=True)
        for tree in (self.data, self.run):
            shutil.rmtree(tree, ignore_errors=True)
        conf_dir = Path(settings.conf_dir)
        for stale in [conf_dir / 'ceph.conf', *conf_dir.glob('ceph.*.keyring')]:
            stale.unlink(missing_ok=True)
        if Path(settings.log_dir).is_relative_to(self.root):
            shutil.rmtree(settings.log_dir, ignore_errors=True)
        self.settings_file.unlink(missing_ok=True)
        remove_if_empty(conf_dir)


def daemon_names(settings):
    """Return every daemon of the cluster, in the order of their start."""
    return [MON, MGR, *osd_names(settings)]


def osd_names(settings):
    return [f'osd.{number}' for number in range(len(settings.osd_classes))]


def conf_file(settings):
    return Path(settings.conf_dir) / 'ceph.conf'


def keyring_file(settings, entity):
    """Return the path of a client's keyring, as in the [client] section of ceph.conf."""
    return Path(settings.conf_dir) / f'ceph.{entity}.keyring'


def new_fsid():
    return str(uuid.uuid4())


def write_atomically(path, text, mode=0o644):
    """Write a small file so that a reader sees either the old content or the new one."""
    temporary = path.with_name(path.name + '.new')
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, 'w') as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.chmod(temporary, mode)
    os.replace(temporary, path)


def remove_if_empty(directory):
    try:
        directory.rmdir()
    except OSError:
        # Not empty, or gone: both are fine.
        return
