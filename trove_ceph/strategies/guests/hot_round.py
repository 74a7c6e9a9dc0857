# SPDX-License-Identifier: Apache-2.0
"""One round of keeping the hot guests of a pool, as steps that observe before they act.

The record of a guest says that it is loading before anything is created for it, and names its
volume before that is attached. So after any interruption the next round continues, or removes what
there is. Until the volume is attached, a guest can wait as before; afterwards it becomes hot, or is
deleted.
"""

import dataclasses

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.db.guest_record import GuestRecord, GuestState
from trove_ceph.guestagent.waiting_messages import Load, LoadState
from trove_ceph.mysql import fixed_options, my_cnf
from trove_ceph.strategies.guests import each_guest, fitness, spread
from trove_ceph.strategies.guests.dependencies import KeeperDependencies
from trove_ceph.strategies.guests.hot_spec import HotSpec
from trove_ceph.strategies.guests.pool_memory import HotPlan, PoolMemory
from trove_ceph.strategies.guests.pool_spec import PoolSpec

LOG = logging.getLogger(__name__)

#: Failures that the log shows once.
_FINDING = 'finding a golden volume for hot guests'
LOADING = 'loading a guest'
_OFF = 'hot guests are not configured'
_HOT = (GuestState.LOADING, GuestState.HOT)


