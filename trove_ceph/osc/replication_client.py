# SPDX-License-Identifier: Apache-2.0
"""The client of the API extension for replicas."""

from collections.abc import Mapping
from typing import Any

from osc_lib import exceptions

from trove_ceph.osc import connection

_PATH = '/replication'
_POLICIES = '/replication_policies'
#: States in which a replica is not being re-provisioned. None: it is no replica any more.
_AT_REST = ('following', 'broken', 'unknown', None)


class ReplicationApi:
    """Replicas and replication policies, as plain dictionaries.

    :param connection: to Trove's API
    """

    def __init__(self, connection: connection.Connection):
        self._connection = connection

    def instance_id(self, name_or_id: str) -> str:
        """Return the id of an instance."""
        return self._connection.instance_id(name_or_id)

    # Replicas.

    def list_replicas(self, limit: int | None = None, **filters: Any) -> list[dict[str, Any]]:
        """List replicas, the latest first, from all pages up to the limit."""
        return self._connection.get_pages('replicas', limit, path=_PATH, **filters)

    def show_replica(self, instance_id: str) -> dict[str, Any]:
        """Return a replica, or a source, with its own replicas."""
        return self._connection.get(f'{_PATH}/{instance_id}')['replication']

    def reprovision(self, instance_id: str, **request: Any) -> dict[str, Any]:
        """Request a fresh clone for a replica."""
        content = {'reprovision': request}
        return self._connection.post(f'{_PATH}/{instance_id}/reprovision', content)['replication']

    def wait_until_reprovisioned(
        self, requested: Mapping[str, Any], timeout_sec: float
    ) -> dict[str, Any]:
        """Wait until a replica follows on its fresh clone; failed attempts are repeated.

        :param requested: the answer to the request
        :raises CommandError: it kept its old data, waits for an operator, or is still being
            re-provisioned when the time is over; the message has the reason
        """

        def is_done(shown: Mapping[str, Any]) -> bool:
            if shown['state'] == 'blocked':
                raise _failure(shown, 'is blocked')
            if shown['state'] not in _AT_REST:
                return False
            if shown['reprovisioned_at'] == requested['reprovisioned_at']:
                raise _failure(shown, 'was not re-provisioned')
            return True

        return connection.wait(
            lambda: self.show_replica(requested['id']), is_done, _failure, timeout_sec
        )

    # Policies.

    def show_policy(self, source_id: str) -> dict[str, Any]:
        return self._connection.get(f'{_POLICIES}/{source_id}')['replication_policy']

    def set_policy(self, source_id: str, **values: Any) -> dict[str, Any]:
        """Set values of the policy of a source; others stay."""
        content = {'replication_policy': values}
        return self._connection.put(f'{_POLICIES}/{source_id}', content)['replication_policy']

    def delete_policy(self, source_id: str) -> None:
        self._connection.delete(f'{_POLICIES}/{source_id}')


def _failure(shown: Mapping[str, Any], problem: str) -> exceptions.CommandError:
    reason = shown['error'] or shown['problem']
    because = f': {reason}' if reason else ''
    return exceptions.CommandError(f'replica {shown["id"]} {problem}{because}')
