# SPDX-License-Identifier: Apache-2.0
"""When a replica can be re-provisioned, and when its old volume is given back."""

import datetime
from collections.abc import Iterable

from trove_ceph import exceptions
from trove_ceph.db import replacement_record
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.strategies.replacement.dependencies import InstanceFacts

#: The task of an instance while it is re-provisioned.
TASK = 'MIGRATING'
#: In one state so many attempts may fail, before the replica keeps its old volume, or gets it back.
MOST_ATTEMPTS = 10
#: So many starts of MySQL on one volume may fail.
MOST_STARTS = 3
#: A guest agent may be silent for so long: its server may boot meanwhile.
ANSWER_TIMEOUT = datetime.timedelta(minutes=30)
#: The source may be silent for so long, before the replica returns to its old volume, which an
#: ejection of the source may need. A source that gets another server is not ejected, and may be
#: silent for as long as an agent.
SOURCE_TIMEOUT = datetime.timedelta(minutes=2)
#: The volumes may be under way between the server and Cinder for so long.
EXCHANGE_TIMEOUT = datetime.timedelta(minutes=30)
#: The status of a server that has failed. Nova can switch it off, and start it again.
FAILED = 'ERROR'
#: What an operator does about a server that stays in a status in which the volumes of its guest
#: cannot be exchanged.
REPAIRS = {
    FAILED: 'see its fault, and set its state to active',
    'PAUSED': 'unpause it',
    'RESCUE': 'unrescue it',
    'SHELVED': 'unshelve it',
    'SHELVED_OFFLOADED': 'unshelve it',
    'SOFT_DELETED': 'restore it',
    'SUSPENDED': 'resume it',
    'VERIFY_RESIZE': 'confirm or revert its resize',
}
_BUILDING = ('NEW', 'BUILDING', 'BUILD', 'INSTANCE_READY')


def why_not(replica: InstanceFacts, source: InstanceFacts | None, source_id: str) -> str | None:
    """Return why a replica whose re-provisioning is requested cannot have it; None: it can.

    :param source: None: Trove has no such instance
    """
    if replica.task != TASK:
        return (
            f'instance {replica.instance_id}: has the task {replica.task}, expected {TASK}; repeat '
            'the request'
        )
    return why_unfit(replica, source, source_id)


def why_unfit(replica: InstanceFacts, source: InstanceFacts | None, source_id: str) -> str | None:
    """Return why a replica cannot be re-provisioned, whatever its task is; None: it can.

    :param source: None: Trove has no such instance
    """
    instance = f'instance {replica.instance_id}'
    if not replica.has_our_guest_agent:
        return f'{instance}: its datastore version has another guest agent than that of trove_ceph'
    if replica.volume_id is None or replica.server_id is None:
        return f'{instance}: has no volume or no server; delete it'
    if replica.is_in_cluster:
        return f'{instance}: belongs to a cluster'
    if replica.is_being_backed_up:
        return f'{instance}: is being backed up; repeat the request when the backup has ended'
    if (reason := why_no_source(replica, source, source_id)) is not None:
        return reason
    assert source is not None
    if source.task in replacement_record.TASKS:
        return (
            f'{instance}: its source {source_id} is getting another server; repeat the request '
            'when it is HEALTHY'
        )
    if source.service_status in _BUILDING or source.volume_id is None:
        return f'{instance}: its source {source_id} is still being created'
    return None


def check_server(replica: InstanceFacts, server: ServerFacts, volume_ids: Iterable[str]) -> None:
    """Refuse a re-provisioning on a server that an operator has to repair before.

    :param volume_ids: the volumes that the server has
    :raises ReprovisioningRefusedError: with the ids, which tenants do not see
    """
    subject, server_id = f'instance {replica.instance_id}: its server', server.server_id
    if server.status in REPAIRS and server.status != FAILED:
        repair = REPAIRS[server.status]
        raise exceptions.ReprovisioningRefusedError(
            f'{subject} {server_id} is {server.status}; {repair}',
            f'{subject} is {server.status}; your operator has to {repair}',
        )
    if others := set(volume_ids) - {replica.volume_id}:
        # The guest could not tell its data volume from them.
        raise exceptions.ReprovisioningRefusedError(
            f'{subject} {server_id} has the volume {", ".join(sorted(others))}, expected only '
            f'{replica.volume_id}; detach it',
            f'{subject} has another volume, which your operator has to detach',
        )


def why_no_source(
    replica: InstanceFacts, source: InstanceFacts | None, source_id: str
) -> str | None:
    """Return why a replica does not follow its recorded source any more; None: it does."""
    instance = f'instance {replica.instance_id}'
    if replica.source_id != source_id:
        return (
            f'{instance}: follows {replica.source_id or "no instance"} by now, expected '
            f'{source_id}; repeat the request'
        )
    if source is None or source.is_deleted or source.task == 'DELETING':
        return f'{instance}: its source {source_id} is deleted; detach the replica'
    return None
