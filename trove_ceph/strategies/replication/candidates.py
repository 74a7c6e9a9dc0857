# SPDX-License-Identifier: Apache-2.0
"""The replicas of a dead source, of which one becomes the source.

What a replica has received may be the last copy of a transaction, and is only in its relay log
until it is executed: the replica discards it when it restarts, or follows another source. So what
no other replica has executed is waited for as long as there is progress, and without progress, no
replica is chosen. To give it up is left to the tenant, who detaches or deletes the replica.
"""

import functools
import operator
from collections.abc import Collection, Iterable, Mapping

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replication import group, source_choice
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.strategies.replication.source_dependencies import SourceDependencies

LOG = logging.getLogger(__name__)

_MOST_WAIT_SEC = 3600

#: What replicas report, by their ids.
_Found = Mapping[str, ReplicationStatus]


class Candidates:
    """The replicas of one source that is ejected.

    :param replica_ids: of all its replicas
    :ivar silent: why replicas do not take part, by their ids, as of the last :meth:`observe`
    """

    def __init__(self, deps: SourceDependencies, source_id: str, replica_ids: Collection[str]):
        self._deps = deps
        self._source_id = source_id
        self._replica_ids = sorted(replica_ids)
        self._left_out: dict[str, str] = {}
        self._not_preferred: frozenset[str] = frozenset()
        self._prefers_strictly = False
        self._seen: dict[str, GtidSet] = {}
        self.silent: dict[str, str] = {}

    def leave_out(self, replica_id: str, why: str) -> None:
        """Do not ask a replica, which cannot become the source."""
        self._left_out[replica_id] = why

    def prefer_others(self, replica_ids: Collection[str], strictly: bool) -> None:
        """Choose one of these replicas only if no other one that answers is as good.

        :param strictly: any other one is as good, also if it has less
        """
        self._not_preferred = frozenset(replica_ids)
        self._prefers_strictly = strictly

    def observe(self, is_fenced: bool = False) -> dict[str, ReplicationStatus]:
        """Return the replicas whose agents answer, by their ids.

        One that has not answered before is asked again: it may have the most.

        :param is_fenced: the source is, and the replicas receive no more
        :raises SourceNotChangedError: none answers
        """
        found = {}
        before, self.silent = self.silent, dict(self._left_out)
        for replica_id in self._replica_ids:
            if replica_id in self._left_out:
                continue
            try:
                found[replica_id] = status = self._status(replica_id, is_fenced)
            except exceptions.GuestUnavailableError as error:
                if replica_id not in before:
                    LOG.warning('Replica %s: takes no part in the ejection: %s', replica_id, error)
                self.silent[replica_id] = str(error)
            else:
                self._seen[replica_id] = status.gtid_known | self._seen.get(replica_id, GtidSet())
        if not found:
            why = '; '.join(f'replica {one}: {error}' for one, error in sorted(self.silent.items()))
            raise refused(
                self._source_id,
                f'none of its replicas is available; repeat the request when one is: {why}',
            )
        return found

    def _status(self, replica_id: str, is_fenced: bool) -> ReplicationStatus:
        agents = self._deps.agents
        status = agents.status(replica_id)
        if is_fenced and status.is_replica and status.io_state is not ThreadState.OFF:
            # Before the request, so that the watch finds it if this worker dies.
            self._deps.replicas.note_stopped(replica_id)
            agents.stop_receiving(replica_id)
            # Read again: it may have received more until it stopped.
            status = agents.status(replica_id)
        return status

    def wait_until_executed(self, found: _Found) -> _Found:
        """Return when :meth:`choose` may succeed, or no replica makes progress any more.

        The source is fenced.

        :param found: see :meth:`observe`
        :returns: the replicas that answer by then
        """
        patience = group.Patience(self._deps, _MOST_WAIT_SEC)
        while left := self._find_progressing(found):
            if patience.is_over({one: found[one].gtid_executed for one in left if one in found}):
                if not self._prefers_strictly:
                    # The one that is not preferred may need nothing more.
                    self._not_preferred = frozenset()
                break
            self._wait(left, found, patience)
            found = self.observe(is_fenced=True)
        return found

    def _find_progressing(self, found: _Found) -> dict[str, GtidSet]:
        """Return what is to be executed by replicas that may go on by themselves, by their ids."""
        _chosen, unexecuted = self.find_best(found)
        return {
            one: gtids
            for one, gtids in unexecuted.items()
            if one not in found or found[one].is_applying
        }

    def find_best(self, found: _Found) -> tuple[str, dict[str, GtidSet]]:
        """Return the best new source, and what is only in relay logs without it.

        :param found: see :meth:`observe`
        """
        executed = {one: server.gtid_executed for one, server in found.items()}
        known = self._seen | {one: server.gtid_known for one, server in found.items()}
        chosen = source_choice.choose(executed, known)
        others = {one: executed[one] for one in executed if one not in self._not_preferred}
        if others:
            other = source_choice.choose(others, known)
            # What it has received is waited for as long as it goes on.
            is_done = executed[chosen] <= executed[other]
            has_all = known[chosen] <= known[other] and (is_done or found[other].is_applying)
            if has_all or self._prefers_strictly:
                chosen = other
        return chosen, source_choice.find_unexecuted(chosen, executed, known)

    def _wait(self, left: Mapping[str, GtidSet], found: _Found, patience: group.Patience) -> None:
        replica_id = next((one for one in left if one in found), None)
        if replica_id is not None:
            LOG.info(
                'Replica %s: %d transactions that it has received are to be executed',
                *(replica_id, left[replica_id].count),
            )
            try:
                patience.wait(replica_id, found[replica_id].gtid_known)
            except exceptions.GuestUnavailableError as error:
                LOG.warning('Replica %s: does not answer: %s', replica_id, error)
        self._deps.sleep(group.POLL_SEC)

    def choose(self, found: _Found) -> str:
        """Return the id of the new source.

        :param found: see :meth:`observe`
        :raises SourceNotChangedError: a replica has not executed what may be the last copy
        """
        chosen, unexecuted = self.find_best(found)
        for replica_id, gtids in unexecuted.items():
            raise refused(
                self._source_id,
                f'replica {replica_id} {_describe(found.get(replica_id), gtids, chosen)}',
            )
        return chosen

    def find_lost(self, found: _Found) -> GtidSet:
        """Return the transactions that a replica had, and that none has that answers now."""
        return _union(self._seen.values()) - _union(one.gtid_known for one in found.values())


def refused(source_id: str, why: str) -> exceptions.SourceNotChangedError:
    """Return the error of an ejection that is refused."""
    return exceptions.SourceNotChangedError(f'source {source_id}: cannot be ejected: {why}')


def _describe(server: ReplicationStatus | None, unexecuted: GtidSet, chosen: str) -> str:
    """Return why a replica hinders a choice, and what to do; None: it does not answer."""
    count = unexecuted.count
    if server is None:
        return (
            f'has {count} transactions that replica {chosen} lacks, and does not answer: repeat '
            'the request when it does; a request now leaves it out'
        )
    if server.is_applying:
        return (
            f'still executes {count} transactions that it has received: repeat the request later, '
            f'or delete it to give them up: {unexecuted}'
        )
    return (
        f'has stopped before {count} transactions that it has received: repair it and repeat the '
        'request, or detach or delete it to give them up: '
        f'{server.sql_error or "its SQL thread is stopped"}'
    )


def _union(gtid_sets: Iterable[GtidSet]) -> GtidSet:
    return functools.reduce(operator.or_, gtid_sets, GtidSet())
