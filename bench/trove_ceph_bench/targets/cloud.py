# SPDX-License-Identifier: Apache-2.0
"""Access Trove instances through the cloud's APIs, with the identity of OS_* or clouds.yaml.

Facts that only an administrator may read are None if the cloud refuses them.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keystoneauth1.exceptions
import openstack
import openstack.exceptions
import troveclient.exceptions

from trove_ceph import exceptions
from trove_ceph_bench.targets import database

_NOT_FOUND = (keystoneauth1.exceptions.NotFound, troveclient.exceptions.NotFound)
_ERRORS = (
    keystoneauth1.exceptions.ClientException,
    openstack.exceptions.OpenStackCloudException,
    troveclient.exceptions.ClientException,
)
_REMOVE_TIMEOUT_SEC = 120
_POLL_SEC = 1.0


@dataclasses.dataclass(frozen=True)
class Instance:
    """A Trove instance.

    :param addresses: addresses of the server, public ones first
    :param server_id: id of the Nova server; None without administrator rights
    :param volume_id: id of the Cinder volume; None without administrator rights
    """

    id: str
    name: str
    status: str
    datastore: str
    datastore_version: str
    flavor_id: str
    volume_gib: int
    addresses: tuple[str, ...]
    server_id: str | None = None
    volume_id: str | None = None


def clients() -> tuple[Any, Any]:
    """Return an SDK connection and a Trove client, from OS_* variables or clouds.yaml.

    :raises TargetUnavailableError: the variables name no cloud, or it cannot be reached
    """
    # Importing it takes more than a second, which must not count for the commands that plans time.
    import troveclient.v1.client

    with translated('cannot connect to the cloud'):
        connection = openstack.connect()
        trove = troveclient.v1.client.Client(
            session=connection.session,
            region_name=connection.config.get_region_name(),
            service_type='database',
            interface=connection.config.get_interface('database'),
        )
    return connection, trove


class Cloud:
    """One identity in one region.

    Every method raises TargetUnavailableError when the cloud refuses or does not answer.

    :param connection: an openstack.connection.Connection
    :param trove: a troveclient.v1.client.Client
    """

    def __init__(
        self,
        connection: Any,
        trove: Any,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._connection = connection
        self._trove = trove
        self._clock = clock
        self._sleep = sleep

    @classmethod
    def from_environment(cls) -> 'Cloud':
        """Connect to the cloud that OS_* variables or clouds.yaml name."""
        return cls(*clients())

    def get_instance(self, name_or_id: str) -> Instance:
        """Return an instance; an administrator finds those of all projects.

        :raises TargetUnavailableError: no instance or several instances have the name
        """
        with translated(f'cannot look up instance {name_or_id}'):
            found = self._find(name_or_id)
        if found is None:
            raise exceptions.TargetUnavailableError(f'there is no instance {name_or_id}')
        return _instance(found)

    def has_instance(self, instance_id: str) -> bool:
        """Return whether the instance still exists."""
        with translated(f'cannot look up instance {instance_id}'):
            try:
                self._trove.instances.get(instance_id)
            except _NOT_FOUND:
                return False
        return True

    def create_schema(self, instance_id: str, schema: str, password: str) -> None:
        """Create an empty database, and a user with access to this database only."""
        with translated(f'cannot create database {schema} in instance {instance_id}'):
            self._trove.databases.create(instance_id, [{'name': schema}])
            user = {'name': database.user_of(schema), 'password': password}
            self._trove.users.create(instance_id, [user | {'databases': [{'name': schema}]}])

    def list_schemas(self, instance_id: str) -> set[str]:
        """Return the databases that the benchmark created, also if only the user is left."""
        with translated(f'cannot list the databases of instance {instance_id}'):
            return self._schemas(instance_id)

    def ensure_no_schema(self, instance_id: str, schema: str) -> None:
        """Remove a database and its user, and wait until they are gone."""
        with translated(f'cannot remove database {schema} from instance {instance_id}'):
            with contextlib.suppress(*_NOT_FOUND):
                self._trove.users.delete(instance_id, database.user_of(schema))
            with contextlib.suppress(*_NOT_FOUND):
                self._trove.databases.delete(instance_id, schema)
            deadline = self._clock() + _REMOVE_TIMEOUT_SEC
            while schema in self._schemas(instance_id):
                if self._clock() > deadline:
                    raise exceptions.TargetUnavailableError(
                        f'database {schema} is still in instance {instance_id} '
                        f'{_REMOVE_TIMEOUT_SEC} s after the request to remove it'
                    )
                self._sleep(_POLL_SEC)

    def describe(self, instance: Instance) -> dict[str, Any]:
        """Return the facts of an instance; an inaccessible fact is None."""
        flavor = self._optional(lambda: self._trove.flavors.get(instance.flavor_id))
        return {
            'id': instance.id,
            'name': instance.name,
            'datastore': instance.datastore,
            'datastore_version': instance.datastore_version,
            'flavor': flavor
            and {'name': flavor.name, 'ram_mib': flavor.ram, 'vcpus': flavor.vcpus},
            'volume_gib': instance.volume_gib,
            'volume': self._optional(lambda: self._describe_volume(instance.volume_id)),
        }

    def image_id(self, instance: Instance) -> str | None:
        """Return the part of the RBD image's name after ``volume-``; None if inaccessible."""
        if instance.volume_id is None:
            return None
        volume = self._optional(
            lambda: self._connection.block_storage.get_volume(instance.volume_id)
        )
        # A migrated volume keeps its id, but its image has the name of the migration target.
        return volume and (volume.migration_id or volume.id)

    def cpu_sec(self, instance: Instance) -> float | None:
        """Return the CPU seconds of the instance's server; None if inaccessible."""
        if instance.server_id is None:
            return None
        found = self._optional(
            lambda: self._connection.compute.get_server_diagnostics(instance.server_id)
        )
        times = [cpu.get('time') for cpu in (found and found.cpu_details) or ()]
        if not times or None in times:
            return None
        return sum(times) / 1e9

    def _find(self, name_or_id: str) -> Any:
        with contextlib.suppress(*_NOT_FOUND):
            return self._trove.instances.get(name_or_id)
        named = [one for one in self._trove.instances.list() if one.name == name_or_id]
        if not named:
            everywhere = self._optional(self._trove.mgmt_instances.list) or ()
            named = [one for one in everywhere if one.name == name_or_id]
        if len(named) > 1:
            ids = ', '.join(one.id for one in named)
            raise exceptions.TargetUnavailableError(
                f'{len(named)} instances are named {name_or_id}: {ids}'
            )
        return self._trove.instances.get(named[0].id) if named else None

    def _schemas(self, instance_id: str) -> set[str]:
        databases = _names(self._trove.databases, instance_id, database.PREFIX)
        users = _names(self._trove.users, instance_id, database.USER_PREFIX)
        return databases | set(map(database.schema_of, users))

    def _describe_volume(self, volume_id: str | None) -> dict[str, Any] | None:
        if volume_id is None:
            return None
        storage = self._connection.block_storage
        volume = storage.get_volume(volume_id)
        kind = storage.find_type(volume.volume_type)
        found = {
            'id': volume.id,
            'type': volume.volume_type,
            'size_gib': volume.size,
            'host': volume.host,
            'extra_specs': dict(kind.extra_specs or {}),
            'qos': None,
        }
        associations = storage.get('/qos-specs').json()['qos_specs']
        for specs in associations:
            linked = storage.get(f'/qos-specs/{specs["id"]}/associations').json()
            if kind.id in [one['id'] for one in linked['qos_associations']]:
                found['qos'] = {'consumer': specs['consumer'], **specs['specs']}
        return found

    def _optional(self, query: Callable[[], Any]) -> Any:
        """Return the result of a query; None if the cloud refuses it."""
        try:
            return query()
        except _ERRORS:
            return None


