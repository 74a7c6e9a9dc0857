# SPDX-License-Identifier: Apache-2.0
"""The services of OpenStack, asked as the administrator of ``[service_credentials]``."""

import contextlib
import http
from collections.abc import Iterator, Sequence
from typing import Any

import keystoneauth1.exceptions
import openstack
import openstack.exceptions
from oslo_utils import timeutils

from trove_ceph import exceptions
from trove_ceph.cinder import connection
from trove_ceph.doctor.cloud_facts import API_LISTS, AgentImage, ServiceFacts
from trove_ceph.tiers import cinder
from trove_ceph.trove_adapter import service_session
from trove_ceph.trove_adapter.replacement_servers import AGENT_PROPERTY


class Cloud:
    """Cinder, Nova, Glance and the API of Trove.

    :param conf: the configuration of trove-taskmanager
    """

    def __init__(self, conf: Any):
        with _translated('connecting to the cloud'):
            self._connection = openstack.connection.Connection(
                session=service_session.get(), region_name=conf.service_credentials.region_name
            )

    def cinder(self) -> cinder.Cinder:
        """Return the tiers' adapter to Cinder."""
        with _translated('finding Cinder'):
            adapter = self._connection.config.get_session_client('block-storage')
        return cinder.Cinder(connection.connect_like(adapter))

    def services(self) -> Sequence[ServiceFacts]:
        """Return the processes of Cinder and Nova.

        :raises ServiceUnavailableError: one of them does not answer
        """
        with _translated('listing the services of Cinder'):
            of_cinder = [
                _service('cinder', one) for one in self._connection.block_storage.services()
            ]
        with _translated('listing the services of Nova'):
            of_nova = [_service('nova', one) for one in self._connection.compute.services()]
        return of_cinder + of_nova

    def agent_images(self) -> Sequence[AgentImage]:
        """Return the active images whose property says that they have our guest agent.

        :raises ServiceUnavailableError: Glance does not answer
        """
        with _translated('listing the images of Glance'):
            found = self._connection.image.images(status='active')
            return [
                AgentImage(one.id, tuple(one.tags or ()))
                for one in found
                if AGENT_PROPERTY in (one.properties or {})
            ]

    def missing_extensions(self) -> Sequence[str]:
        """Return the entry points of our extensions whose resources Trove's API does not have.

        :raises ServiceUnavailableError: Trove's API does not answer
        """
        with _translated("asking Trove's API"):
            adapter = self._connection.config.get_session_client('database')
            return [name for name, path in API_LISTS.items() if _is_missing(adapter, path)]


def _is_missing(adapter: Any, path: str) -> bool:
    """Return whether an API has no such resource; one that refuses a request has it."""
    response = adapter.get(f'/{path}?limit=1', raise_exc=False)
    if response.status_code >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        raise exceptions.ServiceUnavailableError(
            f"Trove's API answers GET /{path} with the status {response.status_code}"
        )
    return bool(response.status_code == http.HTTPStatus.NOT_FOUND)


def _service(project: str, found: Any) -> ServiceFacts:
    updated_at = found.updated_at and timeutils.normalize_time(
        timeutils.parse_isotime(_with_zone(found.updated_at))
    )
    return ServiceFacts(
        project,
        found.binary,
        found.host,
        found.state == 'up',
        found.status == 'enabled',
        updated_at or None,
    )


def _with_zone(text: str) -> str:
    return text if text.endswith('Z') or '+' in text else f'{text}Z'


@contextlib.contextmanager
def _translated(request: str) -> Iterator[None]:
    try:
        yield
    except (
        keystoneauth1.exceptions.ClientException,
        openstack.exceptions.SDKException,
    ) as error:
        raise exceptions.ServiceUnavailableError(f'{request}: {error}') from error
