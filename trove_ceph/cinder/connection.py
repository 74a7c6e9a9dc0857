# SPDX-License-Identifier: Apache-2.0
"""Connection to Cinder through python-cinderclient, and translation of its errors."""

import contextlib
from collections.abc import Iterator
from typing import Any

import cinderclient.client
import cinderclient.exceptions
import keystoneauth1.exceptions

from trove_ceph import exceptions

#: The first microversion that shows the cluster of a volume (Ussuri).
API_VERSION = '3.61'

NOT_FOUND = (cinderclient.exceptions.NotFound, keystoneauth1.exceptions.NotFound)

_ADAPTER_OPTIONS = (
    *('auth', 'service_type', 'service_name', 'region_name', 'interface', 'endpoint_override'),
    *('connect_retries', 'connect_retry_delay', 'status_code_retries', 'status_code_retry_delay'),
)
_ERRORS = (
    cinderclient.exceptions.ClientException,
    keystoneauth1.exceptions.ClientException,
)


def connect(session: Any, **options: Any) -> Any:
    """Return a client of python-cinderclient that uses a session of keystoneauth1.

    :param options: options of cinderclient.client.Client, such as ``region_name``
    :raises ServiceUnavailableError: cinderclient refuses the options
    """
    with translated('connecting'):
        return cinderclient.client.Client(API_VERSION, session=session, **options)


def connect_like(adapter: Any) -> Any:
    """Return a client with the session, endpoint and retries of a keystoneauth1.adapter.Adapter."""
    return connect(adapter.session, **{name: getattr(adapter, name) for name in _ADAPTER_OPTIONS})


def find_in_environment() -> Any:
    """Return an adapter to Cinder of the cloud of the OS_* variables or of clouds.yaml.

    :raises ServiceUnavailableError: the environment names no cloud, or it does not answer
    """
    # Only commands need it.
    import openstack
    import openstack.exceptions

    with translated('connecting'):
        try:
            return openstack.connect().config.get_session_client('block-storage')
        except openstack.exceptions.SDKException as error:
            raise exceptions.ServiceUnavailableError(
                f'the cloud cannot be reached: {error}'
            ) from error


def list_volume_types(client: Any) -> list[Any]:
    """Return all volume types, including private ones.

    Cinder names the link to the next page ``volume_type_links``, but python-cinderclient looks for
    ``volume_types_links`` and stops after the first page. So this function pages by marker.
    """
    found: list[Any] = []
    # Without this filter Cinder shows an administrator public types only.
    options: dict[str, Any] = {'is_public': None}
    while page := client.volume_types.list(search_opts=dict(options)):
        found += page
        options['marker'] = page[-1].id
    return found


@contextlib.contextmanager
def translated(request: str) -> Iterator[None]:
    """Translate the errors of a request.

    :param request: the request for messages, such as ``deleting volume X``
    :raises QuotaExceededError: the project has no quota left
    :raises ServiceUnavailableError: Cinder refused the request or did not answer
    """
    try:
        yield
    except cinderclient.exceptions.OverLimit as error:
        raise exceptions.QuotaExceededError(f'{request}: {error}') from error
    except _ERRORS as error:
        raise exceptions.ServiceUnavailableError(f'Cinder failed at {request}: {error}') from error
