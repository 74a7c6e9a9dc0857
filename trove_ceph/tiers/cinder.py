# SPDX-License-Identifier: Apache-2.0
"""The one place where tiers speak to Cinder, as an administrator: types, QoS specs, volumes."""

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

import keystoneauth1.exceptions
import openstack
import openstack.exceptions

from trove_ceph import exceptions
from trove_ceph.tiers import resources

_ERRORS = (
    keystoneauth1.exceptions.ClientException,
    openstack.exceptions.OpenStackCloudException,
)
_MISSING = (keystoneauth1.exceptions.NotFound, openstack.exceptions.NotFoundException)
_BACKEND = 'volume_backend_name'


class Cinder:
    """Cinder of one region.

    Every method raises ServiceUnavailableError when it refuses or does not answer.

    :param storage: a keystoneauth1.adapter.Adapter for block storage, such as the ``block_storage``
        of an openstack.connection.Connection
    """

    def __init__(self, storage: Any):
        self._storage = storage

    @classmethod
    def of_environment(cls) -> 'Cinder':
        """Return the one that OS_* variables or clouds.yaml name."""
        with _translated('the cloud cannot be reached'):
            return cls(openstack.connect().block_storage)

    def observe(self, known: resources.CinderState | None = None) -> resources.CinderState:
        """Return what there is, in all projects.

        :param known: an earlier observation, whose volumes and back ends are still right
        """
        listed = self._types()
        qos = self._list('/qos-specs', 'qos_specs')
        qos_names = {specs['id']: specs['name'] for specs in qos}
        types = [_volume_type(each, qos_names) for each in listed]
        return resources.CinderState(
            types={each.name: each for each in types},
            qos={
                specs['name']: resources.QosSpecs(specs['name'], specs['consumer'], specs['specs'])
                for specs in qos
            },
            volumes=known.volumes if known else self._sizes(),
            type_names={each['id']: each['name'] for each in listed},
            backends=known.backends if known else self._backends(),
        )

    def volumes(self) -> list[resources.VolumeOfTier]:
        """Return the volumes of all projects."""
        return [_volume(each) for each in self._list('/volumes/detail?all_tenants=1', 'volumes')]

    def find_volume(self, volume_id: str) -> resources.VolumeOfTier | None:
        """Return a volume of any project, None if it is gone."""
        response = self._call('get', f'/volumes/{volume_id}', missing_ok=True)
        return _volume(response.json()['volume']) if response else None

    def _sizes(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, list[int]] = collections.defaultdict(list)
        for volume in self.volumes():
            if volume.volume_type:
                found[volume.volume_type].append(volume.size_gib)
        return {name: tuple(sizes) for name, sizes in found.items()}

    def _backends(self) -> frozenset[str] | None:
        try:
            pools = self._list('/scheduler-stats/get_pools?detail=true', 'pools')
        except exceptions.ServiceUnavailableError:
            # Volume types do not need the scheduler, and must not wait for its recovery.
            return None
        return frozenset(pool['capabilities'].get(_BACKEND, '') for pool in pools)

    def create_qos(self, specs: resources.QosSpecs) -> None:
        """Make QoS specs; fails if there are some of this name."""
        body = {'name': specs.name, 'consumer': specs.consumer, **specs.specs}
        self._call('post', '/qos-specs', {'qos_specs': body})

    def set_qos(self, name: str, key: str, value: str | None) -> None:
        """Set one key of QoS specs, ``consumer`` included; None removes it."""
        path = f'/qos-specs/{self._qos_id(name)}'
        if value is None:
            self._call('put', f'{path}/delete_keys', {'keys': [key]})
        else:
            self._call('put', path, {'qos_specs': {key: value}})

    def remove_qos(self, name: str) -> None:
        """Delete QoS specs; fails while a volume type has them."""
        self._call('delete', f'/qos-specs/{self._qos_id(name)}')

    def create_type(self, volume_type: resources.VolumeType) -> None:
        """Make a volume type, without QoS specs; fails if there is one of this name."""
        body = {
            'name': volume_type.name,
            'description': volume_type.description,
            'os-volume-type-access:is_public': volume_type.public,
            'extra_specs': {_BACKEND: volume_type.backend},
        }
        self._call('post', '/types', {'volume_type': body})

    def set_type(self, name: str, attribute: str, value: Any) -> None:
        """Set ``backend``, ``description``, ``public`` or ``qos`` of a volume type."""
        found = self._find_type(name)
        path = f'/types/{found["id"]}'
        if attribute == 'backend':
            self._call('post', f'{path}/extra_specs', {'extra_specs': {_BACKEND: value}})
        elif attribute == 'qos':
            self._associate(found, value)
        else:
            key = {'public': 'is_public'}.get(attribute, attribute)
            self._call('put', path, {'volume_type': {key: value}})

    def _associate(self, volume_type: dict[str, Any], qos: str | None) -> None:
        """Let a type have these QoS specs and no others; it can have one at a time."""
        query = f'vol_type_id={volume_type["id"]}'
        present = volume_type.get('qos_specs_id')
        if present:
            self._call('get', f'/qos-specs/{present}/disassociate?{query}')
        if qos:
            self._call('get', f'/qos-specs/{self._qos_id(qos)}/associate?{query}')

    def _types(self) -> list[dict[str, Any]]:
        # Without this filter the administrator is shown public types only.
        return self._list('/types?is_public=None', 'volume_types')

    def _find_type(self, name: str) -> dict[str, Any]:
        return self._named(self._types(), name, 'volume type')

    def _qos_id(self, name: str) -> str:
        return self._named(self._list('/qos-specs', 'qos_specs'), name, 'QoS specs')['id']

    @staticmethod
    def _named(found: list[dict[str, Any]], name: str, kind: str) -> dict[str, Any]:
        for each in found:
            if each['name'] == name:
                return each
        raise exceptions.ServiceUnavailableError(f'{kind} {name} is gone from Cinder')

    def _list(self, path: str, key: str) -> list[dict[str, Any]]:
        """Return all pages of a list."""
        found: list[dict[str, Any]] = []
        following: str | None = path
        while following:
            page = self._call('get', following).json()
            found += page[key]
            # volumes_links, but volume_type_links beside volume_types
            links = [link for name in page if name.endswith('_links') for link in page[name]]
            following = next((link['href'] for link in links if link['rel'] == 'next'), None)
        return found

    def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        missing_ok: bool = False,
    ) -> Any:
        """Make a request and return the response; None for a thing that is missing and may be."""
        with _translated(f'Cinder refused {method.upper()} {path}'):
            arguments = {} if body is None else {'json': body}
            try:
                response = getattr(self._storage, method)(path, **arguments)
                openstack.exceptions.raise_from_response(response)
            except _MISSING:
                if missing_ok:
                    return None
                raise
            return response


def _volume(found: dict[str, Any]) -> resources.VolumeOfTier:
    # host@back end#pool, where the RBD driver's only pool has the back end's name
    _, _, backend = (found.get('os-vol-host-attr:host') or '').partition('#')
    return resources.VolumeOfTier(
        id=found['id'],
        name_id=found.get('os-vol-mig-status-attr:name_id') or found['id'],
        backend=backend or None,
        volume_type=found['volume_type'],
        size_gib=found['size'],
        status=found['status'],
    )


def _volume_type(found: dict[str, Any], qos_names: dict[str, str]) -> resources.VolumeType:
    return resources.VolumeType(
        name=found['name'],
        backend=(found.get('extra_specs') or {}).get(_BACKEND),
        description=found.get('description') or '',
        public=found['is_public'],
        qos=qos_names.get(found.get('qos_specs_id') or ''),
    )


@contextlib.contextmanager
def _translated(failure: str) -> Iterator[None]:
    try:
        yield
    except _ERRORS as error:
        raise exceptions.ServiceUnavailableError(f'{failure}: {error}') from error
