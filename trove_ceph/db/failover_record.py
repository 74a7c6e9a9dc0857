# SPDX-License-Identifier: Apache-2.0
"""The rows of automatic failover as plain dataclasses. Times are in UTC, without a time zone."""

import dataclasses
import datetime
import enum
from collections.abc import Mapping
from typing import Any

from trove_ceph.db.policy_record import Scope


class Preference(enum.StrEnum):
    """What an automatic failover tries first."""

    #: Another server gets the volume and the addresses.
    VOLUME = 'volume'
    #: A replica that has all that is known takes over from its source; otherwise the volume moves.
    REPLICA = 'replica'


@dataclasses.dataclass(frozen=True)
class FailoverPolicy:
    """Whether databases are failed over automatically.

    :param scope: of an instance or a datastore
    :param target: id of an instance, name of a datastore or ``datastore/version``
    :param project_id: project of the instance; None: the policy belongs to the operator
    :param enabled: False: those that it applies to are not failed over, even if a policy with a
        wider scope is enabled
    :param prefer: what is tried first, if the instance is a source
    """

    policy_id: str
    scope: Scope
    target: str
    created_at: datetime.datetime
    updated_at: datetime.datetime
    project_id: str | None = None
    enabled: bool = True
    prefer: Preference = Preference.VOLUME

    def __str__(self) -> str:
        return f'failover policy {self.policy_id} ({self.scope} {self.target})'


@dataclasses.dataclass(frozen=True)
class FailoverWatch:
    """The watch over the databases of the cloud, which one taskmanager at a time keeps.

    :param maintenance: why an operator holds all automatic failovers; None: none does
    :param maintenance_since: when that began
    :param report: what the last round found, see :class:`.report.Report`; None: there was none
    :param reported_at: when that round ended
    :param claimed_by: the taskmanager that keeps it, with its last heartbeat
    """

    maintenance: str | None = None
    maintenance_since: datetime.datetime | None = None
    report: Mapping[str, Any] | None = None
    reported_at: datetime.datetime | None = None
    claimed_by: str | None = None
    heartbeat_at: datetime.datetime | None = None
