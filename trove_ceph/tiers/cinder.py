# SPDX-License-Identifier: Apache-2.0
"""The tiers' adapter to Cinder, as an administrator: volume types, QoS specs and volumes."""

import collections
from collections.abc import Iterable
from typing import Any

from trove_ceph import exceptions
from trove_ceph.cinder import connection
from trove_ceph.tiers import resources

_BACKEND = 'volume_backend_name'
_translated = connection.translated


class Cinder:
    """Cinder of one region.

    Every method raises ServiceUnavailableError when Cinder refuses or does not answer.

    :param client: a client of cinderclient with connection.API_VERSION or later
    """

    def __init__(self, client: Any):
        self._client = client

    @classmethod
    def of_environment(cls) -> 'Cinder':
        """Return an adapter to the cloud of the OS_* variables or of clouds.yaml."""
        return cls(connection.connect_like(connection.find_in_environment()))

    def observe(self, known: resources.CinderState | None = None) -> resources.CinderState:
        """Return the present state of all projects.

        :param known: an earlier observation, whose volumes and back ends are reused
        """
        listed = self._types()
        qos = self._qos()
        qos_names = {specs.id: specs.name for specs in qos}
        types = [_volume_type(each, qos_names) for each in listed]
        pools = None if known else self._pools()
        return resources.CinderState(
            types={each.name: each for each in types},
            qos={
                specs.name: resources.QosSpecs(specs.name, specs.consumer, specs.specs)
                for specs in qos
            },
            volumes=known.volumes if known else self._sizes(),
            type_names={each.id: each.name for each in listed},
            backends=known.backends if known else _names(pools),
            rbd_backends=known.rbd_backends if known else _rbd_backends(pools or ()),
        )

    def volumes(self) -> list[resources.VolumeOfTier]:
        """Return the volumes of all projects."""
        with _translated('listing the volumes of all projects'):
            found = self._client.volumes.list(search_opts={'all_tenants': 1})
        return [_volume(each) for each in found]

    def find_volume(self, volume_id: str) -> resources.VolumeOfTier | None:
        """Return a volume of any project, None if it is gone."""
        with _translated(f'showing volume {volume_id}'):
            try:
                return _volume(self._client.volumes.get(volume_id))
            except connection.NOT_FOUND:
                return None

    def _sizes(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, list[int]] = collections.defaultdict(list)
        for volume in self.volumes():
            if volume.volume_type:
                found[volume.volume_type].append(volume.size_gib)
        return {name: tuple(sizes) for name, sizes in found.items()}

    def _pools(self) -> list[dict[str, Any]] | None:
        try:
            with _translated('listing the back ends'):
                pools = self._client.pools.list(detailed=True)
        except exceptions.ServiceUnavailableError:
            # Changes of volume types do not need the scheduler.
            return None
        return [pool.to_dict()['capabilities'] for pool in pools]

    def create_qos(self, specs: resources.QosSpecs) -> None:
        """Create QoS specs; fail if the name is in use."""
        with _translated(f'creating QoS specs {specs.name}'):
            self._client.qos_specs.create(specs.name, {'consumer': specs.consumer, **specs.specs})

    def set_qos(self, name: str, key: str, value: str | None) -> None:
        """Set one key of QoS specs, or ``consumer``; None removes the key."""
        found = self._qos_id(name)
        with _translated(f'setting {key} of QoS specs {name}'):
            if value is None:
                self._client.qos_specs.unset_keys(found, [key])
            else:
                self._client.qos_specs.set_keys(found, {key: value})

    def remove_qos(self, name: str) -> None:
        """Delete QoS specs; fail if a volume type uses them."""
        found = self._qos_id(name)
        with _translated(f'deleting QoS specs {name}'):
            self._client.qos_specs.delete(found)

    def create_type(self, volume_type: resources.VolumeType) -> None:
        """Create a volume type without QoS specs; fail if the name is in use.

        The type stays private until it has its back end, so that no project can create a volume
        with it on any other back end. After an interruption, :meth:`set_type` completes it.
        """
        with _translated(f'creating volume type {volume_type.name}'):
            created = self._client.volume_types.create(
                volume_type.name, volume_type.description, is_public=False
            )
            created.set_keys({_BACKEND: volume_type.backend})
            if volume_type.public:
                self._client.volume_types.update(created.id, is_public=True)

    def set_type(self, name: str, attribute: str, value: Any) -> None:
        """Set ``backend``, ``description``, ``public`` or ``qos`` of a volume type."""
        found = self._find_type(name)
        qos_id = self._qos_id(value) if attribute == 'qos' and value else None
        with _translated(f'setting {attribute} of volume type {name}'):
            if attribute == 'backend':
                found.set_keys({_BACKEND: value})
            elif attribute == 'qos':
                self._associate(found, qos_id)
            else:
                key = {'public': 'is_public'}.get(attribute, attribute)
                self._client.volume_types.update(found.id, **{key: value})

    def _associate(self, volume_type: Any, qos_id: str | None) -> None:
        """Replace the QoS specs of a type, which can have one at a time."""
        present = volume_type.to_dict().get('qos_specs_id')
        if present:
            self._client.qos_specs.disassociate(present, volume_type.id)
        if qos_id:
            self._client.qos_specs.associate(qos_id, volume_type.id)

    def _types(self) -> list[Any]:
        with _translated('listing the volume types'):
            return connection.list_volume_types(self._client)

    def _qos(self) -> list[Any]:
        with _translated('listing the QoS specs'):
            return self._client.qos_specs.list()

    def _find_type(self, name: str) -> Any:
        return self._named(self._types(), name, 'volume type')

    def _qos_id(self, name: str) -> str:
        return self._named(self._qos(), name, 'QoS specs').id

    @staticmethod
    def _named(found: list[Any], name: str, kind: str) -> Any:
        for each in found:
            if each.name == name:
                return each
        raise exceptions.ServiceUnavailableError(f'{kind} {name} is gone from Cinder')


