# SPDX-License-Identifier: Apache-2.0
"""What remains of a cluster when hosts or racks are lost, computed and asked of CRUSH."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trove_ceph.reference_figures import BACKFILLFULL, FULL
from trove_ceph.sizing import crush
from trove_ceph.sizing.cluster import Cluster, recovery_sec
from trove_ceph.sizing.crush import Crushtool, Mapping, Spread
from trove_ceph.sizing.topology import Failure, Topology

#: Placement groups by which an OSD may exceed the mean when the balancer of the manager has ended
#: (upmap_max_deviation).
_BALANCED_DEVIATION = 5


@dataclass(frozen=True)
class Outcome:
    """The arithmetic of a failure.

    :param lost_nodes: the numbers of the lost hosts
    :param domains_left: failure domains that still have a host
    :param is_placeable: whether all copies or chunks find a failure domain
    :param fill: share of the remaining raw space, when all that can be recovered is
    :param domain_fill: the same of the fullest failure domain, with the data spread as evenly as
        the copies or chunks can be. It is more than ``fill`` if a rack has lost hosts, and the
        others are too few to do without it
    :param recovery_sec: until then; None: there is no place for all of it
    :param may_lose_data: whether some objects may have had all their copies, or too many of their
        chunks, on lost hosts
    :param may_stop_writes: whether some objects may have fewer copies than a write needs
    """

    lost_nodes: frozenset[int]
    domains_left: int
    is_placeable: bool
    fill: float
    domain_fill: float
    recovery_sec: float | None
    may_lose_data: bool
    may_stop_writes: bool

    @property
    def is_even(self) -> bool:
        """Whether all failure domains can be equally full."""
        return math.isclose(self.domain_fill, self.fill)

    @property
    def is_full(self) -> bool:
        """Whether Ceph stops the recovery before its end."""
        return self.domain_fill >= BACKFILLFULL

    def as_document(self) -> dict[str, Any]:
        """Return it with names as keys, for programs."""
        document = asdict(self) | {'lost_nodes': sorted(self.lost_nodes)}
        return document | {'stops_at_backfillfull': self.is_full}


@dataclass(frozen=True)
class Check:
    """What CRUSH says.

    :param before: the placement of the whole cluster
    :param after: that without the lost hosts; None: none are lost
    :param degraded: placement groups that lost a copy or chunk
    :param stopped: those that have too few for writes until they are recovered
    :param gone: those that have too few to be recovered
    """

    before: Spread
    after: Spread | None = None
    degraded: int = 0
    stopped: int = 0
    gone: int = 0


def topology(cluster: Cluster) -> Topology:
    """Return the hosts and racks of a cluster."""
    design = cluster.request.design
    return Topology(
        nodes=cluster.nodes,
        nodes_per_rack=design.nodes_per_rack,
        osds_per_node=cluster.devices_per_node * design.device.osds,
        domain=design.failure_domain,
    )


def simulate(cluster: Cluster, failures: Sequence[Failure]) -> Outcome:
    """Return what remains when hosts or racks are lost at once.

    :raises InvalidFleetError: there are fewer of them, or none would be left
    """
    layout, redundancy = topology(cluster), cluster.request.design.redundancy
    lost = layout.lost_nodes(failures)
    hit, left = layout.lost_domains(lost)
    used = cluster.demand.used_bytes
    is_placeable = left >= redundancy.chunks
    if not is_placeable:
        # Each object keeps the copies or chunks that find a failure domain.
        used *= left / redundancy.chunks
    nodes = cluster.nodes - len(lost)
    # As many hosts as the data would fill.
    full_hosts = used / cluster.raw_bytes * cluster.nodes
    domain_fill = _domain_fill(
        full_hosts, full_hosts / min(left, redundancy.chunks), layout.hosts_left(lost)
    )
    seconds = None
    if is_placeable and domain_fill < BACKFILLFULL:
        moved = used * len(lost) / cluster.nodes
        seconds = recovery_sec(
            cluster.demand, nodes, cluster.devices_per_node, cluster.network_gbit, moved
        )
    return Outcome(
        lost_nodes=lost,
        domains_left=left,
        is_placeable=is_placeable,
        fill=full_hosts / nodes,
        domain_fill=domain_fill,
        recovery_sec=seconds,
        may_lose_data=hit > redundancy.m,
        may_stop_writes=redundancy.chunks - hit < redundancy.min_size,
    )


def _domain_fill(data: float, most: float, hosts: Sequence[int]) -> float:
    """Return how full the fullest failure domain is if the data is spread as evenly as it can be.

    :param data: as many hosts as it would fill
    :param most: what one domain may have of it, which is a copy or chunk of each object
    :param hosts: the hosts of each domain
    """
    # The largest domains may have less than their share of the hosts.
    left = sorted(hosts)
    while len(left) > 1 and data / sum(left) * left[-1] > most:
        data -= most
        left.pop()
    return data / sum(left)


def check(cluster: Cluster, lost_nodes: frozenset[int], tool: Crushtool) -> Check:
    """Return how CRUSH places the data, with and without the lost hosts."""
    layout, design = topology(cluster), cluster.request.design
    chunks = design.redundancy.chunks
    size = design.device.size_bytes / design.device.osds
    text = crush.map_text(layout, design.redundancy, size)
    before = tool.place(text, cluster.pg_num, chunks)
    whole = crush.spread(before, chunks, layout.osds)
    if not lost_nodes:
        return Check(whole)
    lost = {osd for node in lost_nodes for osd in layout.osds_of(node)}
    after = tool.place(text, cluster.pg_num, chunks, lost)
    return Check(
        before=whole,
        after=crush.spread(after, chunks, layout.osds - len(lost)),
        **_hit(before, lost, cluster),
    )


def _hit(before: Sequence[Mapping], lost: set[int], cluster: Cluster) -> dict[str, int]:
    """Return the placement groups that lose copies, by what they still can."""
    redundancy = cluster.request.design.redundancy
    alive = [sum(osd >= 0 and osd not in lost for osd in one) for one in before]
    return {
        'degraded': sum(number < redundancy.chunks for number in alive),
        'stopped': sum(number < redundancy.min_size for number in alive),
        'gone': sum(number < redundancy.k for number in alive),
    }


def highest_fill(fill: float, placed: Spread) -> float:
    """Return the fill of the fullest OSD as CRUSH places the data, without the balancer."""
    return fill * (1 + placed.deviation)


def balanced_fill(domain_fill: float, fill: float, placed: Spread) -> float:
    """Return the fill that the fullest OSD has at most when the balancer has ended.

    :param domain_fill: that of the fullest failure domain, out of which the balancer moves nothing
    """
    return domain_fill + fill * _BALANCED_DEVIATION / placed.mean if placed.mean else 0


def problems(cluster: Cluster, outcome: Outcome | None, found: Check | None) -> list[str]:
    """Return what an operator should not accept, in words."""
    texts = []
    if outcome:
        texts += _of_outcome(cluster, outcome)
    if found:
        texts += _of_check(cluster, outcome, found)
    return texts


def _of_outcome(cluster: Cluster, outcome: Outcome) -> list[str]:
    design = cluster.request.design
    texts = []
    if not outcome.is_placeable:
        texts.append(
            f'{outcome.domains_left} {design.failure_domain}s are left, and {design.redundancy} '
            f'need {design.redundancy.chunks}: the data stays degraded until a host is back'
        )
    if outcome.is_full:
        rest = 'remaining hosts' if outcome.is_even else f'rest of a {design.failure_domain}'
        texts.append(
            f'the {rest} would be {outcome.domain_fill:.1%} full: recovery stops at '
            f'{BACKFILLFULL:.0%} (backfillfull), writes stop at {FULL:.0%} (full)'
        )
    return texts


def _of_check(cluster: Cluster, outcome: Outcome | None, found: Check) -> list[str]:
    texts = []
    if found.gone:
        texts.append(f'{found.gone} placement groups lose all that could recover them')
    if outcome and outcome.is_placeable and found.after and found.after.incomplete:
        texts.append(
            f'CRUSH finds no place for all copies of {found.after.incomplete} placement groups'
        )
    if outcome and found.after:
        balanced = balanced_fill(outcome.domain_fill, outcome.fill, found.after)
    else:
        balanced = balanced_fill(cluster.fill, cluster.fill, found.before)
    if balanced >= BACKFILLFULL and not (outcome and outcome.is_full):
        texts.append(f'the fullest OSD may be {balanced:.1%} full even with the balancer')
    return texts
