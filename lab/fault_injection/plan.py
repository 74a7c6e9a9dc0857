# SPDX-License-Identifier: Apache-2.0
"""Which service is killed when: drawn from a seed, so that a run can be repeated."""

import dataclasses
import random

#: Those whose death an operation on backups can notice.
SERVICES = ('trove-taskmanager', 'trove-ceph-storage', 'cinder-volume')
#: How long each operation takes on the lab: a kill falls anywhere within.
TYPICAL_SEC = {'take': 6.0, 'copy': 12.0, 'verify': 40.0, 'delete': 6.0, 'restore': 12.0}


@dataclasses.dataclass(frozen=True)
class Plan:
    """What one round does.

    :param delay_sec: from the request to the kill
    """

    number: int
    operation: str
    service: str
    delay_sec: float


def draw(seed: int, count: int, verbs: list[str], services: list[str]) -> list[Plan]:
    """Draw rounds: the same of the same seed. Each operation meets each service equally often."""
    source = random.Random(seed)
    pairs = [(verb, service) for verb in verbs for service in services]
    plans = []
    while len(plans) < count:
        source.shuffle(pairs)
        for verb, service in pairs[: count - len(plans)]:
            delay_sec = round(source.uniform(0, TYPICAL_SEC[verb]), 2)
            plans.append(Plan(len(plans) + 1, verb, service, delay_sec))
    return plans