def find_one(manager: Any, name_or_id: str) -> Any:
    """Return the only instance, backup or flavor of a name or an id, from its manager's list.

    Listing does not call guest agents.

    :raises TargetUnavailableError: there is none, or there are several
    """
    return pick(list_all(manager), name_or_id)


def pick(listed: Sequence[Any], name_or_id: str) -> Any:
    """Return the only one of listed resources that has a name or an id.

    :raises TargetUnavailableError: there is none, or there are several
    """
    found = [one for one in listed if name_or_id in (one.name, one.id)]
    if len(found) == 1:
        return found[0]
    count, remedy = (len(found), '; use an id') if found else ('none', '')
    raise exceptions.TargetUnavailableError(
        f'{name_or_id}: Trove lists {count} of this name{remedy}'
    )


def list_all(manager: Any) -> list[Any]:
    """Return the resources of all pages of a manager's list."""
    page = manager.list()
    found = list(page)
    # Lists of flavors have no pages.
    while marker := getattr(page, 'next', None):
        page = manager.list(marker=marker)
        found += page
    return found


def find_flavor(manager: Any, ram_mib: int, vcpus: int) -> Any:
    """Return the flavor with this memory and number of processors.

    :raises TargetUnavailableError: there is none
    """
    for flavor in list_all(manager):
        if (flavor.ram, flavor.vcpus) == (ram_mib, vcpus):
            return flavor
    raise exceptions.TargetUnavailableError(
        f'no flavor has {ram_mib} MiB and {vcpus} processors; create one, or name another one with '
        "'flavor: {name: …}'"
    )


def _names(manager: Any, instance_id: str, prefix: str) -> set[str]:
    """Return the names with a prefix from all pages of a list."""
    found: set[str] = set()
    marker = None
    while True:
        page = manager.list(instance_id, marker=marker)
        found |= {one.name for one in page if one.name.startswith(prefix)}
        marker = page.next
        if not marker:
            return found


def _instance(found: Any) -> Instance:
    listed = [(one['type'] != 'public', one['address']) for one in getattr(found, 'addresses', [])]
    return Instance(
        id=found.id,
        name=found.name,
        status=found.status,
        datastore=found.datastore['type'],
        datastore_version=found.datastore['version'],
        flavor_id=found.flavor['id'],
        volume_gib=getattr(found, 'volume', {}).get('size', 0),
        addresses=tuple(address for _, address in sorted(listed)),
        server_id=getattr(found, 'server_id', None),
        volume_id=getattr(found, 'volume_id', None),
    )


@contextlib.contextmanager
def translated(failure: str) -> Iterator[None]:
    """Raise TargetUnavailableError, which begins with the failure, for errors of the clients."""
    try:
        yield
    except _ERRORS as error:
        raise exceptions.TargetUnavailableError(f'{failure}: {error}') from error
