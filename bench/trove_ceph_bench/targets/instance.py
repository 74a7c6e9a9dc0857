# SPDX-License-Identifier: Apache-2.0
"""Target: a Trove instance, with a schema and a user created through Trove's API."""

import dataclasses
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph_bench import model
from trove_ceph_bench.targets import cloud, database, rbd_image, specification

LOG = logging.getLogger(__name__)

DEFAULT_PORT = 3306
#: Trove creates databases and users asynchronously, and an emulated guest is slow.
SQL_TIMEOUT_SEC = 180

FindReachableAddress = Callable[[Sequence[model.Address], float], model.Address]


def from_spec(
    name: str, spec: Mapping[str, Any], settings: specification.Settings
) -> 'InstanceTarget':
    """Return the target of a valid specification."""
    return InstanceTarget(name, spec, cloud.Cloud.from_environment)


class InstanceTarget:
    """An instance that the identity in the environment can access.

    :param open_cloud: returns the cloud; called when the target is entered
    :param find_reachable_address: waits until an address accepts SQL, and returns it
    """

    def __init__(
        self,
        name: str,
        spec: Mapping[str, Any],
        open_cloud: Callable[[], cloud.Cloud],
        find_reachable_address: FindReachableAddress = database.find_reachable_address,
    ):
        self.name = name
        self._spec = spec
        self._open_cloud = open_cloud
        self._find_reachable_address = find_reachable_address
        self._schema = database.new_name()
        self._cloud: cloud.Cloud | None = None
        self._instance: cloud.Instance | None = None
        self._address: model.Address | None = None
        self._image: model.Image | None = None

    def __enter__(self) -> 'InstanceTarget':
        self._cloud = self._open_cloud()
        self._instance = self._cloud.get_instance(self._spec['instance'])
        if self._instance.status != 'ACTIVE':
            raise exceptions.TargetUnavailableError(
                f'{self} is {self._instance.status}, expected ACTIVE'
            )
        for stale in filter(database.is_leftover, self._cloud.list_schemas(self._instance.id)):
            LOG.warning('Removing %s from %s, left by an earlier run', stale, self)
            self._cloud.ensure_no_schema(self._instance.id, stale)
        password = secrets.token_urlsafe(18)
        try:
            self._cloud.create_schema(self._instance.id, self._schema, password)
            self._address = self._find_reachable_address(self._addresses(password), SQL_TIMEOUT_SEC)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        self._image = rbd_image.image(self._spec, self._cloud.image_id(self._instance))
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove schema and user.

        :raises TargetUnavailableError: the instance was deleted, unless Ctrl-C is being handled; or
            the schema cannot be removed and no other error is being handled
        """
        failure = exception[1] if exception else None
        try:
            self._entered_cloud.ensure_no_schema(self._entered_instance.id, self._schema)
        except exceptions.TargetUnavailableError as error:
            if self._is_gone():
                message = f'{self} was deleted during the measurement'
                fails = not isinstance(failure, KeyboardInterrupt)
            else:
                message = f'{self} still has {self._schema}; the next run removes it: {error}'
                fails = failure is None
            if fails:
                raise exceptions.TargetUnavailableError(message) from None
            LOG.error('%s', message)

    def __str__(self) -> str:
        return f'instance {self._spec["instance"]}'

    @property
    def address(self) -> model.Address:
        if self._address is None:
            raise exceptions.TargetUnavailableError(f'target {self.name} is not running')
        return self._address

    @property
    def image(self) -> model.Image | None:
        return self._image

    def disclose(self) -> dict[str, Any]:
        return {
            'kind': 'instance',
            'instance': self._entered_cloud.describe(self._entered_instance),
            'mysql': database.disclose(database.Server(self.address)),
            'ceph': rbd_image.disclose(self._image),
        }

    def cpu_sec(self) -> float | None:
        return self._entered_cloud.cpu_sec(self._entered_instance)

    def restart(self) -> bool:
        return False

    @property
    def _entered_cloud(self) -> cloud.Cloud:
        assert self._cloud is not None
        return self._cloud

    @property
    def _entered_instance(self) -> cloud.Instance:
        assert self._instance is not None
        return self._instance

    def _is_gone(self) -> bool:
        try:
            return not self._entered_cloud.has_instance(self._entered_instance.id)
        except exceptions.TargetUnavailableError:
            return False

    def _addresses(self, password: str) -> list[model.Address]:
        """Return the candidate addresses of the server, in the order to try them."""
        configured = self._spec.get('address')
        base = model.Address(database.user_of(self._schema), password, self._schema)
        found = []
        for text in [configured] if configured else self._entered_instance.addresses:
            host, _, port = text.partition(':') if text.count(':') == 1 else (text, '', '')
            found.append(dataclasses.replace(base, host=host, port=int(port or DEFAULT_PORT)))
        return found
