# SPDX-License-Identifier: Apache-2.0
"""Wait for warm guests, and tell whether an instance got one.

The records of the cloud say it. ``BENCH_GUESTS`` is a command that prints them as
``trove-ceph-manage guests list -f json`` does, which is the default.
"""

import argparse
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from trove_ceph import exceptions, waiting
from trove_ceph_bench import configured, operation_output
from trove_ceph_bench.targets import cloud

#: A guest that has not answered for 90 s is not claimed.
FRESH_SEC = 60
_POLL_SEC = 5
#: So many looks in a row find the same: the taskmanager looks after the pool every ten seconds, and
#: only then retires the guest of an instance that was deleted, and boots or loads others.
_LOOKS = 5
_READY = 'ready'
#: The states of guests that use the processors.
_BUSY = ('booting', 'loading', 'retired')
_LIST = 'trove-ceph-manage guests list -f json'
_PURPOSE = 'prints the warm guests in JSON'
_FILE = 'waiting-guests.json'

Guests = Sequence[Mapping[str, Any]]


class Pool:
    """The warm guests of a cloud.

    :param list_guests: returns the records
    """

    def __init__(
        self,
        list_guests: Callable[[], Guests],
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._list_guests = list_guests
        self._start_wait = start_wait

    def await_ready(self, timeout_sec: float, *states: str) -> Sequence[str]:
        """Wait until a guest is ready and none will be booted; return the ids of those ready.

        The boot of a guest would take the processors from the operation that is timed, and so would
        the start of MySQL on it.

        :param states: ``ready``, which is the default, or ``hot`` for hot guests, or both
        :raises LoadFailedError: there is still none after the time limit
        """
        states = states or (_READY,)
        deadline = self._start_wait(timeout_sec)
        looks, before = 0, list[str]()
        while True:
            guests = self._list_guests()
            is_busy = any(one['state'] in _BUSY for one in guests)
            ready = [one['guest_id'] for one in guests if not is_busy and _is_ready(one, *states)]
            looks = looks + 1 if ready == before else 1
            before = ready
            if ready and looks == _LOOKS:
                return ready
            if not deadline.pause(_POLL_SEC):
                found = ', '.join(sorted(one['state'] for one in guests)) or 'none'
                raise exceptions.LoadFailedError(
                    f'no warm guest is {" or ".join(states)} after {timeout_sec:.0f} s, '
                    f'found: {found}; see [trove_ceph_guests] of trove-taskmanager (in the lab: '
                    'warm_guests and hot_guests in lab.toml)'
                )

    def list_ready(self, flavor_id: str, not_on: str) -> Sequence[str]:
        """Return the ids of the guests that are ready for a failover.

        :param flavor_id: that of the instance
        :param not_on: the host of the instance
        """
        return [
            one['guest_id']
            for one in self._list_guests()
            if _is_ready(one, _READY)
            and one['flavor_id'] == flavor_id
            and one['host'] not in (None, not_on)
        ]

    def is_bound_to(self, instance_id: str, waited: Collection[str]) -> bool:
        """Return whether an instance has one of the guests that waited before the operation."""
        return any(
            one['guest_id'] in waited
            and one['instance_id'] == instance_id
            and one['state'] == 'bound'
            for one in self._list_guests()
        )

    def list_bound(self) -> Guests:
        """Return the guests that instances have now."""
        return [one for one in self._list_guests() if one['state'] == 'bound']

    def of_instance(self, instance_id: str) -> Guests:
        """Return the guests that an instance has claimed, also those not deleted since then."""
        return [one for one in self._list_guests() if one['instance_id'] == instance_id]


def _is_ready(guest: Mapping[str, Any], *states: str) -> bool:
    answer_sec = guest['answer_sec']
    return guest['state'] in states and answer_sec is not None and answer_sec <= FRESH_SEC


_AWAIT = 'wait until a guest is ready, and none is being booted or will be'
_CHECK = (
    'check that an instance got a guest that waited before the operation, or (cold) that it got no '
    'guest at all'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verbs and their arguments to a parser."""
    verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
    wait = verbs.add_parser('await', help=_AWAIT, description=_AWAIT)
    wait.add_argument(
        '--timeout',
        type=float,
        default=1800,
        metavar='SECONDS',
        help='limit of the wait (%(default)s)',
    )
    wait.add_argument('--hot', action='store_true', help='wait for a hot guest')
    check = verbs.add_parser('check', help=_CHECK, description=_CHECK)
    check.add_argument('instance', metavar='INSTANCE')
    check.add_argument('start', choices=('warm', 'cold'), help='what it must have been')


def main(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> None:
    """Run the parsed verb.

    :raises LoadFailedError: no guest is ready in time, or the start was of the other kind
    :raises TargetUnavailableError: there is no such instance
    """
    directory = operation_output.directory(environ)
    if directory is None:
        raise exceptions.LoadFailedError('BENCH_DIRECTORY is not set; plans of operations set it')
    file = directory / _FILE
    pool = Pool(_list_guests)
    if arguments.verb == 'await':
        state = 'hot' if arguments.hot else 'ready'
        waiting_ids = pool.await_ready(arguments.timeout, state)
        bound = [one['guest_id'] for one in pool.list_bound()]
        file.write_text(json.dumps({'waiting': waiting_ids, 'bound': bound}))
        return
    _, trove = cloud.clients()
    found = cloud.find_one(trove.instances, arguments.instance)
    before = json.loads(file.read_text())
    if arguments.start == 'warm' and not pool.is_bound_to(found.id, before['waiting']):
        raise exceptions.LoadFailedError(
            f'instance {arguments.instance} has none of the guests that waited before, so it does '
            'not count as warm'
        )
    # It may have got another guest than those, and may have had one before the operation.
    got = [
        one['guest_id']
        for one in pool.list_bound()
        if one['instance_id'] == found.id and one['guest_id'] not in before['bound']
    ]
    if arguments.start == 'cold' and got:
        raise exceptions.LoadFailedError(
            f'instance {arguments.instance} has got the guest {got[0]}, so it does not count as '
            'cold'
        )


def _list_guests() -> Guests:
    return json.loads(configured.read('BENCH_GUESTS', _PURPOSE, _LIST))
