# SPDX-License-Identifier: Apache-2.0
"""The servers of an instance whose server is replaced, in Nova.

A server is booted as Trove boots that of an instance, but with a volume that has data, and that
outlives the server.
"""

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import glanceclient.exc
import keystoneauth1.exceptions
import novaclient.exceptions
import oslo_db.exception
from neutronclient.common import exceptions as neutron_exceptions
from oslo_log import log as logging
from oslo_utils import versionutils
from trove.common import cfg, glance
from trove.common import exception as trove_exceptions
from trove.datastore import models as datastore_models

from trove_ceph import exceptions
from trove_ceph.db import transactions
from trove_ceph.db.replacement_record import ReplacementRecord
from trove_ceph.guestagent import waiting_messages
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.strategies.replacement.dependencies import ServerNeeds
from trove_ceph.trove_adapter import (
    compute_hosts,
    nova,
    replaced_instance,
    server_description,
    server_groups,
)
from trove_ceph.trove_compat import guest_files

LOG = logging.getLogger(__name__)
CONF = cfg.CONF

#: Of 2024.2: the first version that shows in which zone a server was requested.
ZONE_API_VERSION = '2.96'
#: Metadata of a server that was booted for a replacement.
REPLACEMENT_KEY = 'trove_ceph_replacement_id'
#: The metadata with the flavor that it was requested with: Nova shows the name only, which an
#: operator can give to another flavor.
FLAVOR_KEY = 'trove_ceph_flavor_id'
#: Property of a guest image: the version of :mod:`.waiting_messages` that its agent has.
AGENT_PROPERTY = 'trove_ceph_agent'
#: The zone of Nova's hosts that are in none, unless its configuration names another.
_NO_ZONE = 'nova'
_NO_IMAGE = (trove_exceptions.ImageNotFound, trove_exceptions.ImageNotFoundByTags)


