# SPDX-License-Identifier: Apache-2.0
"""Facts of the services of OpenStack; this module needs none of OpenStack's libraries."""

import dataclasses
import datetime

#: The entry points of this release in Trove's API, with a list that each of them adds.
API_LISTS = {
    'trove_ceph_backups': 'backup_policies',
    'trove_ceph_failovers': 'failover_policies',
    'trove_ceph_instances': 'instance_details',
    'trove_ceph_replication': 'replication',
}


@dataclasses.dataclass(frozen=True)
class ServiceFacts:
    """A process of Cinder or Nova.

    :param updated_at: its last heartbeat, by the clock of its host, in UTC without a time zone
    """

    project: str
    binary: str
    host: str
    is_up: bool
    is_enabled: bool
    updated_at: datetime.datetime | None


@dataclasses.dataclass(frozen=True)
class AgentImage:
    """A guest image whose property says that it has our guest agent."""

    image_id: str
    tags: tuple[str, ...]
