# SPDX-License-Identifier: Apache-2.0
"""The servers and ports of waiting guests, in Nova and Neutron.

A guest is booted as Trove boots the server of an instance, with a management port only. All of it
belongs to the project of ``[service_credentials]``.
"""

import contextlib
import datetime
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import glanceclient.exc
import keystoneauth1.exceptions
import novaclient.exceptions
import oslo_db.exception
from neutronclient.common import exceptions as neutron_exceptions
from trove.common import cfg, glance, template
from trove.common import exception as trove_exceptions
from trove.datastore import models as datastore_models

from trove_ceph import exceptions
from trove_ceph.db import transactions
from trove_ceph.db.guest_record import GuestRecord, PoolKey
from trove_ceph.strategies.guests.dependencies import (
    GuestResource,
    ResourceKind,
    ServerFacts,
    StartSettings,
    guest_name,
)
from trove_ceph.strategies.guests.pool_spec import PoolSpec
from trove_ceph.trove_adapter import compute_hosts, guest_config, guest_keys, nova

CONF = cfg.CONF

#: Metadata of a server, which stay when an instance gets it.
GUEST_KEY = 'trove_ceph_guest_id'
POOL_KEY = 'trove_ceph_guest_pool'
#: A flavor that is created anew has the name of the former one, and another id.
_FLAVOR_VALID = datetime.timedelta(seconds=60)
_SERVICE_ERRORS = (
    novaclient.exceptions.ClientException,
    neutron_exceptions.NeutronClientException,
    glanceclient.exc.ClientException,
    # Without an answer.
    glanceclient.exc.BaseException,
    keystoneauth1.exceptions.ClientException,
    oslo_db.exception.DBError,
)