class ReplacementServers:
    """The servers of replacements; see :class:`.replacement.dependencies.Servers`.

    :param client: a novaclient of nova.API_VERSION, which acts as the user of
        ``[service_credentials]``, as do the others
    :param zone_client: a novaclient of ZONE_API_VERSION
    :param now: returns the time in UTC, without a time zone
    """

    def __init__(
        self,
        client: Any,
        zone_client: Any,
        glance_client: Any,
        now: Callable[[], datetime.datetime] = transactions.utcnow,
    ):
        self._client = client
        self._zone_client = zone_client
        self._glance = glance_client
        self._nova = nova.Nova(client, now=now)
        self._groups = server_groups.ServerGroups(client)
        self.find = self._nova.find
        self.keep_volume = self._nova.keep_volume

    def find_needs(self, record: ReplacementRecord) -> ServerNeeds:
        """Return what the new server needs.

        :raises ReplacementRefusedError: the flavor or the guest image does not exist, or the image
            says that its agent is of an earlier release
        """
        if CONF.volume_rootdisk_support:
            raise exceptions.ReplacementRefusedError(
                f'instance {record.instance_id}: [DEFAULT] volume_rootdisk_support of '
                'trove-taskmanager is on, expected off: a server that boots from a volume is not '
                'replaced; evacuate it in Nova'
            )
        if not CONF.management_networks:
            raise exceptions.ReplacementRefusedError(
                f'instance {record.instance_id}: [DEFAULT] management_networks of '
                'trove-taskmanager is empty; the agent of a server that replaces another one needs '
                'such a network'
            )
        self.check_flavor(record)
        with translated(f'{record}: finding its zone'):
            zone = self._find_zone(record)
        return ServerNeeds(zone, self.find_image(record))

    def check_flavor(self, record: ReplacementRecord) -> None:
        """Return if Nova has the flavor.

        :raises ReplacementRefusedError: it does not exist
        """
        try:
            with translated(f'{record}: finding its flavor'):
                nova.find_flavor(self._client, str(record.flavor_id))
        except exceptions.OperatorNeededError as error:
            raise exceptions.ReplacementRefusedError(
                f'instance {record.instance_id}: its {error}'
            ) from error

    def find_image(self, record: ReplacementRecord) -> str:
        """Return the guest image of the datastore version, as Glance has it now.

        :raises ReplacementRefusedError: it does not exist, or says that its agent is of an earlier
            release
        """
        with translated(f'{record}: finding its guest image'):
            image_id = self._find_image(record)
            self._check_agent(record, image_id)
            return image_id

    def is_in_group(self, record: ReplacementRecord) -> bool:
        """Return whether the instance is in a server group, which only a booted server can join."""
        with translated(f'{record}: finding its server group'):
            return self._groups.find(record) is not None

    def request_deletion(self, server_id: str, since: datetime.datetime | None) -> None:
        """Request the deletion of a server; idempotent.

        :param since: see :meth:`.Nova.check_host`, without which nothing is requested
        :raises InProgressError: Nova does not know that yet
        """
        server = self.find(server_id)
        if server is not None:
            self._nova.check_host(server, since)
            self._nova.request_deletion(server_id)

    def find_booted(self, record: ReplacementRecord) -> Sequence[ServerFacts]:
        """Return the servers that :meth:`boot` has created for a replacement."""
        with translated(f'{record}: listing the servers of its instance'):
            found = self._client.servers.list(
                search_opts={'tags': f'trove_instance_id_{record.instance_id}'}, limit=-1
            )
        return [
            # Those of an earlier release have no mark of the flavor.
            dataclasses.replace(nova.facts(server), flavor_id=server.metadata.get(FLAVOR_KEY))
            for server in found
            if server.metadata.get(REPLACEMENT_KEY) == record.replacement_id
            and server.status != 'DELETED'
        ]

    def find_other_hosts(self, record: ReplacementRecord) -> Sequence[str]:
        """Return the hosts that work, but that of the old server, in the zone of the record.

        The order is the same for each call, and another one for other replacements, so that the
        databases of a host that failed do not all go to the same one. The hosts that the server
        group of the instance avoids come last.
        """
        with translated(f'{record}: listing the hosts'):
            found = compute_hosts.find_others(
                self._client, record.old_host, record.availability_zone, record.replacement_id
            )
        group = self._find_group(record)
        avoided = group.hosts if group is not None else ()
        return sorted(found, key=lambda host: host in avoided)

    def is_host_down(self, host: str) -> bool:
        """Return whether Nova counts a host as down, and another one as up."""
        with translated(f'host {host}: showing its state'):
            return compute_hosts.is_down(self._client, host)

    def boot(self, record: ReplacementRecord, host: str | None) -> str:
        """Boot a server with the volume, the ports and the image of the record; return its id.

        It is marked as of this replacement, and does not delete the volume when it is deleted.

        :param host: on which Nova must place it, by its filters; None: Nova chooses, and the server
            is in no server group, so that a group does not prevent a boot for ever
        """
        # Unlike a zone of the form ZONE:HOST, it does not bypass the filters of the scheduler.
        placed = {} if host is None else {'host': host} | self._group_hint(record, host)
        with translated(f'{record}: booting a server'):
            instance = replaced_instance.load(record.instance_id)
            description = server_description.describe(instance)
            ports = [*record.port_ids, record.new_management_port_id or '']
            server = self._client.servers.create(
                description.name,
                record.image_id,
                record.flavor_id,
                nics=[{'port-id': port_id} for port_id in ports],
                block_device_mapping_v2=[
                    {
                        'uuid': record.volume_id,
                        'source_type': 'volume',
                        'destination_type': 'volume',
                        'device_name': CONF.block_device_mapping,
                        'delete_on_termination': False,
                    }
                ],
                userdata=server_description.user_data(
                    instance.datastore_version.manager, guest_files.files(instance, ports)
                ),
                availability_zone=record.availability_zone,
                key_name=CONF.nova_keypair,
                config_drive=CONF.use_nova_server_config_drive,
                meta=dict(description.metadata)
                | {REPLACEMENT_KEY: record.replacement_id, FLAVOR_KEY: str(record.flavor_id)},
                tags=list(description.tags),
                **placed,
            )
        return str(server.id)

    def _group_hint(self, record: ReplacementRecord, host: str) -> dict[str, Any]:
        """Return the option that puts a server into the group of its instance, if it may be there.

        Nova refuses a server on the host of another member of an anti-affinity group, and one of an
        affinity group on any other host, where the failover must go.
        """
        group = self._find_group(record)
        if group is None or host in group.hosts:
            return {}
        return {'scheduler_hints': {'group': group.group_id}}

    def _find_group(self, record: ReplacementRecord) -> server_groups.Group | None:
        """Return the group that keeps the server apart from others; None: none, or unknown.

        The server is needed more than its place in the group.
        """
        try:
            with translated(f'{record}: finding its server group'):
                group = self._groups.find(record)
        except exceptions.ServiceUnavailableError as error:
            LOG.warning('%s; the new server may be on a host that its group avoids', error)
            return None
        return group if group is not None and group.keeps_apart else None

    def _find_image(self, record: ReplacementRecord) -> str:
        version = datastore_models.DatastoreVersion.load_by_uuid(record.version_id)
        try:
            found = glance.get_image_id(self._glance, version.image_id, version.image_tags)
        except _NO_IMAGE:
            found = None
        if not found:
            raise exceptions.ReplacementRefusedError(
                f'instance {record.instance_id}: there is no guest image of its datastore version '
                f'{version.name}; an operator can register one'
            )
        return str(found)

    def _check_agent(self, record: ReplacementRecord, image_id: str) -> None:
        """Check that the agent of an image can take over a database, as far as the image says."""
        found = self._glance.images.get(image_id).get(AGENT_PROPERTY)
        if found is None:
            LOG.warning(
                '%s: guest image %s has no property %s; if its agent is too old, MySQL will not '
                'start on a server that Nova boots from it',
                *(record, image_id, AGENT_PROPERTY),
            )
        elif not _is_as_new(str(found)):
            raise exceptions.ReplacementRefusedError(
                f'instance {record.instance_id}: its guest image {image_id} has '
                f'{AGENT_PROPERTY}={found}, expected {waiting_messages.VERSION} or a later minor '
                'version; an operator can register a newer image'
            )

    def _find_zone(self, record: ReplacementRecord) -> str | None:
        """Return the zone in which the old server was requested; None: in none, or it is gone."""
        try:
            server = _find_even_deleted(self._zone_client, record.old_server_id)
            return self._usable_zone(getattr(server, 'pinned_availability_zone', None))
        except novaclient.exceptions.NotAcceptable:
            # An older Nova shows the zone of the host only.
            server = _find_even_deleted(self._client, record.old_server_id)
        zone = getattr(server, 'OS-EXT-AZ:availability_zone', None)
        return None if zone in (None, '', _NO_ZONE) else str(zone)

    def _usable_zone(self, requested: str | None) -> str | None:
        """Return the zone in which the new server is requested.

        An operator may have requested a host, as ZONE:HOST, where the new server is not to be. In a
        cloud without zones, ``nova`` is the zone of such a request, and means no zone.
        """
        zone = (requested or '').partition(':')[0]
        if zone == _NO_ZONE:
            services = compute_hosts.list_services(self._client)
            if all(one.zone == _NO_ZONE for one in services):
                return None
        return zone or None


