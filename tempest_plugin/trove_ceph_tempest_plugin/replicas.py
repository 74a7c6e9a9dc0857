# SPDX-License-Identifier: Apache-2.0
"""Access replicas through this project's extension of Trove's API."""

from collections.abc import Callable
from typing import Any

from tempest.lib import exceptions

from trove_ceph import waiting

POLL_SEC = 1
#: States of a replica that is not being re-provisioned.
AT_REST = ('following', 'broken')


class Replicas:
    """Replicas, accessed as one identity.

    :param trove: trove-tempest-plugin's client
    :param timeout_sec: limit of every wait
    """

    def __init__(
        self,
        trove: Any,
        timeout_sec: float,
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._trove = trove
        self._timeout_sec = timeout_sec
        self._start_wait = start_wait

    def are_offered(self) -> bool:
        """Return whether trove-api has loaded the extension."""
        try:
            self._trove.list_resources('replication', limit=1)
        except exceptions.NotFound:
            return False
        return True

    def show(self, instance_id: str) -> dict[str, Any]:
        """Return a replica, or a source with its replicas."""
        return self._trove.get_resource('replication', instance_id)['replication']

    def set_policy(self, source_id: str, **values: Any) -> None:
        """Set values of the policy of a source."""
        self._trove.put_resource(
            f'replication_policies/{source_id}',
            {'replication_policy': values},
            expected_status_code=200,
        )

    def eject(self, source_id: str) -> None:
        """Request the ejection of a source, as soon as Trove believes that its agent is dead."""
        path, body = f'instances/{source_id}/action', {'eject_replica_source': {}}
        deadline = self._start_wait(self._timeout_sec)
        while True:
            try:
                self._trove.create_resource(
                    path, body, expected_status_code=202, need_response=False
                )
            except exceptions.BadRequest:
                if not deadline.pause(POLL_SEC):
                    raise
            else:
                return

    def reprovision(self, instance_id: str, reason: str) -> dict[str, Any]:
        """Request a fresh clone for a replica, and return the replica as it was requested."""
        response = self._trove.create_resource(
            f'replication/{instance_id}/reprovision',
            {'reprovision': {'reason': reason}},
            expected_status_code=202,
        )
        return response['replication']

    def wait_until_reprovisioned(self, requested: dict[str, Any]) -> dict[str, Any]:
        """Wait until a replica follows on its fresh clone, and return it.

        :param requested: what :meth:`reprovision` returned
        :raises UnexpectedResponseCode: it kept its old data
        """
        shown = self._wait(requested['id'], lambda shown: shown['state'] in AT_REST)
        if shown['reprovisioned_at'] == requested['reprovisioned_at']:
            raise exceptions.UnexpectedResponseCode(
                f'replica {shown["id"]} was not re-provisioned: {shown["error"]}'
            )
        return shown

    def wait_until_current(self, instance_id: str) -> dict[str, Any]:
        """Wait until the watch sees that a replica has everything of its source, and return it."""
        return self._wait(
            instance_id,
            lambda shown: (
                (shown['replicating'], shown['lag_sec'], shown['lag_transactions']) == (True, 0, 0)
            ),
        )

    def _wait(self, instance_id: str, is_reached: Callable[[dict[str, Any]], bool]):
        deadline = self._start_wait(self._timeout_sec)
        while True:
            shown = self.show(instance_id)
            if is_reached(shown):
                return shown
            if not deadline.pause(POLL_SEC):
                raise exceptions.TimeoutException(
                    f'replica {instance_id} is {shown["state"]} after {self._timeout_sec} s, '
                    f'{shown["lag_sec"]} s behind: {shown["error"] or shown["problem"]}'
                )
