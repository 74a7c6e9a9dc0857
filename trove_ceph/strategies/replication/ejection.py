# SPDX-License-Identifier: Apache-2.0
"""Eject a dead source: one of its replicas becomes the source of the others.

Ceph cuts the old source off from its volume, with proof, before any replica accepts writes; whether
the source is really dead does not matter then. The replica that has all that any of them has
becomes the source, or else the one with the most, once it has executed what it has received; what
is missing is told. A replica that has transactions which the new source lacks does not follow it,
and keeps them.

A failover requests an ejection as well, for a policy that prefers a replica. Then nothing that is
known may be missing; otherwise the ejection is refused before a replica accepts writes.
"""

from collections.abc import Callable, Mapping, Sequence

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.steps import Step
from trove_ceph.strategies.replication import candidates, fitness, group, new_source
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.strategies.replication.source_dependencies import (
    EJECTION_ERROR,
    Member,
    RowChange,
    SourceDependencies,
)

LOG = logging.getLogger(__name__)

_POLL_SEC = 2
#: After which the agent of a source is silent whose host has failed, as far as Nova knows.
_FAILED_HOST_SEC = 5


def give_up(deps: SourceDependencies, source: Member) -> None:
    """Have nothing but an operator's request revive a source that is ejected; idempotent."""
    # Trove may have ended another request meanwhile, such as a change of the access rules.
    deps.rows.replace_task(source.instance_id, ['NONE'], EJECTION_ERROR)
    deps.disable_failover(source)


