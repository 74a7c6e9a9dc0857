# SPDX-License-Identifier: Apache-2.0
"""When the server of an instance can be replaced, and when a failed attempt is repeated."""

import datetime

from trove_ceph.db import trove_tasks
from trove_ceph.strategies.replacement.dependencies import InstanceFacts

#: The tasks of an instance with which a failover can begin.
IDLE_TASKS = tuple(one.name for one in trove_tasks.IDLE)
#: The tasks that Trove's API sets over that of a replacement: without a check for a change of the
#: access rules or a rebuild, for all instances of a source, of which it checks one only, or in the
#: moment in which the replacement is requested, such as for a resize. The taskmanager then finds
#: the record of the replacement, refuses the operation for this instance, and gives the task of the
#: replacement back.
OVERWRITING_TASKS = (
    *('PROMOTING', 'EJECTING', 'DETACHING', 'UPDATING', 'UPDATING_ERROR_ACCESS', 'BUILDING'),
    'RESIZING',
)
#: It may wait for the claim on the source before.
OVERWRITTEN_TIMEOUT = datetime.timedelta(minutes=5)
#: A guest agent reports every minute or more often.
SEEN_SEC = 60
#: Before anything was changed, a replacement fails after this many attempts.
MOST_ATTEMPTS = 10
IN_PROGRESS_SEC = 2
#: Nova may still boot a server for so long. A slower one is deleted, and another one is chosen.
BOOT_TIMEOUT = datetime.timedelta(minutes=15)
#: A guest agent may be silent for so long, also after its server became that of the instance.
ANSWER_TIMEOUT = datetime.timedelta(minutes=30)
#: A guest agent may be silent for so long on a host that Nova counts as down. Nova does so after a
#: minute without a report, also while nova-compute is restarted, and the agent of a new server may
#: need minutes to start.
DOWN_TIMEOUT = datetime.timedelta(minutes=5)
#: After so many attempts that failed, a guest is claimed in one of ten, and Nova boots a server.
MOST_GUESTS = 3
_ATTEMPTS_PER_GUEST = 10
#: After so many attempts in a row that found no server of the new flavor, a resize returns. They
#: take more than a minute, in which most services that were restarted answer again.
MOST_ATTEMPTS_OF_FLAVOR = 5
#: So many other hosts than the old one are requested for a new server before Nova chooses.
MOST_HOSTS_FIRST = 2
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
    # Its former source is fenced, and it has executed what it had received.
    is_idle = facts.task in IDLE_TASKS or facts.is_unfinished_source
    if not (is_idle if own_task is None else facts.task == own_task):
        return f'{instance}: has the task {facts.task}; repeat the request when it has ended'
    if not facts.has_our_guest_agent:
        return f'{instance}: its datastore version has another guest agent than that of trove_ceph'
    if facts.volume_id is None or facts.server_id is None:
        return f'{instance}: has no volume or no server; delete it'
    if facts.service_status in _BUILDING:
        return f'{instance}: is still being created, with the service status {facts.service_status}'
    if facts.is_in_cluster:
        return f'{instance}: belongs to a cluster; replace the member by the cluster instead'
    if facts.source_change is not None:
        return f'{instance}: {facts.source_change}; repeat the request when that has ended'
    # A guest agent that dies leaves its backup unended in Trove.
    if facts.is_being_backed_up and (not facts.is_agent_backing_up or has_reported(facts, now)):
        return f'{instance}: is being backed up; repeat the request when the backup has ended'
    if is_healthy(facts, now):
        return _why_not_healthy(facts, is_forced, now)
    return None


def _why_not_healthy(facts: InstanceFacts, is_forced: bool, now: datetime.datetime) -> str | None:
    """Return why the server of an instance that serves cannot be replaced; None: it can."""
    instance = f'instance {facts.instance_id}'
    if not is_forced:
        return (
            f'{instance}: is healthy, and its guest agent has reported less than {SEEN_SEC} s '
            'ago; force the failover to replace its server nevertheless'
        )
    if facts.is_being_cloned:
        return (
            f'{instance}: is being cloned for a new replica, which would fail; repeat the request '
            'in a minute'
        )
    if facts.source_id is not None and not _serves(facts.source_status, facts.source_seen_at, now):
        # MySQL discards the relay log when it starts, and fetches it from the source again.
        return (
            f'{instance}: its source {facts.source_id} does not serve, and it may have received '
            'what it has not executed, which a restart would discard; repeat the request when the '
            'source is HEALTHY, or eject the source'
        )
    return None


def is_healthy(facts: InstanceFacts, now: datetime.datetime) -> bool:
    """Return whether an instance serves, as its guest agent has reported lately."""
    return _serves(facts.service_status, facts.agent_seen_at, now)


def has_reported(facts: InstanceFacts, now: datetime.datetime) -> bool:
    """Return whether the guest agent of an instance has reported lately, whatever it said."""
    return _is_recent(facts.agent_seen_at, now)


def _serves(status: str | None, seen_at: datetime.datetime | None, now: datetime.datetime) -> bool:
    return status in _HEALTHY and _is_recent(seen_at, now)


def _is_recent(seen_at: datetime.datetime | None, now: datetime.datetime) -> bool:
    return seen_at is not None and abs(now - seen_at) <= datetime.timedelta(seconds=SEEN_SEC)


def retry_sec(attempts: int) -> float:
    """Return the pause between an attempt that failed and the next one.

    :param attempts: how many attempts have failed, with this one
    """
    # A larger exponent would make a huge number.
    return min(_FIRST_RETRY_SEC * 2 ** min(max(attempts - 1, 0), 16), _LONGEST_RETRY_SEC)


def may_claim_guest(attempts: int) -> bool:
    """Return whether a replacement may claim a guest, or only Nova is to boot a server.

    A database that starts nowhere must not use up the guests of its pool. But one that Nova has no
    room for starts on a guest only: they may take the room.

    :param attempts: how many attempts have failed
    """
    return attempts < MOST_GUESTS or attempts % _ATTEMPTS_PER_GUEST == 0