def _names(pools: Iterable[dict[str, Any]] | None) -> frozenset[str] | None:
    return None if pools is None else frozenset(pool.get(_BACKEND, '') for pool in pools)


def _rbd_backends(pools: Iterable[dict[str, Any]]) -> tuple[resources.RbdBackend, ...]:
    """Return the back ends whose ``location_info`` has the form of the RBD driver.

    The form is ``cluster:conf:fsid:user:pool``. The driver parses it in the same way to find out
    whether two back ends share a cluster.
    """
    found = []
    for pool in pools:
        parts = str(pool.get('location_info') or '').split(':')
        if pool.get('storage_protocol') == 'ceph' and len(parts) == 5:
            _, _, fsid, user, name = parts
            found.append(resources.RbdBackend(pool.get(_BACKEND, ''), fsid, name, user))
    return tuple(dict.fromkeys(found))


def _volume(found: Any) -> resources.VolumeOfTier:
    facts = found.to_dict()
    # host@backend#pool; the only pool of the RBD driver is named as the back end
    _, _, backend = (facts.get('os-vol-host-attr:host') or '').partition('#')
    return resources.VolumeOfTier(
        id=facts['id'],
        name_id=facts.get('os-vol-mig-status-attr:name_id') or facts['id'],
        backend=backend or None,
        volume_type=facts['volume_type'],
        size_gib=facts['size'],
        status=facts['status'],
    )


def _volume_type(found: Any, qos_names: dict[str, str]) -> resources.VolumeType:
    facts = found.to_dict()
    return resources.VolumeType(
        name=facts['name'],
        backend=(facts.get('extra_specs') or {}).get(_BACKEND),
        description=facts.get('description') or '',
        public=found.is_public,
        qos=qos_names.get(facts.get('qos_specs_id') or ''),
    )
