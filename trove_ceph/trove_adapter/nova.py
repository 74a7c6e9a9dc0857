# SPDX-License-Identifier: Apache-2.0
"""The taskmanager's own calls to Nova, beyond those of Trove."""

import contextlib
from typing import Any

import keystoneauth1.exceptions
import novaclient.client
import novaclient.exceptions

from trove_ceph import exceptions

# Of Ussuri: the first version that can change delete_on_termination of an attached volume.
API_VERSION = '2.85'


class Nova:
    """A client of Nova in one region, with the rights of one token.

    :param client: a novaclient, API_VERSION or later
    """

    def __init__(self, client: Any):
        self._client = client

    @classmethod
    def of_session(cls, session: Any, **options: Any) -> 'Nova':
        """Return a client that uses a session of keystoneauth1.

        :param options: of novaclient.client.Client, such as ``region_name``
        """
        return cls(novaclient.client.Client(API_VERSION, session=session, **options))

    def keep_volume(self, server_id: str, volume_id: str) -> None:
        """Keep a volume when its server is deleted; do nothing if it is not attached to it.

        :raises ServiceUnavailableError: Nova refused, for example because of a running resize
        """
        try:
            with contextlib.suppress(novaclient.exceptions.NotFound):
                self._client.volumes.update_server_volume(
                    server_id, volume_id, volume_id, delete_on_termination=False
                )
        except (
            novaclient.exceptions.ClientException,
            keystoneauth1.exceptions.ClientException,
        ) as error:
            raise exceptions.ServiceUnavailableError(
                f'server {server_id}: Nova did not set delete_on_termination=False for volume '
                f'{volume_id}: {error}'
            ) from error
