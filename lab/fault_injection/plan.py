# SPDX-License-Identifier: Apache-2.0
"""The plan of kills, drawn from a seed, so that a run can be repeated."""

import dataclasses
import random

#: The services whose death can affect an operation.
SERVICES = ('trove-taskmanager', 'trove-ceph-storage', 'cinder-volume')
#: The duration of each operation on the lab; a kill happens at a random moment within it.
TYPICAL_SEC = {
    'take': 4.0,
    'copy': 8.0,
    'verify': 15.0,
    'delete': 2.0,
    'restore': 8.0,
    'create-replica': 8.0,
    'delete-replica': 6.0,
    'reprovision': 30.0,
    'promote': 20.0,
    'detach': 10.0,
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of one round.

    :param delay_sec: the time from the request to the kill
    """

    number: int
    operation: str
    service: str
    delay_sec: float


def draw(seed: int, count: int, verbs: list[str], services: list[str]) -> list[Plan]:
    """Draw rounds by seed; each pair of operation and service occurs equally often."""
    source = random.Random(seed)
    pairs = [(verb, service) for verb in verbs for service in services]
    plans = []
    while len(plans) < count:
        source.shuffle(pairs)
        for verb, service in pairs[: count - len(plans)]:
            delay_sec = round(source.uniform(0, TYPICAL_SEC[verb]), 2)
            plans.append(Plan(len(plans) + 1, verb, service, delay_sec))
    return plans
