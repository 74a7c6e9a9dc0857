# SPDX-License-Identifier: Apache-2.0
"""Target: a Trove instance that the plan creates, and removes at its end.

An instance of the same name is reused if it has the flavor, the volume and the configuration group
of the plan; otherwise it is left by another plan or a killed one, and is replaced. Only names that
begin with ``bench-`` are accepted, so a plan cannot remove a tenant's instance.
"""

from collections.abc import Callable, Mapping
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph_bench import model
from trove_ceph_bench.targets import cloud, instance, specification

LOG = logging.getLogger(__name__)

#: A fleet of virtual machines may take its time, also without hardware virtualisation.
CREATE_TIMEOUT_SEC = 3600

#: Returns a client of Trove, and the operations on it that wait until they end.
OpenTrove = Callable[[], tuple[Any, Any]]


def from_spec(
    name: str, spec: Mapping[str, Any], settings: specification.Settings
) -> 'CreatedTarget':
    """Return the target of a valid specification."""
    inner = {key: spec[key] for key in ('image', 'ceph') if key in spec}
    inner['instance'] = _instance_name(spec)
    return CreatedTarget(name, spec, instance.from_spec(name, inner, settings), _open)


def _instance_name(spec: Mapping[str, Any]) -> str:
    return f'{spec["create"]["name"]}-{spec.get("number", 1)}'


def _open() -> tuple[Any, Any]:
    # It imports the package of targets itself.
    from trove_ceph_bench import trove_operations

    _, trove = cloud.clients()
    return trove, trove_operations.Operations(trove, lambda phase: None, CREATE_TIMEOUT_SEC)


class CreatedTarget:
    """An instance that exists while this target is entered.

    :param inner: the target that uses the instance once it exists
    """

    def __init__(
        self, name: str, spec: Mapping[str, Any], inner: model.Target, open_trove: OpenTrove
    ):
        self.name = name
        self._spec = spec['create']
        self._instance = _instance_name(spec)
        self._inner = inner
        self._open_trove = open_trove
        self._trove: Any = None
        self._operations: Any = None

    def __enter__(self) -> 'CreatedTarget':
        self._trove, self._operations = self._open_trove()
        try:
            with cloud.translated(f'cannot create {self}'):
                self._ensure_instance()
            self._inner.__enter__()
        except BaseException as error:
            self._ensure_no_instance(error)
            if isinstance(error, exceptions.LoadFailedError):
                raise exceptions.TargetUnavailableError(str(error)) from error
            raise
        return self

    def __exit__(self, *exception: Any) -> None:
        """Remove the instance, also if its schema cannot be removed.

        :raises TargetUnavailableError: it cannot be removed, and no other error is being handled
        """
        failure = exception[1] if exception else None
        try:
            self._inner.__exit__(*exception)
        except BaseException as error:
            failure = failure or error
            raise
        finally:
            self._ensure_no_instance(failure)

    def __str__(self) -> str:
        return f'instance {self._instance}'

    @property
    def address(self) -> model.Address:
        return self._inner.address

    @property
    def image(self) -> model.Image | None:
        return self._inner.image

    def disclose(self) -> dict[str, Any]:
        return self._inner.disclose() | {'kind': 'create', 'given': dict(self._spec)}

    def cpu_sec(self) -> float | None:
        return self._inner.cpu_sec()

    def restart(self) -> bool:
        return self._inner.restart()

    def _ensure_instance(self) -> None:
        flavor = self._flavor()
        configuration_id = self._configuration_id()
        for found in self._found():
            if self._is_usable(found, flavor, configuration_id):
                return
            LOG.warning('Removing %s, left by an earlier run', self)
            self._operations.delete_instance(found.id)
        volume = {'size': self._spec['volume_gib'], 'type': self._spec.get('volume_type')}
        self._operations.create(
            self._instance,
            self._spec['like'],
            flavor.id,
            volume,
            self._spec.get('zone'),
            configuration_id,
        )

    def _flavor(self) -> Any:
        given = self._spec['flavor']
        if 'name' in given:
            return cloud.find_one(self._trove.flavors, given['name'])
        return cloud.find_flavor(self._trove.flavors, given['ram_mib'], given['vcpus'])

    def _configuration_id(self) -> str | None:
        # Trove takes no name, and answers with an error of its own to an unknown id.
        if 'configuration' not in self._spec:
            return None
        return cloud.find_one(self._trove.configurations, self._spec['configuration']).id

    def _found(self) -> list[Any]:
        return [one for one in cloud.list_all(self._trove.instances) if one.name == self._instance]

    def _is_usable(self, found: Any, flavor: Any, configuration_id: str | None) -> bool:
        if (found.status, found.operating_status) != ('ACTIVE', 'HEALTHY'):
            return False
        # A list shows neither the type of the volume nor the group.
        shown = self._trove.instances.get(found.id)
        return (
            str(shown.flavor['id']) == str(flavor.id)
            and shown.volume['size'] == self._spec['volume_gib']
            and self._spec.get('volume_type') in (None, shown.volume.get('type'))
            and configuration_id == getattr(shown, 'configuration', {}).get('id')
        )

    def _ensure_no_instance(self, failure: BaseException | None) -> None:
        """Remove the instance; an error is only logged if there is a failure already."""
        try:
            with cloud.translated(f'cannot remove {self}'):
                self._operations.delete_instance(self._instance)
        except exceptions.TroveCephError as error:
            message = f'{self} still exists; the next run of the plan removes it: {error}'
            if failure is None:
                raise exceptions.TargetUnavailableError(message) from error
            LOG.error('%s', message)