class HotRound:
    """One round of the hot guests of one pool.

    :param pool: the name of the pool
    """

    def __init__(self, deps: KeeperDependencies, pool: str, spec: PoolSpec, memory: PoolMemory):
        self._deps = deps
        self._pool = pool
        self._spec = spec
        self._memory = memory

    def steps(self) -> list[steps.Step]:
        """Return the steps, each of which is useful if another one fails."""
        return [
            steps.Step('checking hot guests', self._give_up_unfit),
            steps.Step('choosing guests to be loaded', self._choose),
            steps.Step('loading guests', self._load),
        ]

    def _give_up_unfit(self) -> None:
        for guest in self._list(GuestState.LOADING):
            # Also while it is not known with what guests are to be loaded.
            said = self._memory.said.get(guest.guest_id)
            now, settings = self._deps.store.now(), self._deps.settings
            if reason := fitness.why_load_late(guest, now, settings, said):
                self._give_up(guest, reason)
        guests = self._list(*_HOT)
        if not guests:
            return
        plan = self._plan()
        wanted = self._deps.settings.hot
        surplus = len(guests) - wanted
        for number, guest in enumerate(guests):
            if reason := self._why_unfit(guest, plan):
                self._give_up(guest, reason)
            elif number < surplus:
                self._give_up(guest, f'the pool needs only {wanted} hot guests')

    def _why_unfit(self, guest: GuestRecord, plan: HotPlan | None) -> str | None:
        if plan is None:
            return _OFF
        if plan.source is None:
            return 'its golden volume is no longer ready'
        if guest.hot_digest != plan.spec.digest:
            return 'new instances get another volume, version or configuration of MySQL'
        said = self._memory.said.get(guest.guest_id)
        if self._memory.loads.get(guest.guest_id) is LoadState.FAILED:
            return f'its MySQL did not start: {said}'
        return None

    def _choose(self) -> None:
        settings = self._deps.settings
        missing = settings.hot - len(self._list(*_HOT))
        if missing <= 0 or not self._memory.load_backoff.is_over(self._deps.clock()):
            return
        now = self._deps.store.now()
        # A load slows down an instance that starts, as a boot does.
        missing -= fitness.count_just_taken(self._list(*fitness.TAKEN), now, settings)
        if missing <= 0:
            return
        plan = self._plan()
        if plan is None or plan.source is None:
            return
        ready = self._list(GuestState.READY)
        ready = [one for one in ready if not fitness.is_old(one, now, settings)]
        while missing and ready:
            guest = spread.choose_for_load(ready)
            ready.remove(guest)
            missing -= self._begin(guest, plan.spec)

    def _begin(self, guest: GuestRecord, spec: HotSpec) -> bool:
        try:
            self._deps.store.mark_loading(guest.guest_id, spec.digest)
        except (exceptions.InvalidTransitionError, exceptions.RecordNotFoundError):
            LOG.debug('%s: was claimed or retired meanwhile', guest)
            return False
        LOG.info('%s: is made hot', guest)
        return True

    def _load(self) -> None:
        loading = self._list(GuestState.LOADING)
        plan = self._plan() if loading else None
        if plan is not None:
            each_guest.for_each(loading, lambda guest: self._continue(guest, plan))

    def _continue(self, guest: GuestRecord, plan: HotPlan) -> None:
        if guest.volume_id is None:
            created = self._create_volume(guest, plan)
            if created is None:
                return
            guest = created
        assert guest.server_id is not None
        assert guest.volume_id is not None
        self._deps.hot.ensure_attached(guest.server_id, guest.volume_id)
        if self._memory.loads.get(guest.guest_id, LoadState.NONE) is LoadState.NONE:
            load = Load(guest.volume_id, plan.spec.version, plan.spec.contents)
            self._deps.agents.load(guest, load)

    def _create_volume(self, guest: GuestRecord, plan: HotPlan) -> GuestRecord | None:
        """Create the volume of a guest and record it; None: the guest waits as before."""
        if plan.source is None:
            return None
        try:
            volume_id = self._deps.hot.create(guest, plan.spec, plan.source)
        except exceptions.ClaimLostError:
            raise
        except exceptions.TroveCephError as error:
            self._fail(error)
            self._give_up(guest, 'it got no volume')
            return None
        # Before the request to attach it: from now on the guest cannot wait as before.
        self._deps.store.set_volume(guest.guest_id, volume_id)
        return dataclasses.replace(guest, volume_id=volume_id)

    def _give_up(self, guest: GuestRecord, reason: str) -> None:
        """Have a guest wait as before if nothing was attached to it, or have it deleted.

        A volume that will be deleted later must not be found by another load of the same guest.
        """
        is_untouched = guest.state is GuestState.LOADING and guest.volume_id is None
        if is_untouched and self._deps.hot.remove(guest):
            self._deps.store.keep_warm(guest.guest_id)
            LOG.info('%s: stays warm: %s', guest, reason)
        elif self._deps.store.retire(guest.guest_id, reason, only_in=guest.state):
            LOG.info('%s: is retired: %s', guest, reason)
            if guest.state is GuestState.LOADING:
                self._fail(reason)

    def _fail(self, error: object) -> None:
        self._memory.load_backoff.fail(self._deps.clock())
        self._memory.warn(LOADING, error)

    def _plan(self) -> HotPlan | None:
        """Return with what guests are to be loaded now; None: hot guests are off."""
        volume = self._deps.settings.hot_volume
        if volume is None:
            return None
        now = self._deps.clock()
        if (known := self._memory.find_plan(now)) is not None:
            return known
        settings = self._deps.servers.start_settings(self._spec)
        spec = HotSpec(volume, settings.version, settings.contents)
        reason = _why_not_golden(spec)
        source = None if reason else self._deps.hot.find_source(spec)
        if source is None:
            self._memory.warn(_FINDING, reason or _none_ready(spec))
        else:
            self._memory.succeed(_FINDING)
        return self._memory.keep_plan(HotPlan(spec, source), now)

    def _list(self, *states: GuestState) -> list[GuestRecord]:
        return list(self._deps.store.list(self._pool, states))


def _why_not_golden(spec: HotSpec) -> str | None:
    """Return why instances with these settings cannot have clones of golden volumes."""
    differing = fixed_options.find_differing(my_cnf.server_options(spec.contents))
    if not differing:
        return None
    return f'golden volumes are initialised with other values of {", ".join(differing)}'


def _none_ready(spec: HotSpec) -> str:
    return (
        f'there is none of MySQL {spec.version} with {spec.volume.size_gib} GiB and of volume type '
        f'{spec.volume.volume_type} that is ready; build it with "trove-ceph-manage golden-volumes '
        'build"'
    )
