# SPDX-License-Identifier: Apache-2.0
"""The row of a replacement of an instance's server as a plain dataclass."""

import dataclasses
import datetime
import enum


class ReplacementKind(enum.StrEnum):
    """Why an instance gets another server.

    A failover replaces a server that failed, or that must be given up. A resize replaces one that
    works by one of another flavor, and a rebuild by one of the present guest image.
    """

    FAILOVER = 'failover'
    RESIZE = 'resize'
    REBUILD = 'rebuild'

    @property
    def is_planned(self) -> bool:
        """Whether the old server works: MySQL stops before the fence, and a warm guest is ready."""
        return self is not ReplacementKind.FAILOVER

    @property
    def task(self) -> str:
        """The name of the task of an instance while its server is replaced.

        With each of them Trove's API deletes the instance if its tenant requests that.
        """
        return 'RESIZING' if self is ReplacementKind.RESIZE else 'MIGRATING'

    @property
    def requested_task(self) -> str | None:
        """The name of the task that Trove's API has set with the request; None: it has set none.

        An earlier release has left that of a rebuild until its end.
        """
        return _REQUESTED_TASKS.get(self)


_REQUESTED_TASKS = {ReplacementKind.RESIZE: 'RESIZING', ReplacementKind.REBUILD: 'BUILDING'}
#: The tasks of an instance that gets another server, and does not serve meanwhile. Trove has the
#: last one while it rebuilds a server itself.
TASKS = ('MIGRATING', 'RESIZING', 'BUILDING')


class RequestedBy(enum.StrEnum):
    """Who requested a replacement."""

    TENANT = 'tenant'
    OPERATOR = 'operator'
    AUTOMATIC = 'automatic'


class FailoverCause(enum.StrEnum):
    """Why a failover was requested."""

    #: A tenant or an operator requested it for this instance.
    REQUEST = 'request'
    #: An operator moves all databases of a host.
    MAINTENANCE = 'maintenance'
    #: Its host does not report to Nova.
    HOST_DOWN = 'host-down'
    #: Nova shows its server as stopped or failed.
    SERVER_DOWN = 'server-down'
    #: Nova believes that its server runs.
    SERVER_HUNG = 'server-hung'


class ReplacementState(enum.StrEnum):
    """The state of a replacement.

    Before a requested one changes anything it can still fail, and the old server stays in service.
    If a policy prefers it, a replica takes over from a source then; if none can, the volume moves.
    From the fence on it is completed, however long that takes, unless the instance is deleted or
    MySQL does not start on the new server. A resize then returns to the former flavor first.
    """

    REQUESTED = 'requested'
    #: A replica becomes the source in place of the instance, if it has all that is known.
    TAKING_OVER = 'taking_over'
    #: The clients of the volume are cut off, and the old server is deleted.
    FENCING = 'fencing'
    #: Ceph has proved that the old server cannot write. A new one gets the volume and the ports.
    MOVING = 'moving'
    #: The new server is that of the instance. MySQL starts on it.
    STARTING = 'starting'
    #: No server of the new flavor serves. What there is of one is given up; one of the former
    #: flavor follows.
    RETURNING = 'returning'
    COMPLETED = 'completed'
    #: Nothing was moved, or MySQL does not start on the new server; the error says which.
    FAILED = 'failed'
    #: The instance was deleted meanwhile.
    CANCELED = 'canceled'

    @property
    def is_open(self) -> bool:
        """Whether a taskmanager must continue it."""
        return self in OPEN


OPEN = (
    ReplacementState.REQUESTED,
    ReplacementState.TAKING_OVER,
    ReplacementState.FENCING,
    ReplacementState.MOVING,
    ReplacementState.STARTING,
    ReplacementState.RETURNING,
)


@dataclasses.dataclass(frozen=True)
class ReplacementRecord:
    """The replacement of one server of an instance. Times are in UTC, without a time zone.

    :param reason: what the requester wrote, or the signs of an automatic failover
    :param is_forced: whether it was requested although the instance is healthy
    :param cause: of a failover; None: it was requested by an earlier release, or is no failover
    :param prefers_replica: a replica takes over if one has all that is known
    :param take_over_at: when that was first tried; None: it was not
    :param promoted_id: of the replica that has become the source instead; None: none has
    :param flavor_id: of the new server
    :param former_flavor_id: of the old server, if this is a resize
    :param ram_growth_mib: what a resize adds to the memory that the project uses by its quota
    :param returned_because: why a resize returns to the former flavor; None: it does not
    :param returned_at: when it was decided that it returns
    :param version_id: of the datastore version
    :param step: what is being done, for tenants
    :param error: why the last attempt failed, what it waited for in vain, or why the replacement
        ended
    :param attempts: how many attempts have failed in this state
    :param retry_at: earliest time of the next attempt, by the clock of the database
    :param volume_id: of the data volume; this and the following are noted before the fence
    :param old_host: of the old server; the new one is on another host, if it failed
    :param availability_zone: in which the old server was requested; None: in none
    :param image_id: from which Nova boots a server if no warm guest fits
    :param port_ids: the ports of the instance that keep their addresses
    :param old_management_port_ids: the ports that the old server's agent uses
    :param guest_id: of the warm guest that is being bound
    :param new_management_port_id: of the server that Nova boots
    :param stop_requested_at: when a failover of a database that serves has begun to stop MySQL;
        None: it has not, or has started MySQL again
    :param chosen_at: when a guest or a booted server was chosen as the new server
    :param fenced_at: when Ceph had proved that the old server cannot write
    :param moved_at: when the new server became that of the instance
    :param answered_at: when an attempt last got an answer of the new server's agent
    :param failed_starts: how many starts of MySQL on the new server have failed
    :param given_up_because: why an operator does not wait for MySQL on the new server any longer
    """

    replacement_id: str
    instance_id: str
    project_id: str
    kind: ReplacementKind
    state: ReplacementState
    requested_by: RequestedBy
    created_at: datetime.datetime
    updated_at: datetime.datetime
    reason: str = ''
    is_forced: bool = False
    cause: FailoverCause | None = None
    prefers_replica: bool = False
    take_over_at: datetime.datetime | None = None
    promoted_id: str | None = None
    flavor_id: str | None = None
    former_flavor_id: str | None = None
    ram_growth_mib: int = 0
    returned_because: str | None = None
    returned_at: datetime.datetime | None = None
    version_id: str | None = None
    step: str | None = None
    error: str | None = None
    attempts: int = 0
    retry_at: datetime.datetime | None = None
    volume_id: str | None = None
    old_server_id: str | None = None
    old_host: str | None = None
    availability_zone: str | None = None
    image_id: str | None = None
    port_ids: tuple[str, ...] = ()
    old_management_port_ids: tuple[str, ...] = ()
    guest_id: str | None = None
    new_server_id: str | None = None
    new_host: str | None = None
    new_management_port_id: str | None = None
    stop_requested_at: datetime.datetime | None = None
    chosen_at: datetime.datetime | None = None
    fenced_at: datetime.datetime | None = None
    moved_at: datetime.datetime | None = None
    answered_at: datetime.datetime | None = None
    failed_starts: int = 0
    ended_at: datetime.datetime | None = None
    given_up_because: str | None = None
    claimed_by: str | None = None
    heartbeat_at: datetime.datetime | None = None

    @property
    def can_return(self) -> bool:
        """Whether there is a former flavor to return to: once only."""
        return self.former_flavor_id is not None and self.returned_because is None

    def __str__(self) -> str:
        return f'{self.kind} {self.replacement_id} of instance {self.instance_id}'
