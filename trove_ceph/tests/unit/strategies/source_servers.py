# SPDX-License-Identifier: Apache-2.0
"""The MySQL servers of a source and its replicas in memory, with GTID sets."""

import dataclasses

from trove_ceph.mysql.gtid import GtidSet


def gtids(server, first, last=None):
    """Return transactions that a server has committed."""
    return GtidSet.parse(f'{uuid_of(server)}:{first}-{last or first}')


def uuid_of(server):
    digits = f'{server.encode().hex():0<32.32}'
    return '-'.join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _first(gtid_set):
    origin, intervals = gtid_set.origins[0]
    return GtidSet(((origin, ((intervals[0][0],) * 2,)),))


@dataclasses.dataclass
class Server:
    """A MySQL server.

    :param source_id: of the server that it follows
    :param is_down: it is dead, and so is its agent
    :param is_silent: its agent does not answer
    :param is_stuck: it receives transactions, and does not execute them
    :param sql_error: why it does not execute them; with a text, it is stuck
    :param uptime_sec: since it started; None: its agent does not tell
    :param semi_sync: its sides, that of a source and that of a replica, and the timeout in ms
    :param pace_sec: how long it takes for one; 0: it executes all at once
    """

    executed: GtidSet
    received: GtidSet = dataclasses.field(default_factory=GtidSet)
    source_id: str | None = None
    receives: bool = False
    is_read_only: bool = False
    is_fenced: bool = False
    is_down: bool = False
    is_silent: bool = False
    is_stuck: bool = False
    sql_error: str = ''
    uptime_sec: float | None = None
    semi_sync: tuple[bool, bool, int] = (False, False, 0)
    pace_sec: float = 0
    next_at: float = 0
    written: int = 0

    def execute(self, now):
        """Execute what it has received, or as much of it as it can until now."""
        if self.is_stuck or self.sql_error:
            return
        if not self.pace_sec:
            self.executed |= self.received
        while self.next_at <= now and (waiting := self.received - self.executed):
            self.executed |= _first(waiting)
            self.next_at += self.pace_sec

    def restart(self):
        """Discard the relay log, which the server fetches from its source again."""
        self.received, self.receives = GtidSet(), False

    @property
    def accepts_writes(self):
        is_up = not self.is_down and not self.is_fenced
        return is_up and self.source_id is None and not self.is_read_only
