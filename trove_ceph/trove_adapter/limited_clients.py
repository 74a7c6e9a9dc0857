# SPDX-License-Identifier: Apache-2.0
"""Trove's own clients of Nova, Cinder and Neutron, whose requests end after a time limit.

Trove creates instances with them. Without a limit, a service that accepts a request and never
answers stops the creation for ever. Trove has an option for each client, so none is replaced whose
option names another one.
"""

from typing import Any

from oslo_config import cfg
from trove.common import clients_admin

from trove_ceph.trove_adapter import service_session


def use(conf: cfg.ConfigOpts) -> None:
    """Have Trove use these clients in this process instead of its default ones."""
    for option, ours in (
        ('remote_nova_client', nova_client),
        ('remote_cinder_client', cinder_client),
        ('remote_neutron_client', neutron_client),
    ):
        stock = f'{clients_admin.__name__}.{ours.__name__}_trove_admin'
        if conf[option] == stock:
            conf.set_override(option, f'{__name__}.{ours.__name__}')


def nova_client(context: Any, region_name: str | None = None, password: str | None = None) -> Any:
    """Return Trove's client of Nova with the rights of ``[service_credentials]``."""
    client = clients_admin.nova_client_trove_admin(context, region_name, password)
    _limit(client.client)
    return client


def cinder_client(context: Any, region_name: str | None = None) -> Any:
    """Return Trove's client of Cinder with the rights of ``[service_credentials]``."""
    client = clients_admin.cinder_client_trove_admin(context, region_name)
    _limit(client.client)
    return client


def neutron_client(context: Any, region_name: str | None = None) -> Any:
    """Return Trove's client of Neutron with the rights of ``[service_credentials]``."""
    client = clients_admin.neutron_client_trove_admin(context, region_name)
    _limit(client.httpclient)
    return client


def _limit(adapter: Any) -> None:
    """Have an adapter of keystoneauth1 use a session with a time limit; idempotent.

    Trove has one client of each service in a process.
    """
    if adapter.session.timeout is None:
        adapter.session = service_session.get()
