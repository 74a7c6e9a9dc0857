# SPDX-License-Identifier: Apache-2.0
"""The servers and ports of warm guests, and the records that refer to them and their volumes."""

from collections.abc import Collection, Sequence
from typing import Protocol

from trove_ceph.db import guests
from trove_ceph.db.guest_record import GuestRecord
from trove_ceph.strategies.guests.dependencies import GuestResource, ResourceKind


class Cloud(Protocol):
    """Nova and Neutron."""

    def list_resources(self) -> Sequence[GuestResource]: ...
    def delete_server(self, server_id: str) -> None: ...
    def delete_ports(self, port_ids: Collection[str]) -> None: ...


class Guests:
    """What exists of warm guests, and which of it has a record.

    :param cloud: see :class:`trove_ceph.trove_adapter.guest_servers.GuestServers`
    """

    def __init__(self, cloud: Cloud, store: guests.GuestStore):
        self._cloud = cloud
        self._store = store

    def list_resources(self) -> Sequence[GuestResource]:
        """Return the servers and ports with the name of a guest."""
        return self._cloud.list_resources()

    def list_records(self) -> Sequence[GuestRecord]:
        """Return the records of guests."""
        return self._store.list()

    def delete(self, resource: GuestResource) -> None:
        """Delete a server or a port; idempotent."""
        if resource.kind is ResourceKind.SERVER:
            self._cloud.delete_server(resource.resource_id)
        else:
            self._cloud.delete_ports([resource.resource_id])