class GuestServers:
    """The servers and ports of waiting guests; see :class:`.dependencies.GuestServers`.

    :param pools: those of the configuration
    :param nova: a novaclient that acts as the user of ``[service_credentials]``, as do the others
    :param now: returns the time in UTC, without a time zone
    """

    def __init__(
        self,
        pools: Sequence[PoolSpec],
        nova: Any,
        neutron: Any,
        glance_client: Any,
        now: Callable[[], datetime.datetime] = transactions.utcnow,
    ):
        self._now = now
        self._pools = tuple(pools)
        self._nova = nova
        self._neutron = neutron
        self._glance = glance_client
        # A flavor's id by its name or id, with the time at which Nova gave it.
        self._flavors: dict[str, tuple[str, datetime.datetime]] = {}

    # What fits.

    def pool_key(self, spec: PoolSpec) -> PoolKey:
        """Return what a guest of a pool must have now.

        :raises InvalidConfigurationError: the datastore version or the flavor does not exist, or
            the configuration of Trove does not allow warm guests
        :raises ServiceUnavailableError: a service of OpenStack does not answer
        """
        guest_config.check_allowed()
        with _translated(f'pool {spec.name}: finding its image and its flavor'):
            version = _version(spec)
            image_id = glance.get_image_id(self._glance, version.image_id, version.image_tags)
            flavor_id = self._find_flavor(spec)
        return self._key(spec, version, flavor_id, image_id)

    def request_key(
        self, version_id: str, flavor_id: str, image_id: str, availability_zone: str | None
    ) -> PoolKey | None:
        """Return what a guest must have to become the server of a new instance.

        It asks Nova once a minute for each name of a flavor, and otherwise reads only Trove's
        tables.

        :param version_id: id of the datastore version
        :param image_id: as Trove's API has found it
        :param availability_zone: as requested; None or empty: none was
        :returns: None: there is no pool for such instances
        :raises TroveCephError: as :meth:`pool_key`
        """
        zone = availability_zone or None
        candidates = [one for one in self._pools if one.zone == zone]
        if not candidates:
            return None
        guest_config.check_allowed()
        with _translated(f'datastore version {version_id}: finding a pool'):
            version = datastore_models.DatastoreVersion.load_by_uuid(version_id)
            names = {
                (datastore, name)
                for datastore in (version.datastore_name, version.datastore_id)
                for name in (version.name, version.id)
            }
            for spec in candidates:
                if (spec.datastore, spec.version) not in names:
                    continue
                if self._known_flavor(spec) == str(flavor_id):
                    return self._key(spec, version, str(flavor_id), image_id)
        return None

    def start_settings(self, spec: PoolSpec) -> StartSettings:
        """Return with what a new instance of a pool starts MySQL now.

        :raises InvalidConfigurationError: the datastore version or the flavor does not exist
        :raises ServiceUnavailableError: a service of OpenStack does not answer
        """
        with _translated(f'pool {spec.name}: rendering the configuration of MySQL'):
            version = _version(spec)
            flavor = self._nova.flavors.get(self._find_flavor(spec)).to_dict()
            rendered = template.SingleInstanceConfigTemplate(version, flavor, spec.name).render()
        return StartSettings(version.version, rendered)

    def make_keys(self) -> str:
        """Return new random keys for the agent of a guest, encrypted."""
        return guest_keys.encrypt(guest_keys.make())

    # Servers.

    def list_servers(self) -> Mapping[str, Sequence[ServerFacts]]:
        """Return the servers whose names are those of guests, by name."""
        found: dict[str, list[ServerFacts]] = {}
        for server in self._list_named():
            found.setdefault(server.name, []).append(nova.facts(server))
        return found

    def find_server(self, server_id: str) -> ServerFacts | None:
        """Return a server, even one that Nova will delete after a while; None: it is gone."""
        with _translated(f'server {server_id}: reading it'):
            try:
                server = self._nova.servers.get(server_id)
            except novaclient.exceptions.NotFound:
                return None
        return None if server.status == 'DELETED' else nova.facts(server)

    def find_other_hosts(self, guest: GuestRecord, host: str | None) -> Sequence[str]:
        """Return the hosts that work, but one, in the zone of a guest, in an order of its own."""
        with _translated(f'{guest}: listing the hosts'):
            return compute_hosts.find_others(
                self._nova, host, guest.availability_zone, guest.guest_id
            )

    def list_disabled_hosts(self) -> Collection[str]:
        """Return the hosts that an operator has disabled, if another one of their zone works."""
        with _translated('listing the disabled hosts'):
            return compute_hosts.list_disabled(self._nova)

    def create_server(self, spec: PoolSpec, guest: GuestRecord, host: str | None) -> str:
        """Boot the server of a guest with the port of its record; return the server's id.

        :param host: on which Nova must place it, by its filters; None: Nova chooses
        """
        name = guest_name(guest.guest_id)
        placed = {} if host is None else {'host': host}
        with _translated(f'server {name}: booting it'):
            keys = guest_keys.decrypt(guest.encrypted_key)
            server = self._nova.servers.create(
                name,
                guest.image_id,
                guest.flavor_id,
                nics=[{'port-id': guest.port_id}],
                userdata=guest_config.user_data(guest.guest_id, keys, _version(spec)),
                availability_zone=guest.availability_zone,
                key_name=CONF.nova_keypair,
                config_drive=CONF.use_nova_server_config_drive,
                meta={GUEST_KEY: guest.guest_id, POOL_KEY: guest.pool},
                **placed,
            )
        return str(server.id)

    def delete_server(self, server_id: str) -> None:
        """Request the deletion of a server; idempotent.

        :raises InProgressError: Nova does not know yet whether its host works; the ports of the
            instance that it had may be another server's by then, see :meth:`.Nova.check_host`
        """
        server = self.find_server(server_id)
        if server is None:
            return
        client = nova.Nova(self._nova, now=self._now)
        client.check_host(server, None)
        client.request_deletion(server_id)

    # Ports.

    def list_ports(self, guest_id: str) -> Sequence[str]:
        """Return the ids of the ports that have the name of a guest."""
        name = guest_name(guest_id)
        with _translated(f'port {name}: finding it'):
            # A tenant can give a port this name, but not in the management network.
            found = self._neutron.list_ports(name=name, network_id=_network())
        return sorted(port['id'] for port in found['ports'])

    def create_port(self, guest_id: str) -> str:
        """Create the management port of a guest; return its id."""
        name = guest_name(guest_id)
        port = {
            'name': name,
            'description': f'Management port for warm guest {guest_id}',
            'network_id': _network(),
        }
        # Without groups of its own, a port gets the default one of the project.
        if CONF.management_security_groups:
            port['security_groups'] = CONF.management_security_groups
        with _translated(f'port {name}: creating it'):
            return str(self._neutron.create_port(body={'port': port})['port']['id'])

    def delete_ports(self, port_ids: Collection[str]) -> None:
        """Delete ports; idempotent."""
        for port_id in port_ids:
            with (
                _translated(f'port {port_id}: deleting it'),
                contextlib.suppress(neutron_exceptions.NotFound),
            ):
                self._neutron.delete_port(port_id)

    # Both.

    def list_resources(self) -> Sequence[GuestResource]:
        """Return the servers and the ports that have the name of a guest."""
        found = [
            GuestResource(ResourceKind.SERVER, one.id, one.name, _time(one.created))
            for one in self._list_named()
            # A tenant can give an instance such a name, and Trove gives it to the server.
            if one.name == guest_name(getattr(one, 'metadata', {}).get(GUEST_KEY, ''))
        ]
        if not CONF.management_networks:
            return found
        with _translated('listing the ports of guests'):
            # A tenant can give a port such a name, but not in the management network.
            ports = self._neutron.list_ports(network_id=_network())['ports']
        return found + [
            GuestResource(ResourceKind.PORT, one['id'], one['name'], _time(one['created_at']))
            for one in ports
            if one['name'].startswith(guest_name(''))
        ]

    # Internals.

    def _list_named(self) -> Sequence[Any]:
        """Return the servers of novaclient whose names are those of guests."""
        with _translated('listing the servers of guests'):
            # Nova takes the name as a regular expression.
            found = self._nova.servers.list(search_opts={'name': f'^{guest_name("")}'}, limit=-1)
        # Nova shows no name of a server in a cell that does not answer.
        return [one for one in found if one.status != 'DELETED' and hasattr(one, 'name')]

    def _key(self, spec: PoolSpec, version: Any, flavor_id: str, image_id: str) -> PoolKey:
        digest = guest_config.digest(
            version,
            image=image_id,
            networks=list(CONF.management_networks),
            security_groups=list(CONF.management_security_groups),
            key_name=CONF.nova_keypair,
            config_drive=CONF.use_nova_server_config_drive,
        )
        return PoolKey(flavor_id, image_id, digest, spec.zone, spec.name)

    def _known_flavor(self, spec: PoolSpec) -> str | None:
        now = self._now()
        flavor_id, found_at = self._flavors.get(spec.flavor, (None, now))
        if flavor_id is None or now - found_at > _FLAVOR_VALID:
            try:
                flavor_id = self._find_flavor(spec)
            except exceptions.InvalidConfigurationError:
                # The keeper of the pool reports it.
                return None
            self._flavors[spec.flavor] = flavor_id, now
        return flavor_id

    def _find_flavor(self, spec: PoolSpec) -> str:
        with contextlib.suppress(novaclient.exceptions.NotFound):
            return str(self._nova.flavors.get(spec.flavor).id)
        for flavor in self._nova.flavors.list(is_public=None):
            if flavor.name == spec.flavor:
                return str(flavor.id)
        raise exceptions.InvalidConfigurationError(
            f'pool {spec.name}: Nova has no flavor with the name or id {spec.flavor}'
        )


def _time(text: str) -> datetime.datetime:
    """Return the time in an answer of Nova or Neutron."""
    return datetime.datetime.fromisoformat(text)


def _version(spec: PoolSpec) -> Any:
    _datastore, version = datastore_models.get_datastore_version(spec.datastore, spec.version)
    return version


def _network() -> str:
    return str(CONF.management_networks[-1])


@contextlib.contextmanager
def _translated(action: str) -> Iterator[None]:
    """Translate errors of Trove and of the clients.

    :param action: the object and what is done with it
    """
    try:
        yield
    except trove_exceptions.TroveError as error:
        raise exceptions.InvalidConfigurationError(f'{action} failed: {error}') from error
    except _SERVICE_ERRORS as error:
        raise exceptions.ServiceUnavailableError(f'{action} failed: {error}') from error
