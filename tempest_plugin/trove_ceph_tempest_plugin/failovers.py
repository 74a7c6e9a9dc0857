# SPDX-License-Identifier: Apache-2.0
"""Access failovers through this project's extension of Trove's API."""

from collections.abc import Callable
from typing import Any

from tempest.lib import exceptions

from trove_ceph import waiting

POLL_SEC = 1
REQUESTED, COMPLETED = 'requested', 'completed'
ENDED = (COMPLETED, 'failed', 'canceled')


class Failovers:
    """Failovers, accessed as one identity.

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
            self._trove.list_resources('failovers', limit=1)
        except exceptions.NotFound:
            return False
        return True

    def create(self, instance_id: str, reason: str) -> str:
        """Request a failover whatever Trove believes of the instance, and return its id."""
        body = {'failover': {'instance': instance_id, 'reason': reason, 'force': True}}
        response = self._trove.create_resource('failovers', body, expected_status_code=202)
        return response['failover']['id']

    def create_once_unhealthy(self, instance_id: str, reason: str) -> str:
        """Request a failover as soon as Trove believes that the instance fails; return its id.

        Forced failovers of an instance are limited in number, these are not.
        """
        body = {'failover': {'instance': instance_id, 'reason': reason}}
        deadline = self._start_wait(self._timeout_sec)
        while True:
            try:
                response = self._trove.create_resource('failovers', body, expected_status_code=202)
            except exceptions.Conflict:
                if not deadline.pause(POLL_SEC):
                    raise
            else:
                return response['failover']['id']

    def of_instance(self, instance_id: str) -> list[dict[str, Any]]:
        """Return the failovers of an instance, the latest first."""
        return self._trove.list_resources('failovers', instance_id=instance_id)['failovers']

    def wait_until_requested(self, instance_id: str) -> str:
        """Wait until an instance has a failover that others have requested; return its id.

        It must have none before.
        """
        deadline = self._start_wait(self._timeout_sec)
        while True:
            if found := self.of_instance(instance_id):
                return found[0]['id']
            if not deadline.pause(POLL_SEC):
                raise exceptions.TimeoutException(
                    f'instance {instance_id} has no failover after {self._timeout_sec} s'
                )

    def set_policy(self, instance_id: str, prefer: str = 'volume') -> str:
        """Have an instance failed over automatically; return the id of its policy.

        :param prefer: "volume", which moves, or "replica", which takes over
        """
        policy = {'scope': 'instance', 'target': instance_id, 'prefer': prefer}
        body = {'failover_policy': policy}
        response = self._trove.create_resource('failover_policies', body, expected_status_code=201)
        return response['failover_policy']['id']

    def delete_policy(self, policy_id: str) -> None:
        """Delete a policy if it exists."""
        self._trove.delete_resource('failover_policies', policy_id, ignore_notfound=True)

    def show(self, failover_id: str) -> dict[str, Any]:
        """Return a failover."""
        return self._trove.get_resource('failovers', failover_id)['failover']

    def wait_until_begun(self, failover_id: str) -> dict[str, Any]:
        """Wait until a failover changes something, and return it."""
        return self._wait(failover_id, lambda state: state != REQUESTED)

    def wait_until_completed(self, failover_id: str) -> dict[str, Any]:
        """Wait until a failover is complete, and return it.

        :raises UnexpectedResponseCode: it ended otherwise
        """
        failover = self._wait(failover_id, ENDED.__contains__)
        if failover['state'] != COMPLETED:
            raise exceptions.UnexpectedResponseCode(
                f'failover {failover_id} is {failover["state"]}: {failover["error"]}'
            )
        return failover

    def _wait(self, failover_id, is_reached: Callable[[str], bool]):
        deadline = self._start_wait(self._timeout_sec)
        while True:
            failover = self.show(failover_id)
            if is_reached(failover['state']):
                return failover
            if not deadline.pause(POLL_SEC):
                raise exceptions.TimeoutException(
                    f'failover {failover_id} is {failover["state"]} at step {failover["step"]} '
                    f'after {self._timeout_sec} s: {failover["error"]}'
                )
