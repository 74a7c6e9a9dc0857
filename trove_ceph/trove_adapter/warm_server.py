# SPDX-License-Identifier: Apache-2.0
"""Create an instance as Trove does, but on the server of a warm guest if one fits.

If none fits, or binding it fails, Nova boots a server, as for Trove.
"""

import types
from collections.abc import Mapping
from typing import Any, Protocol

from oslo_log import log as logging
from trove.common import cfg
from trove.taskmanager import models

from trove_ceph import exceptions
from trove_ceph.db.guest_record import GuestRecord
from trove_ceph.strategies.guests import bind
from trove_ceph.trove_adapter import guest_config, replacement_ports, server_description

LOG = logging.getLogger(__name__)
CONF = cfg.CONF


class WarmGuests(Protocol):
    """The warm guests of this cloud."""

    def can_fence(self, volume_type: str | None) -> bool:
        """Return whether volumes of a type can be fenced; a binding that fails needs that."""

    def claim(
        self, instance_id: str, version_id: str, flavor_id: str, image_id: str, zone: str | None
    ) -> GuestRecord | None:
        """Claim a waiting guest for an instance; None: none fits.

        :param version_id: of the datastore version
        """

    def bind(self, guest: GuestRecord, request: bind.BindRequest) -> None:
        """Bind a claimed guest.

        :raises NotFencedError: it failed, and the guest may still write to the volume
        :raises TroveCephError: it failed; the volume and the ports are free for another server
        """

    def release(self, guest: GuestRecord) -> None:
        """Have a claimed guest wait as before; it must not be bound, nor have been hot."""

    def retire(self, guest: GuestRecord, reason: str) -> None:
        """Have a claimed guest deleted."""


class WarmServerTasks(models.FreshInstanceTasks):
    """Trove's creation of an instance on the server of a warm guest.

    :ivar guests: the warm guests; None: there are none
    """

    guests: WarmGuests | None = None
    #: Whether the guest that is claimed has the volume of the instance already.
    _is_hot = False
    _claimed_guest: GuestRecord | None = None
    _management_security_groups: list[str] = []

    def create_instance(self, flavor, image_id, **arguments):
        """Create the instance, with the server of a warm guest if one fits."""
        self._claimed_guest = self._claim(flavor, image_id, arguments)
        try:
            super().create_instance(flavor, image_id, **arguments)
        finally:
            # It is claimed here only if the creation failed before the guest was to be bound.
            self._give_up()

    def _claim(
        self, flavor: Mapping[str, Any], image_id: str, arguments: Mapping[str, Any]
    ) -> GuestRecord | None:
        # The scheduler places servers of a group or a cluster.
        needs_own_server = (
            arguments.get('scheduler_hints')
            or arguments.get('cluster_config')
            or not self.volume_support
            or guest_config.why_refused()
        )
        if self.guests is None or needs_own_server:
            return None
        volume_type = arguments.get('volume_type') or CONF.cinder_volume_type
        try:
            if not self.guests.can_fence(volume_type):
                return None
            return self.guests.claim(
                self.id,
                self.datastore_version.id,
                flavor['id'],
                image_id,
                arguments.get('availability_zone'),
            )
        except Exception as error:
            # Whatever it is, an instance can be created without a warm guest.
            LOG.warning('Instance %s: no warm guest could be claimed: %s', self.id, error)
            return None

    def _create_port(self, network_info, security_groups, is_mgmt=False, is_public=False):
        if is_mgmt:
            self._management_security_groups = security_groups
        if not is_mgmt or self._claimed_guest is None:
            return super()._create_port(
                network_info, security_groups, is_mgmt=is_mgmt, is_public=is_public
            )
        # It is that of the guest until the binding.
        return self._claimed_guest.port_id

    def _create_server(
        self,
        flavor_id,
        image_id,
        datastore_manager,
        block_device_mapping_v2,
        availability_zone,
        nics,
        files=None,
        scheduler_hints=None,
    ):
        # From here on it may know what it becomes, and is not released, whatever happens.
        guest, self._claimed_guest = self._claimed_guest, None
        if guest is not None:
            try:
                self._bind(guest, block_device_mapping_v2, nics, files)
            except exceptions.NotFencedError:
                # Another server must not write to the volume beside the guest.
                raise
            except Exception as error:
                LOG.warning(
                    'Instance %s: warm guest %s could not be bound; Nova boots a server: %s',
                    *(self.id, guest.guest_id, error),
                )
                block_device_mapping_v2 = self._volumes_of_other_server(block_device_mapping_v2)
                nics = self._replace_management_port(nics)
            else:
                # Trove reads only the id, and a request to Nova might fail.
                return types.SimpleNamespace(id=guest.server_id)
        return super()._create_server(
            flavor_id,
            image_id,
            datastore_manager,
            block_device_mapping_v2,
            availability_zone,
            nics,
            files or {},
            scheduler_hints,
        )

    def _bind(
        self,
        guest: GuestRecord,
        volumes: list[Mapping[str, Any]],
        nics: list[Mapping[str, Any]],
        files: Mapping[str, str] | None,
    ) -> None:
        self._take_port(guest)
        description = server_description.describe(self)
        port_ids = [nic['port-id'] for nic in nics]
        (volume,) = volumes
        request = bind.BindRequest(
            instance_id=self.id,
            name=description.name,
            volume_id=volume['uuid'],
            port_ids=tuple(port_id for port_id in port_ids if port_id != guest.port_id),
            files=files or {},
            metadata=description.metadata,
            tags=description.tags,
            is_hot=self._is_hot,
        )
        assert self.guests is not None
        self.guests.bind(guest, request)

    def _take_port(self, guest: GuestRecord) -> None:
        """Make the management port of a guest that of the instance."""
        groups = {'security_groups': self._management_security_groups}
        changes = replacement_ports.management_port(self.id) | groups
        try:
            self.neutron_client.update_port(guest.port_id, {'port': changes})
        except Exception:
            assert self.guests is not None
            self.guests.retire(guest, 'its port could not be changed')
            raise

    def _volumes_of_other_server(self, volumes: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the volumes of the server that Nova boots, after a guest could not be bound."""
        return volumes

    def _replace_management_port(self, nics: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the network interfaces with a new management port, which is always the last."""
        network = {'network_id': CONF.management_networks[-1]}
        port_id = self._create_port(network, self._management_security_groups, is_mgmt=True)
        return [*nics[:-1], {'port-id': port_id}]

    def _give_up(self) -> None:
        guest, self._claimed_guest = self._claimed_guest, None
        if self.guests is None or guest is None:
            return
        try:
            if self._is_hot:
                # It has the volume of the instance.
                self.guests.retire(guest, 'the creation of its instance failed')
            else:
                # So that requests which fail, such as for an address in use, use up no guests.
                self.guests.release(guest)
        except Exception as error:
            LOG.warning(
                'Warm guest %s: it is retired later, when its claim is too old: %s',
                *(guest.guest_id, error),
            )
