# SPDX-License-Identifier: Apache-2.0
"""A dead source whose failover prefers a replica, with taskmanagers that come and go."""

import datetime

from trove_ceph import exceptions
from trove_ceph.strategies.replication import fitness
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World

SEEN_AT = datetime.datetime(2026, 1, 1)


class TakeOverWorld(World):
    """The source is dead; all that its replicas may lack is what it wrote after the last look.

    :ivar served_until: when its agent last reported
    :ivar promoted: the replica that the failover has noted as the source
    :ivar is_noted_fenced: whether the failover has noted that the source cannot write any more
    :ivar why_refused: why no replica takes over; None: one may
    :ivar has_taken_over: whether a replica has
    :ivar at_recovery: called when the first taskmanager is dead
    :ivar at_confirmation: called when the claim of the failover is confirmed
    :ivar at_fenced: called when the source is fenced
    """

    def __init__(self, replicas=('one', 'two')):
        super().__init__(replicas)
        self.live()
        self.last_known, self.source_seen_at = self.servers[SOURCE].executed, SEEN_AT
        self.servers[SOURCE].is_down = True
        self.served_until = SEEN_AT + datetime.timedelta(seconds=30)
        self.tasks[SOURCE] = self.other_tasks[SOURCE] = 'MIGRATING'
        self.promoted = self.why_refused = None
        self.is_noted_fenced = self.has_taken_over = False
        self.at_recovery = self.at_confirmation = self.at_fenced = lambda: None

    def take_over(self, changes=None):
        """Make one attempt of the failover."""
        demands = fitness.Demands(
            *(self.served_until, lambda: self.at_confirmation()),
            *(self._note_fenced, self._note_promoted),
        )
        try:
            (changes or self.changes()[0]).take_over(SOURCE, self.promoted, demands)
        except exceptions.SourceNotChangedError as error:
            self.why_refused = str(error)
            raise
        self.has_taken_over = True

    def _note_fenced(self):
        self.is_noted_fenced = True
        self.at_fenced()

    def _note_promoted(self, replica_id):
        self.promoted = replica_id

    def recover(self, rounds=5, strike=None):
        """Have other taskmanagers continue what is left; the failover makes further attempts."""
        self.at_recovery()
        for number in range(rounds):
            super().recover(1, strike)
            if self.has_taken_over or self.why_refused:
                continue
            try:
                self.take_over(self.changes(strike, worker=f'again-{number}')[0])
            except exceptions.TroveCephError:
                # The next round makes another attempt, unless it was refused.
                continue
        if strike is None:
            super().recover()

    def move_source(self):
        """Give the source another server with its volume, and have its replicas follow it again."""
        self.serve_source()
        self.end_failover()
        self.changes(worker='moved')[0].follow_again(SOURCE)

    def serve_source(self):
        server = self.servers[SOURCE]
        server.is_down = server.is_fenced = server.is_read_only = False

    def end_failover(self):
        self.tasks[SOURCE] = 'NONE'
        self.other_tasks.pop(SOURCE, None)

    def watch(self):
        """Have the watch over replicas look at the source, which answers."""
        self.changes(worker='watch')[0].resume_replicas(SOURCE)
