# SPDX-License-Identifier: Apache-2.0
"""The one place where the taskmanager speaks to Nova besides Trove."""

import contextlib
from typing import Any

import keystoneauth1.exceptions
import novaclient.client
import novaclient.exceptions

from trove_ceph import exceptions

# Ussuri's: the first that changes what becomes of an attached volume.
API_VERSION = '2.85'


class Nova:
    """Nova of one region, with the rights of one token.

    :param client: of novaclient, API_VERSION or later
    """

    def __init__(self, client: Any):
        self._client = client

    @classmethod
    def of_session(cls, session: Any, **options: Any) -> 'Nova':
        """Return the one that a session of keystoneauth1 reaches.

        :param options: of novaclient.client.Client, such as ``region_name``
        """
        return cls(novaclient.client.Client(API_VERSION, session=session, **options))

    def keep_volume(self, server_id: str, volume_id: str) -> None:
        """Have a volume not be deleted with its server; nothing if it is not attached to it.

        :raises ServiceUnavailableError: Nova refused, such as for a server that is being resized
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
                f'Nova failed at keeping volume {volume_id} of server {server_id}: {error}'
            ) from error
