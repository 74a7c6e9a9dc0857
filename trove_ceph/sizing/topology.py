# SPDX-License-Identifier: Apache-2.0
"""The hosts, racks and OSDs of a cluster by number, and which of them fail."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from trove_ceph import exceptions
from trove_ceph.sizing.fleet import FailureDomain

_FAILURE = re.compile(r'(host|rack)(?::([1-9][0-9]{0,4}))?')


@dataclass(frozen=True)
class Failure:
    """Hosts or racks that are lost at once."""

    kind: FailureDomain
    count: int


def parse_failure(text: str) -> Failure:
    """Return the failure that a text such as ``rack`` or ``host:2`` names.

    :raises InvalidFleetError: the text has another form
    """
    match = _FAILURE.fullmatch(text)
    if not match:
        raise exceptions.InvalidFleetError(
            f'--fail {text}: must be host or rack, with a number for several, such as host:2'
        )
    return Failure(FailureDomain(match[1]), int(match[2] or 1))


@dataclass(frozen=True)
class Topology:
    """Hosts, filled into racks one after the other.

    :param nodes_per_rack: None: there are no racks
    """

    nodes: int
    nodes_per_rack: int | None
    osds_per_node: int
    domain: FailureDomain

    @property
    def racks(self) -> list[range]:
        """The hosts of each rack; without racks, one range with all."""
        per_rack = self.nodes_per_rack or self.nodes
        return [
            range(rack * per_rack, min((rack + 1) * per_rack, self.nodes))
            for rack in range(math.ceil(self.nodes / per_rack))
        ]

    @property
    def osds(self) -> int:
        """The number of OSDs."""
        return self.nodes * self.osds_per_node

    def osds_of(self, node: int) -> range:
        """Return the OSDs of a host."""
        return range(node * self.osds_per_node, (node + 1) * self.osds_per_node)

    def lost_nodes(self, failures: Sequence[Failure]) -> frozenset[int]:
        """Return the hosts that are lost: whole racks first, then hosts of different racks.

        Hosts of different racks are the worse case where copies are in different racks.

        :raises InvalidFleetError: there are fewer, or none would be left
        """
        count = dict.fromkeys(FailureDomain, 0)
        for one in failures:
            count[one.kind] += one.count
        racks, hosts = count[FailureDomain.RACK], count[FailureDomain.HOST]
        if racks and self.nodes_per_rack is None:
            raise exceptions.InvalidFleetError(
                '--fail rack: the cluster has no racks; set cluster.nodes_per_rack'
            )
        groups = self.racks
        lost = {node for rack in groups[:racks] for node in rack}
        # The first host of each rack, then the second ones.
        others = sorted((node - rack.start, node) for rack in groups[racks:] for node in rack)
        lost |= {node for _, node in others[:hosts]}
        if hosts >= len(others):
            raise exceptions.InvalidFleetError(
                f'--fail: nothing is left of {len(groups)} racks with {self.nodes} hosts'
                if self.nodes_per_rack
                else f'--fail: nothing is left of {self.nodes} hosts'
            )
        return frozenset(lost)

    def lost_domains(self, lost: frozenset[int]) -> tuple[int, int]:
        """Return the failure domains that lost a host, and those that still have one."""
        if self.domain is FailureDomain.HOST:
            return len(lost), self.nodes - len(lost)
        racks = [set(rack) for rack in self.racks]
        return sum(bool(rack & lost) for rack in racks), sum(bool(rack - lost) for rack in racks)

    def hosts_left(self, lost: frozenset[int]) -> list[int]:
        """Return the hosts of each failure domain that still has any."""
        if self.domain is FailureDomain.HOST:
            return [1] * (self.nodes - len(lost))
        return [left for rack in self.racks if (left := len(set(rack) - lost))]
