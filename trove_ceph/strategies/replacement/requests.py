# SPDX-License-Identifier: Apache-2.0
"""Requests for the replacement of a server, as records for the store."""

import datetime
import uuid
from typing import Any

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import (
    FailoverCause,
    ReplacementKind,
    ReplacementRecord,
    ReplacementState,
    RequestedBy,
)
from trove_ceph.strategies.replacement import rules
from trove_ceph.strategies.replacement.dependencies import InstanceFacts


def new_failover(
    facts: InstanceFacts,
    requested_by: RequestedBy,
    reason: str,
    is_forced: bool,
    cause: FailoverCause,
    now: datetime.datetime,
    prefers_replica: bool = False,
) -> ReplacementRecord:
    """Return the record of a failover, to be requested with ``facts.task`` as expected task.

    :param reason: what the requester wrote, or the signs of an automatic failover
    :param now: the time by the clock of the database
    :param prefers_replica: a replica takes over from a source if it has all that is known
    :raises ReplacementRefusedError: the server cannot be replaced
    """
    _check(rules.why_not(facts, is_forced, now))
    own = {'cause': cause, 'prefers_replica': prefers_replica}
    return _new(facts, ReplacementKind.FAILOVER, requested_by, reason, is_forced, now, **own)


def new_resize(
    facts: InstanceFacts, flavor_id: str, ram_growth_mib: int, now: datetime.datetime
) -> ReplacementRecord:
    """Return the record of a resize, to be requested with the requested task of its kind.

    :param flavor_id: of the new server
    :param ram_growth_mib: what Trove's API has added to the memory that the project uses
    :param now: the time by the clock of the database
    :raises ReplacementRefusedError: the server cannot be replaced
    """
    _check(rules.why_not(facts, True, now, own_task=ReplacementKind.RESIZE.requested_task))
    reason = f'resize to flavor {flavor_id}'
    return _new(
        *(facts, ReplacementKind.RESIZE, RequestedBy.TENANT, reason, True, now),
        flavor_id=flavor_id,
        former_flavor_id=facts.flavor_id,
        ram_growth_mib=ram_growth_mib,
    )


def new_rebuild(facts: InstanceFacts, image_id: str, now: datetime.datetime) -> ReplacementRecord:
    """Return the record of a rebuild, to be requested with the requested task of its kind.

    :param image_id: the guest image, which must be that of the datastore version now
    :param now: the time by the clock of the database
    :raises ReplacementRefusedError: the server cannot be replaced, or its agent, which must stop
        MySQL, does not work
    """
    _check(rules.why_not(facts, True, now, own_task=ReplacementKind.REBUILD.requested_task))
    if not rules.is_healthy(facts, now):
        _check(
            f'instance {facts.instance_id}: has the service status {facts.service_status}, or its '
            'guest agent has not reported lately, so that MySQL cannot be stopped'
        )
    reason = f'rebuild on guest image {image_id}'
    return _new(facts, ReplacementKind.REBUILD, RequestedBy.OPERATOR, reason, True, now)


def _check(reason: str | None) -> None:
    if reason is not None:
        raise exceptions.ReplacementRefusedError(reason)


def _new(
    facts: InstanceFacts,
    kind: ReplacementKind,
    requested_by: RequestedBy,
    reason: str,
    is_forced: bool,
    now: datetime.datetime,
    **own: Any,
) -> ReplacementRecord:
    """Return a new record.

    :param own: further values, which are those of the kind alone
    """
    return ReplacementRecord(
        replacement_id=str(uuid.uuid4()),
        instance_id=facts.instance_id,
        project_id=facts.project_id,
        kind=kind,
        state=ReplacementState.REQUESTED,
        requested_by=requested_by,
        created_at=now,
        updated_at=now,
        reason=reason,
        is_forced=is_forced,
        version_id=facts.version_id,
        volume_id=facts.volume_id,
        old_server_id=facts.server_id,
        **{'flavor_id': facts.flavor_id} | own,
    )
