# SPDX-License-Identifier: Apache-2.0
"""When the server of an instance can be replaced, and when a failed attempt is repeated."""

import datetime

from trove_ceph import exceptions
from trove_ceph.strategies.replacement.dependencies import InstanceFacts

#: The tasks of an instance with which a failover can begin.
IDLE_TASKS = ('NONE', 'RESTART_REQUIRED')
#: A guest agent reports every minute or more often.
SEEN_SEC = 60
#: Before anything was changed, a replacement fails after this many attempts.
MOST_ATTEMPTS = 10
IN_PROGRESS_SEC = 2
#: Nova may still boot a server for so long. A slower one is deleted, and another one is chosen.
BOOT_TIMEOUT = datetime.timedelta(minutes=15)
#: A guest agent may be silent for so long, also after its server became that of the instance.
ANSWER_TIMEOUT = datetime.timedelta(minutes=30)
#: After so many attempts that failed, no further guest is claimed, and Nova boots a server.
MOST_GUESTS = 3
_FIRST_RETRY_SEC = 5
_LONGEST_RETRY_SEC = 60
_HEALTHY = ('HEALTHY', 'RUNNING', 'ACTIVE', 'RESTART_REQUIRED')
_BUILDING = ('NEW', 'BUILDING', 'BUILD', 'INSTANCE_READY')


def why_not(
    facts: InstanceFacts,
    is_forced: bool,
    now: datetime.datetime,
    own_task: str | None = None,
) -> str | None:
    """Return why the server of an instance cannot be replaced; None: it can.

    :param is_forced: replace it even if the instance is healthy
    :param now: the time by the clock of the database
    :param own_task: the task that the replacement has set; None: it is not requested yet
    """
    instance = f'instance {facts.instance_id}'
    if facts.is_deleted or facts.task == 'DELETING':
        return f'{instance}: is deleted'
    if facts.task not in (IDLE_TASKS if own_task is None else (own_task,)):
        return f'{instance}: has the task {facts.task}; repeat the request when it has ended'
    if not facts.has_our_guest_agent:
        return f'{instance}: its datastore version has another guest agent than that of trove_ceph'
    if facts.volume_id is None or facts.server_id is None:
        return f'{instance}: has no volume or no server; delete it'
    if facts.service_status in _BUILDING:
        return f'{instance}: is still being created, with the service status {facts.service_status}'
    if facts.is_in_cluster:
        return f'{instance}: belongs to a cluster; replace the member by the cluster instead'
    if facts.is_replicating:
        return f'{instance}: has replicas or is one; promote or detach the replica instead'
    if facts.is_being_backed_up:
        return f'{instance}: is being backed up; repeat the request when the backup has ended'
    if not is_forced and is_healthy(facts, now):
        return (
            f'{instance}: is healthy, and its guest agent has reported less than {SEEN_SEC} s '
            'ago; force the failover to replace its server nevertheless'
        )
    return None


def is_healthy(facts: InstanceFacts, now: datetime.datetime) -> bool:
    """Return whether an instance serves, as its guest agent has reported lately."""
    if facts.service_status not in _HEALTHY or facts.agent_seen_at is None:
        return False
    return abs(now - facts.agent_seen_at) <= datetime.timedelta(seconds=SEEN_SEC)


def retry_sec(error: BaseException, attempts: int) -> float:
    """Return the pause between an attempt that failed and the next one.

    :param attempts: how many attempts have failed, with this one
    """
    if isinstance(error, exceptions.InProgressError):
        return IN_PROGRESS_SEC
    # A larger exponent would make a huge number.
    return min(_FIRST_RETRY_SEC * 2 ** min(max(attempts - 1, 0), 16), _LONGEST_RETRY_SEC)
