# SPDX-License-Identifier: Apache-2.0
"""Target: a mysqld that the benchmark runs, on an RBD image, a local disk or a mounted volume."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.conf import guest
from trove_ceph.host import (
    commands,
    data_volume,
    external_resources,
    rbd_device,
    rbd_pool,
    workspace,
)
from trove_ceph.host import filesystem as host_filesystem
from trove_ceph.mysql import installation, mysqld
from trove_ceph_bench import model
from trove_ceph_bench.targets import database, profiles, rbd_image, specification

LOG = logging.getLogger(__name__)


def from_spec(
    name: str, spec: Mapping[str, Any], settings: specification.Settings
) -> 'ServerTarget':
    """Return the target of a valid specification.

    :raises InvalidPlanError: the specification names a profile but no flavor
    """
    server = spec['server']
    if server.get('profile', 'none') != 'none' and 'flavor' not in server:
        raise exceptions.InvalidPlanError(
            f'target {name}: profile {server["profile"]} needs a flavor (ram_mib, vcpus)'
        )
    return ServerTarget(name, server, settings)


class ServerTarget:
    """A server that exists, with its storage, while this target is entered."""

    def __init__(self, name: str, server: Mapping[str, Any], settings: specification.Settings):
        self.name = name
        self._spec = server
        self._settings = settings
        self._schema = database.new_name()
        self._stack = contextlib.ExitStack()
        self._server: mysqld.Mysqld | None = None
        self._source: installation.Installation | None = None
        self._image: model.Image | None = None
        self._storage: dict[str, Any] = {}
        self._refused: dict[str, Any] = {}

    def __enter__(self) -> 'ServerTarget':
        try:
            with contextlib.ExitStack() as stack:
                self._build(stack)
                self._stack = stack.pop_all()
        except (
            exceptions.StorageCommandError,
            exceptions.ServerFailedError,
            OSError,
        ) as error:
            raise exceptions.TargetUnavailableError(f'target {self.name}: {error}') from error
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._stack.close()
        except exceptions.StorageCommandError as error:
            if exception and exception[0]:
                LOG.error('Target %s is not removed completely: %s', self.name, error)
            else:
                raise exceptions.TargetUnavailableError(
                    f'target {self.name} is not removed completely: {error}'
                ) from error
        finally:
            self._server = None
            self._image = None

    @property
    def address(self) -> model.Address:
        return model.Address('root', '', self._schema, unix_socket=str(self._running.socket))

    @property
    def image(self) -> model.Image | None:
        return self._image

    def disclose(self) -> dict[str, Any]:
        server = self._running
        given = {key: value for key, value in self._spec.items() if key not in ('mysqld', 'on')}
        return {
            'kind': 'server',
            'mysqld': self._source.disclose() if self._source else None,
            'mysql': database.disclose(database.Server(self.address)),
            'given': given,
            'options': dict(server.options),
            'refused_options': self._refused,
            'start_sec': server.start_sec,
            'storage': self._storage,
            'ceph': rbd_image.disclose(self._image),
        }

    def cpu_sec(self) -> float | None:
        return self._running.cpu_sec()

    def restart(self) -> bool:
        """Restart mysqld.

        :raises TargetUnavailableError: mysqld does not start again
        """
        try:
            self._running.restart()
        except exceptions.ServerFailedError as error:
            raise exceptions.TargetUnavailableError(f'target {self.name}: {error}') from error
        return True

    @property
    def _running(self) -> mysqld.Mysqld:
        if self._server is None:
            raise exceptions.TargetUnavailableError(f'target {self.name} is not running')
        return self._server

    def _build(self, stack: contextlib.ExitStack) -> None:
        scratch = stack.enter_context(workspace.Workspace(parent=self._settings.directory))
        self._source = _installation(self._spec['mysqld'], self._settings)
        volume = stack.enter_context(self._volume(scratch))
        my_cnf = self._spec.get('my_cnf')
        server = mysqld.Mysqld(
            self._source,
            volume,
            scratch.path / 'run',
            my_cnf=Path(my_cnf) if my_cnf else None,
            environment=scratch.environment,
        )
        server.options = self._options(server)
        # No clean shutdown: the volume is deleted anyway.
        stack.callback(server.kill)
        server.ensure_initialised()
        server.start()
        server.query(f'CREATE DATABASE `{self._schema}`')
        self._server = server

    def _options(self, server: mysqld.Mysqld) -> dict[str, Any]:
        """Return the profile's settings that mysqld accepts, overridden by the plan's."""
        configured = dict(self._spec.get('options', {}))
        profile = self._spec.get('profile', 'none')
        if profile == 'none':
            return configured
        machine = profiles.machine(self._spec)
        if profile == 'trove-ceph':
            return {**profiles.trove_ceph_options(machine), **configured}
        assert self._source is not None
        stock = profiles.stock_options(machine, self._source.disclose()['version'])
        server.options = dict(stock)
        self._refused = {}
        while refused := server.find_refused_option():
            self._refused[refused] = server.options.pop(refused)
        return {**server.options, **configured}

    @contextlib.contextmanager
    def _volume(self, scratch: workspace.Workspace) -> Iterator[Path]:
        """Yield the directory that serves as /var/lib/mysql."""
        on = self._spec['on']
        if 'rbd' in on:
            with self._rbd_volume(scratch, on['rbd']) as path:
                yield path
            return
        parent = Path(on.get('local') or on['path'])
        if not parent.is_dir():
            raise exceptions.StorageCommandError(f'there is no directory {parent}')
        if 'path' in on and not parent.is_mount():
            raise exceptions.StorageCommandError(f'nothing is mounted at {parent}')
        with external_resources.directory(scratch.path, parent) as path:
            self._storage = {'kind': 'local' if 'local' in on else 'path', **_mount_facts(path)}
            yield path

    @contextlib.contextmanager
    def _rbd_volume(self, scratch: workspace.Workspace, rbd: Mapping[str, Any]) -> Iterator[Path]:
        conf = rbd.get('conf', specification.DEFAULT_CEPH_CONF)
        user = rbd.get('user', specification.DEFAULT_CEPH_USER)
        pool = rbd_pool.RbdPool(conf, user, rbd['pool'])
        direct = rbd.get('direct', False)
        with contextlib.ExitStack() as stack:
            if rbd.get('keep'):
                image = external_resources.new_name()
                pool.create_image(image, rbd['size_gib'])
            else:
                image = stack.enter_context(
                    external_resources.rbd_image(scratch.path, pool, rbd['size_gib'])
                )
            for option, value in rbd.get('image_options', {}).items():
                pool.set_option(image, option, value)
            disk = stack.enter_context(
                rbd_device.RbdDevice(
                    *(conf, user, rbd['pool'], image, scratch.path / 'export'),
                    direct=direct,
                    environment=scratch.environment,
                )
            )
            filesystem = rbd_device.Filesystem(disk.device, scratch.path / 'volume', make=True)
            # The queue is set before the first write, as in a guest.
            data_volume.DataVolume(
                disk.device, str(filesystem.path), host_filesystem.HostStorage()
            ).configure_queue(rbd.get('read_ahead_kib', _default_read_ahead_kib()))
            path = stack.enter_context(filesystem).path
            self._image = model.Image(rbd['pool'], image, conf, user)
            self._storage = {
                'kind': 'rbd',
                'access': 'qemu-storage-daemon, FUSE export, loop device',
                'librbd_cache': not direct,
                'image': dataclasses.asdict(self._image),
                'image_options': dict(rbd.get('image_options', {})),
                **_mount_facts(path),
            }
            yield path


def _installation(
    spec: Mapping[str, Any], settings: specification.Settings
) -> installation.Installation:
    if 'binary' in spec:
        path = Path(spec['binary'])
        if not path.is_file():
            raise exceptions.ServerFailedError(f'there is no mysqld at {path}; check the plan')
        return installation.HostBinary(path)
    if spec['rootfs'] == 'auto':
        newest = installation.find_newest_rootfs(settings.cache)
        if newest is None:
            raise exceptions.ServerFailedError(
                f'there is no MySQL root file system in {settings.cache}; build one with '
                'lab/images/build mysql-rootfs, or name a rootfs or a binary in the plan'
            )
        return installation.Rootfs(newest)
    path = Path(spec['rootfs'])
    if not path.is_dir():
        raise exceptions.ServerFailedError(
            f'there is no root file system at {path}; check the plan'
        )
    return installation.Rootfs(path)


def _default_read_ahead_kib() -> int:
    (option,) = [one for one in guest.OPTS if one.name == 'read_ahead_kib']
    return option.default


def _mount_facts(path: Path) -> dict[str, Any]:
    """Return device, file system and mount options of the mount that holds a directory."""
    names = ('source', 'fstype', 'options', 'size')
    line = commands.run(
        *('findmnt', '--noheadings', '--raw', '--output', ','.join(names)),
        *('--target', path),
    )
    return dict(zip(names, line.split(), strict=True))