class Ejection:
    """The ejection of one source.

    :param is_resumed: another worker began it, and may have made a replica the source
    :param take_over: what a failover demands; None: a tenant has requested the ejection
    """

    def __init__(
        self,
        deps: SourceDependencies,
        source: Member,
        replicas: Sequence[Member],
        is_resumed: bool = False,
        take_over: fitness.Demands | None = None,
    ):
        self._deps = deps
        self._source = source
        self._replicas = {one.instance_id: one for one in replicas}
        self._is_resumed = is_resumed
        self._take_over = take_over
        self._one_copy: frozenset[str] = frozenset()
        self._candidates = candidates.Candidates(deps, source.instance_id, self._replicas)
        self._known = GtidSet()
        self._new: new_source.NewSource | None = None
        self._surplus: dict[str, GtidSet] = {}
        self._missing = GtidSet()
        self._has_begun = is_resumed
        self._begun: set[str] | None = None
        self._last_look: tuple[Mapping[str, ReplicationStatus], str | None] = ({}, None)
        self._is_fenced = False
        self._has_no_writer = False

    @property
    def members(self) -> list[Member]:
        """All instances that have the task of the ejection."""
        return [self._source, *self._replicas.values()]

    def __str__(self) -> str:
        return f'ejection of source {self._source.instance_id}'

    @property
    def has_stopped_source(self) -> bool:
        """Whether its source may be read-only if it fails."""
        # A replica that an interrupted operation has chosen may accept writes.
        return self._has_begun and not self._is_fenced and not self._begun

    @property
    def may_be_committed(self) -> bool:
        """Whether an earlier worker may have passed the point of no return.

        It has not if no replica that it chose accepts writes. Then an ejection that would lose
        transactions ends, as one that was never interrupted, instead of being resumed for ever.
        """
        if not self._is_resumed or self._has_no_writer:
            return False
        return self._begun is None or bool(self._begun)

    def tasks_if_failed(self) -> Mapping[str, str]:
        """Return the tasks of its instances if it fails before the point of no return."""
        tasks = group.free_tasks(self._deps, self.members)
        # A failover keeps its task, and moves the volume.
        if self._take_over is None and (self._is_fenced or self._is_resumed):
            # It cannot write any more; the ejection is to be requested again.
            tasks[self._source.instance_id] = EJECTION_ERROR
        return tasks

    def steps(self) -> list[Step]:
        """Return the steps."""
        return [
            Step('check that a replica can become the source', self._check),
            Step('make the source read-only if it answers', self._stop_writes, undo=self._go_back),
            Step('cut the source off from its volume', self._fence),
            Step('power off the server of the source', self._power_off),
            Step('have the replicas execute what they have received', self._execute),
            Step('choose the new source', self._choose),
            Step('make the replica the source', self._accept_writes, commits=True),
            Step('have the other replicas follow it', self._attach),
            Step('drop replication users that no replica needs', self._drop_users),
            Step('have the volume of the new source flattened', self._flatten),
            Step('record the new source', self._record),
            Step('tell what does not follow', self._check_followers),
        ]

    def _check(self) -> None:
        self._begun = self._deps.choices.find(self._replicas)
        if self._take_over is None:
            group.check_free(self._deps, [self._source])
        if self._source.source_id is not None:
            raise self._refused('it is itself a replica; detach it instead')
        if self._take_over is None and not self._begun:
            self._await_reprovisionings()
        for replica_id in self._replicas:
            if (task := self._deps.find_task(replica_id)) is not None:
                self._candidates.leave_out(replica_id, f'it has the task {task}')
        found = self._candidates.observe()
        self._find_begun(found)
        self._one_copy = self._find_one_copy()
        self._candidates.prefer_others(self._one_copy, strictly=self._take_over is not None)
        if self._take_over is not None:
            # One that was chosen may accept writes; it is looked at once the source is fenced.
            if not self._begun:
                self._check_fit(self._take_over, found)

    def _await_reprovisionings(self) -> None:
        """Return when each replica has been asked for what it has, or waits for an operator.

        One that is re-provisioned may have the most, in the volume that it uses now or gets back.
        Before the exchange of its volumes, its re-provisioning ends because of the task of the
        ejection, and then without an answer of its source.

        :raises SourceNotChangedError: one goes on
        """
        deadline = self._deps.deadline(self._deps.answer_sec)
        while left := [one for one in sorted(self._replicas) if self._deps.is_reprovisioning(one)]:
            if not deadline.pause(_POLL_SEC):
                raise self._refused(
                    f'replica {left[0]} is being re-provisioned, and may have the most: repeat the '
                    'request when that has ended, in some minutes, or delete it to give up what it '
                    'has'
                )

    def _check_fit(
        self, take_over: fitness.Demands, found: Mapping[str, ReplicationStatus]
    ) -> None:
        """Return if a replica may take over.

        :raises SourceNotChangedError: none may
        """
        source_id, replicas = self._source.instance_id, self._deps.replicas
        # Its row shows that it was stopped, if the take-over is refused later.
        for replica_id in sorted(self._replicas.keys() - set(replicas.known(source_id))):
            raise self._refused(f'replica {replica_id} is not watched yet')
        known, seen_at = replicas.last_known(source_id), replicas.source_seen_at(source_id)
        if why := fitness.why_not_known(known, seen_at, take_over.served_until):
            raise self._refused(why)
        assert seen_at is not None
        seen_sec = (replicas.now() - seen_at).total_seconds()
        if why := fitness.why_restarted(found, seen_sec):
            raise self._refused(why)
        for replica_id, server in found.items():
            # An earlier attempt may have stopped it.
            is_stopped = server.io_state is ThreadState.OFF and not self._is_resumed
            if is_stopped or not server.is_replica:
                raise self._refused(f'replica {replica_id} did not receive: {server.io_error}')
        self._check_lacks_nothing(self._candidates.find_best(found)[0], found, known)

    def _check_lacks_nothing(
        self, chosen: str, found: Mapping[str, ReplicationStatus], known: GtidSet
    ) -> None:
        silent = self._candidates.silent
        if why := fitness.why_unfit(chosen, found, silent, known, self._one_copy):
            raise self._refused(why)

    def _find_one_copy(self) -> frozenset[str]:
        """Return the replicas whose storage keeps one copy of their data, or may do so."""
        found = set()
        volumes = self._deps.volumes
        for member in self._replicas.values():
            try:
                if member.volume_id and volumes.has_one_copy(member.volume_id) is False:
                    continue
            except exceptions.TroveCephError as error:
                LOG.warning('%s: the copies of its data are not known: %s', member, error)
            found.add(member.instance_id)
        return frozenset(found)

    def _stop_writes(self) -> None:
        """Have a source that is alive after all end its work, so that nothing is missing."""
        self._known = self._deps.replicas.last_known(self._source.instance_id)
        agents, source_id = self._deps.agents, self._source.instance_id
        if self._ask_nova(self._deps.is_server_off, if_gone=True):
            LOG.info('Source %s: its server is powered off', source_id)
            return
        try:
            self._has_begun = True
            # Also if it refuses to be stopped, such as during a long write.
            self._known |= self._ask_source().gtid_executed
            agents.make_read_only(source_id, True)
            self._known |= agents.status(source_id).gtid_executed
        except exceptions.GuestUnavailableError as error:
            LOG.info('Source %s: does not answer, as expected: %s', source_id, error)
            return
        for replica_id in self._candidates.observe():
            try:
                group.wait_until_executed(self._deps, replica_id, self._known)
            except exceptions.GuestUnavailableError as error:
                LOG.warning('Replica %s: does not answer: %s', replica_id, error)

    def _ask_source(self) -> ReplicationStatus:
        """Return the status of the source, whose time limit is short, since a dead one is silent.

        A host that has failed for Nova may still work, so its agent is asked, too.

        :raises GuestUnavailableError: it does not answer
        """
        is_failed = self._ask_nova(self._deps.has_host_down, if_gone=False)
        timeout_sec = _FAILED_HOST_SEC if is_failed else None
        return self._deps.agents.status(self._source.instance_id, timeout_sec)

    def _ask_nova(self, question: Callable[[str], bool], if_gone: bool) -> bool:
        """Return Nova's answer about the server of the source; False: it does not answer.

        :param if_gone: what to return if the source has no server
        """
        server_id = self._source.server_id
        if server_id is None:
            return if_gone
        try:
            return question(server_id)
        except exceptions.ServiceUnavailableError as error:
            LOG.warning('Server %s: Nova does not answer: %s', server_id, error)
            return False

    def _go_back(self) -> None:
        if self.has_stopped_source and self._ask_source().is_read_only:
            self._deps.agents.make_read_only(self._source.instance_id, False)

    def _fence(self) -> None:
        assert self._source.volume_id is not None
        confirm = None if self._take_over is None else self._take_over.confirm_claim
        try:
            self._deps.volumes.fence(self._source.volume_id, confirm)
        except exceptions.NotFencedError as error:
            LOG.error('Source %s: %s', self._source.instance_id, error)
            raise self._refused(
                'the storage does not prove that it cannot write any more; repeat the request'
            ) from error
        self._is_fenced = True
        if self._take_over is not None:
            self._take_over.note_fenced()

    def _power_off(self) -> None:
        """Keep Nova from starting the server again, which would open the volume anew."""
        if self._source.server_id is None:
            return
        try:
            self._deps.stop_server(self._source.server_id)
        except exceptions.ServiceUnavailableError as error:
            # Repeated once the ejection has ended, as its mark tells.
            LOG.warning(
                'Instance %s: is ejected, but its server is not powered off yet: %s',
                *(self._source.instance_id, error),
            )

    def _execute(self) -> None:
        found, begun = self._look(lambda: self._candidates.observe(self._is_fenced))
        if begun is None:
            # An interrupted request may take effect meanwhile.
            found, begun = self._look(lambda: self._candidates.wait_until_executed(found))
        self._last_look = found, begun

    def _choose(self) -> None:
        # Another look would wait once more for each replica that does not answer.
        found, begun = self._last_look
        chosen = begun or self._candidates.choose(found)
        lost = self._candidates.find_lost(found)
        self._missing = (self._known | lost) - found[chosen].gtid_executed
        if self._take_over is not None:
            if begun is None:
                self._check_lacks_nothing(chosen, found, self._known | lost)
            self._take_over.confirm_claim()
        self._surplus = {
            one: surplus
            for one, server in found.items()
            # What it has from the new source is no surplus, although that was looked at before.
            if one != chosen and not server.follows(found[chosen])
            if (surplus := server.gtid_known - found[chosen].gtid_executed)
        }
        self._new = new_source.NewSource(self._deps, self._replicas[chosen])
        self._new.failures |= self._candidates.silent
        # Shows the next worker which replica may accept writes.
        self._deps.choices.note(chosen)

    def _look(
        self, observe: Callable[[], Mapping[str, ReplicationStatus]]
    ) -> tuple[Mapping[str, ReplicationStatus], str | None]:
        """Return the replicas that answer, and which of them is the source already.

        The source is fenced. So if no replica accepts writes, nothing does, and the ejection may
        end with an error.

        :param observe: returns the replicas that answer
        :raises SourceNotChangedError: see :meth:`_find_begun`
        """
        self._has_no_writer = False
        found = observe()
        begun = self._find_begun(found)
        self._has_no_writer = begun is None
        return found, begun

    def _find_begun(self, found: Mapping[str, ReplicationStatus]) -> str | None:
        """Return the replica that was made the source before an interruption.

        :raises SourceNotChangedError: one may accept writes, and does not answer
        """
        begun = self._deps.choices.find(self._replicas)
        if unknown := begun - found.keys():
            raise self._refused(
                f'replica {", ".join(sorted(unknown))} may be the source already, and does not '
                'answer; repeat the request when it does, or delete it'
            )
        writing = sorted(one for one in begun if found[one].accepts_writes)
        return writing[0] if writing else None

    @property
    def _chosen(self) -> new_source.NewSource:
        assert self._new is not None
        return self._new

    def _accept_writes(self) -> None:
        self._keep_semi_sync()
        self._chosen.accept_writes(may_follow=True)

    def _keep_semi_sync(self) -> None:
        """Have commits of the new source wait for another replica, from the first one on."""
        new_id, agents = self._chosen.member.instance_id, self._deps.agents
        if self._replicas.keys() - {new_id, *self._surplus}:
            group.move_semi_sync(
                *(self._deps, new_id, True),
                is_used=lambda: agents.status(new_id).semi_sync_replica,
            )

    def _attach(self) -> None:
        new_id = self._chosen.member.instance_id
        for replica_id, gtids in self._surplus.items():
            self._chosen.failures[replica_id] = (
                f'it has {gtids.count} transactions that the new source lacks, and keeps them '
                f'read-only: {group.shown(gtids)}'
            )
        self._chosen.attach(
            self._replicas[one]
            for one in sorted(self._replicas)
            if one != new_id and one not in self._chosen.failures
        )

    def _drop_users(self) -> None:
        self._chosen.drop_users(self._followers())

    def _flatten(self) -> None:
        volume_id = self._chosen.member.volume_id
        assert volume_id is not None
        self._deps.volumes.flatten(volume_id)

    def _followers(self) -> list[Member]:
        new_id = self._chosen.member.instance_id
        return [one for one in self._replicas.values() if one.instance_id != new_id]

    def _record(self) -> None:
        new_id, source_id = self._chosen.member.instance_id, self._source.instance_id
        if self._take_over is not None:
            # The next worker does not find it in the rows of the replicas any more.
            self._take_over.note_promoted(new_id)
        self._deps.replicas.promote(source_id, new_id, keeps_source=False)
        for instance_id in self._chosen.failures.keys() - {new_id}:
            # Not re-provisioned by itself, since it may have what no other has.
            self._deps.replicas.note_surplus(instance_id)
            if instance_id not in self._surplus or self._has_written(instance_id):
                # This ejection may have stopped it. The watch has it follow when it answers.
                self._deps.replicas.note_stopped(instance_id)
        self._chosen.mark(SourceMark.UNFINISHED_EJECTION)
        self._deps.marks.set(source_id, SourceMark.EJECTED)
        changes = [RowChange(source_id, None, EJECTION_ERROR)]
        for member in self._replicas.values():
            follows = None if member is self._chosen.member else new_id
            changes.append(group.row_of(self._deps, member, follows))
        self._deps.rows.record(changes)
        give_up(self._deps, self._source)
        told = {
            instance_id: f'{why}. {self._describe_next(instance_id)}'
            for instance_id, why in self._chosen.failures.items()
        }
        for instance_id in told.keys() - {new_id}:
            self._fault(instance_id, f'ejection of {source_id}: {told[instance_id]}')
        missing = self._describe_missing()
        self._fault(
            source_id,
            f'ejected: {new_id} is the source now; this server is cut off from its volume and '
            f'is being powered off. Delete it when its data is not needed. {missing}',
        )
        # An instance has one fault, and the list of transactions may be cut.
        facts = [f'source since the ejection of {source_id}.']
        if new_id in told:
            facts.append(f'{told[new_id]}.')
        if warning := group.one_copy_warning(self._deps, self._chosen.member):
            facts.append(warning)
        self._fault(new_id, ' '.join([*facts, missing]))
        LOG.warning(
            'Instance %s: is the source instead of %s, which is ejected. %s',
            *(new_id, source_id, missing),
        )

    def _describe_next(self, instance_id: str) -> str:
        """Return what becomes of an instance that does not follow, or does not accept writes."""
        if instance_id in self._surplus and self._has_written(instance_id):
            return 'Detach it now to keep them: what was written on a replica is discarded later'
        if instance_id in self._surplus:
            return 'Detach it to keep them, or re-provision it to discard them'
        if instance_id == self._chosen.member.instance_id:
            return 'It accepts writes as soon as it answers'
        return 'It follows the new source as soon as it can'

    def _has_written(self, instance_id: str) -> bool:
        """Return whether a replica has written all of its surplus itself, as a replica.

        See :func:`.observation.lost_by_source`: one that was the source has written what its
        clients have committed.
        """
        found, _begun = self._last_look
        surplus, own_uuid = self._surplus[instance_id], found[instance_id].server_uuid
        new = found.get(self._chosen.member.instance_id)
        if new is not None and new.gtid_executed.written_by(own_uuid):
            return False
        return not surplus - surplus.written_by(own_uuid)

    def _describe_missing(self) -> str:
        """Return which transactions of the old source or a replica are missing, as far as known."""
        if self._missing:
            count = self._missing.count
            return f'At least {count} transactions are missing: {group.shown(self._missing)}'
        if not self._known:
            return 'What the old source had beyond it is not known'
        return 'No transaction is known to be missing'

    def _fault(self, instance_id: str, text: str) -> None:
        group.add_fault(self._deps, instance_id, text)

    def _check_followers(self) -> None:
        self._deps.choices.forget(self._chosen.member.instance_id)
        self._chosen.check()

    def _refused(self, why: str) -> exceptions.SourceNotChangedError:
        return candidates.refused(self._source.instance_id, why)
