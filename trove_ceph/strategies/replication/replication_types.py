# SPDX-License-Identifier: Apache-2.0
"""What the guest agents of a source and of its replicas report."""

import dataclasses
import enum

from trove_ceph.mysql.gtid import GtidSet


class ThreadState(enum.StrEnum):
    """The state of one of the two threads of a replica."""

    ON = 'ON'
    OFF = 'OFF'
    CONNECTING = 'CONNECTING'


@dataclasses.dataclass(frozen=True)
class ReplicationStatus:
    """The replication of one server; the guest that reports it is not trusted.

    :param gtid_executed: all transactions of the data
    :param gtid_received: what the replica has received since it follows its source; empty for a
        source
    :param is_replica: it has a replication source, even if it does not receive from it now
    :param source_uuid: empty until the replica has connected to its source
    :param io_state: of the thread that receives transactions
    :param sql_state: of the thread that applies them; ON or OFF
    :param io_error: why the replica does not receive, one line; empty: no error
    :param sql_error: why the replica does not apply, one line; empty: no error
    :param io_error_number: of MySQL; 0: no error
    :param sql_error_number: of MySQL; 0: no error
    :param lag_sec: age of the oldest transaction that is received and not applied, 0.0 if there is
        none; None: unknown, as while the replica is cut off from its source. Of transactions that
        are not received, it knows nothing
    :param is_read_only: the server refuses writes even of administrators
    :param uptime_sec: since the server started, which discards what it had received and not
        executed; None: not known to the agent, which is older
    :param semi_sync_source: its commits wait for a replica that has enabled it as well
    :param semi_sync_replica: it acknowledges transactions that it has received
    :param semi_sync_clients: number of connected replicas that acknowledge
    :param semi_sync_waits: a commit waits for one of them now, since none has waited in vain; None:
        not known to the agent, which is older
    """

    server_uuid: str
    gtid_executed: GtidSet
    gtid_received: GtidSet = dataclasses.field(default_factory=GtidSet)
    is_replica: bool = False
    source_host: str = ''
    source_uuid: str = ''
    io_state: ThreadState = ThreadState.OFF
    sql_state: ThreadState = ThreadState.OFF
    io_error: str = ''
    sql_error: str = ''
    io_error_number: int = 0
    sql_error_number: int = 0
    lag_sec: float | None = None
    is_read_only: bool = False
    uptime_sec: float | None = None
    semi_sync_source: bool = False
    semi_sync_replica: bool = False
    semi_sync_clients: int = 0
    semi_sync_waits: bool | None = None

    @property
    def is_replicating(self) -> bool:
        """Whether the replica receives and applies transactions."""
        return self.io_state == self.sql_state == ThreadState.ON

    @property
    def is_applying(self) -> bool:
        """Whether the replica applies what it has received, and has not stopped at an error."""
        return self.sql_state == ThreadState.ON and not self.sql_error

    @property
    def gtid_known(self) -> GtidSet:
        """All transactions that the server has, also those that it has not executed yet."""
        return self.gtid_executed | self.gtid_received

    @property
    def gtid_unexecuted(self) -> GtidSet:
        """What the server has received and not executed."""
        return self.gtid_received - self.gtid_executed

    @property
    def semi_sync_active(self) -> bool | None:
        """Whether a commit is acknowledged only when a replica has it; None: not known."""
        if not self.semi_sync_source or not self.semi_sync_clients:
            return False
        return self.semi_sync_waits

    @property
    def accepts_writes(self) -> bool:
        """Whether it follows no source and refuses no writes."""
        return not self.is_replica and not self.is_read_only

    def follows(self, source: 'ReplicationStatus') -> bool:
        """Return whether its source is a certain server."""
        return self.is_replica and self.source_uuid == source.server_uuid