def _find_even_deleted(client: Any, server_id: str | None) -> Any:
    """Return a server, even a deleted one whose row Nova still has; None: it has none."""
    try:
        return client.servers.get(server_id)
    except novaclient.exceptions.NotFound:
        found = client.servers.list(
            search_opts={'deleted': True, 'uuid': server_id, 'all_tenants': 1}
        )
    # A Nova for which the user is no administrator ignores both filters.
    return next((one for one in found if one.id == server_id), None)


def _is_as_new(version: str) -> bool:
    """Return whether an agent of a version knows all requests of a replacement."""
    try:
        return bool(versionutils.is_compatible(waiting_messages.VERSION, version))
    except ValueError:
        return False


@contextlib.contextmanager
def translated(action: str) -> Iterator[None]:
    """Raise the errors of Trove and of the clients as ServiceUnavailableError.

    :param action: the replacement and what is done for it
    """
    try:
        yield
    except (
        trove_exceptions.TroveError,
        novaclient.exceptions.ClientException,
        neutron_exceptions.NeutronClientException,
        glanceclient.exc.ClientException,
        # Without an answer.
        glanceclient.exc.BaseException,
        keystoneauth1.exceptions.ClientException,
        oslo_db.exception.DBError,
    ) as error:
        raise exceptions.ServiceUnavailableError(f'{action} failed: {error}') from error
