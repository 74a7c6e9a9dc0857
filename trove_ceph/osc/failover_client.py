# SPDX-License-Identifier: Apache-2.0
"""The client of the API extension for failovers."""

from collections.abc import Mapping
from typing import Any

from osc_lib import exceptions
from oslo_utils import uuidutils

from trove_ceph.osc import connection

_ENDED_BADLY = ('failed', 'canceled')
_POLL_SEC = 2


class FailoverApi:
    """Failovers of instances, as plain dictionaries.

    :param connection: to Trove's API
    """

    def __init__(self, connection: connection.Connection):
        self._connection = connection

    def instance_id(self, name_or_id: str) -> str:
        """Return the id of an instance."""
        return self._connection.instance_id(name_or_id)

    def failover_id(self, name_or_id: str) -> str:
        """Return the id of the latest failover of an instance, or the id of a failover itself.

        :param name_or_id: of the instance, or the id of the failover
        :raises CommandError: no instance has this name, or it has no failover
        """
        latest = self.list_failovers(limit=1, instance_id=self.instance_id(name_or_id))
        if latest:
            return latest[0]['id']
        if uuidutils.is_uuid_like(name_or_id):
            return name_or_id
        raise exceptions.CommandError(f'instance {name_or_id} has no failover')

    def request_failover(self, **request: Any) -> dict[str, Any]:
        """Request a failover."""
        return self._connection.post('/failovers', {'failover': request})['failover']

    def list_failovers(self, limit: int | None = None, **filters: Any) -> list[dict[str, Any]]:
        """List failovers, the latest first, from all pages up to the limit."""
        return self._connection.get_pages('failovers', limit, **filters)

    def show_failover(self, failover_id: str) -> dict[str, Any]:
        return self._connection.get(f'/failovers/{failover_id}')['failover']

    def wait_until_completed(self, failover_id: str, timeout_sec: float) -> dict[str, Any]:
        """Wait until a failover is completed; failed attempts are repeated by the service.

        :raises CommandError: it failed, the instance was deleted, or it did not end in time; the
            message has the reason
        """

        def is_done(shown: Mapping[str, Any]) -> bool:
            if shown['state'] in _ENDED_BADLY:
                raise _failure(shown, f'is {shown["state"]}')
            return shown['state'] == 'completed'

        return connection.wait(
            lambda: self.show_failover(failover_id), is_done, _failure, timeout_sec, _POLL_SEC
        )


def _failure(shown: Mapping[str, Any], problem: str) -> exceptions.CommandError:
    because = f': {shown["error"]}' if shown['error'] else ''
    return exceptions.CommandError(f'failover {shown["id"]} {problem}{because}')
