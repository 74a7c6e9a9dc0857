# SPDX-License-Identifier: Apache-2.0
"""Rows of Trove by which the health of all databases is judged, as plain dataclasses.

All times are in UTC, without a time zone.
"""

import dataclasses
import datetime


@dataclasses.dataclass(frozen=True)
class InstanceRow:
    """An instance that is not deleted.

    :param is_settled: no task of Trove is under way
    :param heartbeat_at: the last heartbeat of its guest agent; None: there was none
    :param has_key: its agent has a key of its own for the messages of Trove
    """

    instance_id: str
    project_id: str
    created_at: datetime.datetime
    is_settled: bool
    datastore: str
    version: str
    has_our_guest_agent: bool
    heartbeat_at: datetime.datetime | None
    is_replica: bool
    has_key: bool = True


@dataclasses.dataclass(frozen=True)
class VersionRow:
    """A version of a datastore.

    :param version: of the software; Trove takes it from the name if it is not set
    :param guest_manager: its ``registry_ext``
    :param replication: the path of its strategy
    :param image_id: of its guest image; empty: that with all its tags
    """

    datastore: str
    name: str
    version: str
    is_active: bool
    guest_manager: str
    replication: str
    image_id: str = ''
    image_tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class SettingRow:
    """A parameter of a configuration group.

    :param instance_ids: the instances that use the group
    """

    group_id: str
    name: str
    value: str
    instance_ids: tuple[str, ...]
