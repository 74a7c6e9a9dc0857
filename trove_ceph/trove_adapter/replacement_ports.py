# SPDX-License-Identifier: Apache-2.0
"""The ports of an instance whose server is replaced, in Neutron."""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import keystoneauth1.exceptions
from neutronclient.common import exceptions as neutron_exceptions
from oslo_log import log as logging
from trove.common import cfg

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementRecord
from trove_ceph.strategies.replacement.dependencies import Ports

LOG = logging.getLogger(__name__)
CONF = cfg.CONF

#: As Nova leaves a port that it did not create.
_UNBOUND: Mapping[str, Any] = {'device_id': '', 'device_owner': '', 'binding:host_id': None}


class ReplacementPorts:
    """The ports of replacements; see :class:`.replacement.dependencies.Network`.

    :param client: a client of Neutron that acts as the user of ``[service_credentials]``
    """

    def __init__(self, client: Any):
        self._client = client

    def find_ports(self, record: ReplacementRecord) -> Ports:
        """Return the ports of the old server, also if it has lost them, or is gone."""
        with _translated(f'{record}: listing the ports of server {record.old_server_id}'):
            found = self._client.list_ports(device_id=record.old_server_id)['ports']
            if all(map(_is_management, found)):
                # Nova has unbound those of the instance, as it does when it deletes a server.
                found += self._list_unbound(record)
        # Trove attaches them in the order of their creation.
        found.sort(key=lambda port: (port.get('created_at') or '', port['id']))
        management = [port['id'] for port in found if _is_management(port)]
        return Ports(
            instance=tuple(port['id'] for port in found if port['id'] not in management),
            management=tuple(management),
        )

    def cut_off(self, port_ids: Collection[str]) -> None:
        """Set ports administratively down; do nothing for those that do not exist."""
        for port_id in port_ids:
            with (
                _translated(f'port {port_id}: setting it down'),
                contextlib.suppress(neutron_exceptions.NotFound),
            ):
                self._client.update_port(port_id, {'port': {'admin_state_up': False}})

    def free(self, port_ids: Collection[str], server_ids: Collection[str]) -> None:
        """Unbind ports from servers that are deleted, so that another one can have them.

        Do nothing for those that do not exist, or that another server has by now.

        :param server_ids: the deleted servers
        """
        for port_id in port_ids:
            with (
                _translated(f'port {port_id}: unbinding it'),
                contextlib.suppress(neutron_exceptions.NotFound),
            ):
                port = self._client.show_port(port_id)['port']
                device_id = port.get('device_id') or ''
                if device_id and device_id not in server_ids:
                    LOG.warning('Port %s is not unbound: server %s has it', port_id, device_id)
                elif device_id or port.get('binding:host_id'):
                    # Neutron refuses it if the port was changed since, as by a worker that has
                    # bound it to the next server.
                    self._client.update_port(
                        port_id, {'port': dict(_UNBOUND)}, port.get('revision_number')
                    )

    def find_gone(self, port_ids: Collection[str]) -> Sequence[str]:
        """Return those of some ports that do not exist any more."""
        found = {port['id'] for port in self._show(port_ids)}
        return [port_id for port_id in port_ids if port_id not in found]

    def create_management_port(self, record: ReplacementRecord) -> str:
        """Return the management port of the server that is booted for a replacement; idempotent.

        The port of the old server, which is deleted, is deleted first if no other one is to be had.

        :raises NoPortError: the network or the quota has no other one
        """
        for port_id in self.find_created(record):
            return port_id
        port: dict[str, Any] = management_port(record.instance_id) | {
            'description': _description(record),
            'network_id': str(CONF.management_networks[-1]),
        }
        with _translated(f'{record}: creating its management port'):
            groups = self._management_groups(port['name'], record.port_ids)
            # Without groups of its own, a port gets the default one of the project.
            if groups:
                port['security_groups'] = groups
            try:
                return self._create(port)
            except exceptions.NoPortError:
                self.delete(record.old_management_port_ids)
                return self._create(port)

    def _create(self, port: Mapping[str, Any]) -> str:
        try:
            return str(self._client.create_port(body={'port': port})['port']['id'])
        except (
            neutron_exceptions.IpAddressGenerationFailureClient,
            neutron_exceptions.OverQuotaClient,
        ) as error:
            raise exceptions.NoPortError(
                f'port {port["name"]} in network {port["network_id"]}: cannot be created: {error}'
            ) from error

    def find_created(self, record: ReplacementRecord) -> Sequence[str]:
        """Return the ports that :meth:`create_management_port` has created for a replacement."""
        with _translated(f'{record}: finding its management port'):
            found = self._list_management(management_port(record.instance_id)['name'])
        return sorted(port['id'] for port in found if port['description'] == _description(record))

    def take_guest_port(
        self, port_id: str, instance_id: str, instance_port_ids: Collection[str]
    ) -> None:
        """Make the management port of a warm guest that of an instance, with its security groups.

        :param instance_port_ids: the other ports of the instance
        :raises ServiceUnavailableError: Neutron refused, or does not answer
        """
        changes = management_port(instance_id)
        with _translated(f'port {port_id}: renaming it for instance {instance_id}'):
            groups = self._management_groups(changes['name'], instance_port_ids)
            if groups:
                changes['security_groups'] = groups
            self._client.update_port(port_id, {'port': changes})

    def delete(self, port_ids: Collection[str]) -> None:
        """Delete ports; idempotent."""
        for port_id in port_ids:
            with (
                _translated(f'port {port_id}: deleting it'),
                contextlib.suppress(neutron_exceptions.NotFound),
            ):
                self._client.delete_port(port_id)

    def _management_groups(self, name: str, port_ids: Collection[str]) -> list[str]:
        """Return the security groups of the management ports of an instance.

        :param name: of its ports
        :param port_ids: its other ports, to which Trove gives the same groups; they tell if it has
            no management port now
        """
        if CONF.management_security_groups:
            return list(CONF.management_security_groups)
        found: Sequence[Mapping[str, Any]] = self._list_management(name)
        found = found or list(self._show(port_ids))
        return sorted({group for port in found for group in port['security_groups']})

    def _show(self, port_ids: Collection[str]) -> Iterator[Mapping[str, Any]]:
        """Yield those of some ports that exist."""
        for port_id in port_ids:
            with (
                _translated(f'port {port_id}: looking for it'),
                contextlib.suppress(neutron_exceptions.NotFound),
            ):
                yield self._client.show_port(port_id)['port']

    def _list_unbound(self, record: ReplacementRecord) -> list[dict[str, Any]]:
        """Return the ports that Trove has created for an instance and that no server has."""
        found = self._client.list_ports(name=management_port(record.instance_id)['name'])['ports']
        # Other tenants can give a port this name, but not in the management network.
        projects = {port['project_id'] for port in found if _is_management(port)}
        projects.add(record.project_id)
        return [port for port in found if not port['device_id'] and port['project_id'] in projects]

    def _list_management(self, name: str) -> list[dict[str, Any]]:
        if not CONF.management_networks:
            return []
        # A tenant can give a port this name, but not in the management network.
        found = self._client.list_ports(name=name, network_id=str(CONF.management_networks[-1]))
        ports: list[dict[str, Any]] = found['ports']
        return ports


def _is_management(port: Mapping[str, Any]) -> bool:
    return port['network_id'] in CONF.management_networks


def management_port(instance_id: str) -> dict[str, Any]:
    """Return how Trove describes the management port of an instance.

    It finds the ports of an instance by this name when it deletes the instance.
    """
    return {
        'name': f'trove-{instance_id}',
        'description': f'Management port for trove instance {instance_id}',
    }


def _description(record: ReplacementRecord) -> str:
    """Return the description by which a later attempt finds a port."""
    instance, replacement = record.instance_id, record.replacement_id
    return f'Management port for trove instance {instance}, replacement {replacement}'


@contextlib.contextmanager
def _translated(action: str) -> Iterator[None]:
    """Raise the errors of Neutron as ServiceUnavailableError.

    :param action: the object and what is done with it
    """
    try:
        yield
    except (
        neutron_exceptions.NeutronClientException,
        keystoneauth1.exceptions.ClientException,
    ) as error:
        raise exceptions.ServiceUnavailableError(f'{action} failed: {error}') from error
