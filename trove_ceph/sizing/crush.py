# SPDX-License-Identifier: Apache-2.0
"""The placement of a cluster's data by CRUSH itself, with Ceph's crushtool.

The map is that of a new cluster: straw2 buckets, the tunables of Jewel (Ceph's "optimal" ones), and
the rule that Ceph makes for a pool of this redundancy. A lost OSD has the weight 0, as one has that
Ceph has marked out.
"""

import collections
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.host import commands
from trove_ceph.sizing.fleet import FailureDomain, Redundancy
from trove_ceph.sizing.topology import Topology

#: OSDs of a placement group; the OSD is -1 where CRUSH found none.
Mapping = tuple[int, ...]
#: CRUSH_ITEM_NONE, which stands for a missing chunk.
_NO_OSD = 2**31 - 1
_TUNABLES = (
    ('choose_local_tries', 0),
    ('choose_local_fallback_tries', 0),
    ('choose_total_tries', 50),
    ('chooseleaf_descend_once', 1),
    ('chooseleaf_vary_r', 1),
    ('chooseleaf_stable', 1),
    ('straw_calc_version', 1),
    ('allowed_bucket_algs', 54),
)
_TYPES = ('osd', 'host', 'rack', 'root')
_MAPPING = re.compile(r'^CRUSH rule 0 x \d+ \[([\d,]*)\]$', re.MULTILINE)
_TIMEOUT_SEC = 1800


@dataclass(frozen=True)
class Spread:
    """How placement groups are spread over OSDs.

    :param incomplete: placement groups with fewer OSDs than copies or chunks
    :param mean: copies or chunks on an OSD
    :param highest: on the OSD with the most
    """

    groups: int
    incomplete: int
    mean: float
    highest: int

    @property
    def deviation(self) -> float:
        """How much more the fullest OSD has than the mean, as a share of the mean."""
        return self.highest / self.mean - 1 if self.mean else 0


def spread(mappings: Sequence[Mapping], chunks: int, osds: int) -> Spread:
    """Return how mappings are spread over a number of OSDs that can hold data."""
    count = collections.Counter(osd for one in mappings for osd in one if osd >= 0)
    return Spread(
        groups=len(mappings),
        incomplete=sum(sum(osd >= 0 for osd in one) < chunks for one in mappings),
        mean=count.total() / osds,
        highest=max(count.values(), default=0),
    )


def map_text(topology: Topology, redundancy: Redundancy, device_bytes: float) -> str:
    """Return a CRUSH map in the form that ``crushtool --compile`` reads.

    :param device_bytes: the size of an OSD; its weight is in TiB
    """
    return '\n'.join([*_map_lines(topology, redundancy, device_bytes / units.Ti), ''])


def _map_lines(topology: Topology, redundancy: Redundancy, weight: float) -> Iterator[str]:
    yield from (f'tunable {name} {value}' for name, value in _TUNABLES)
    yield from (f'device {osd} osd.{osd}' for osd in range(topology.osds))
    yield from (f'type {number} {name}' for number, name in enumerate(_TYPES))
    host_weight = weight * topology.osds_per_node
    for node in range(topology.nodes):
        items = [(f'osd.{osd}', weight) for osd in topology.osds_of(node)]
        yield from _bucket('host', f'host{node}', -2 - node, items)
    tops = []
    if topology.nodes_per_rack:
        for number, rack in enumerate(topology.racks):
            items = [(f'host{node}', host_weight) for node in rack]
            yield from _bucket('rack', f'rack{number}', -2 - topology.nodes - number, items)
            tops.append((f'rack{number}', host_weight * len(rack)))
    else:
        tops = [(f'host{node}', host_weight) for node in range(topology.nodes)]
    yield from _bucket('root', 'default', -1, tops)
    yield from _rule(redundancy, topology.domain)


def _bucket(kind: str, name: str, number: int, items: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield f'{kind} {name} {{'
    yield f'  id {number}'
    yield '  alg straw2'
    yield '  hash 0'
    yield from (f'  item {item} weight {weight:.5f}' for item, weight in items)
    yield '}'


def _rule(redundancy: Redundancy, domain: FailureDomain) -> Iterator[str]:
    """Yield the rule that Ceph itself makes for such a pool."""
    replicated = redundancy.k == 1
    yield 'rule data {'
    yield '  id 0'
    yield f'  type {"replicated" if replicated else "erasure"}'
    yield '  min_size 1'
    yield '  max_size 64'
    if not replicated:
        yield '  step set_chooseleaf_tries 5'
        yield '  step set_choose_tries 100'
    yield '  step take default'
    yield f'  step chooseleaf {"firstn" if replicated else "indep"} 0 type {domain}'
    yield '  step emit'
    yield '}'


class Crushtool:
    """Ceph's crushtool.

    :param run: runs a command and returns its output
    :raises PlacementCheckError: it is not installed
    """

    def __init__(self, run: Callable[..., str] = commands.run):
        if shutil.which('crushtool') is None:
            raise exceptions.PlacementCheckError(
                'crushtool is not installed, and the placement is checked with it: install the '
                'package ceph-base, or leave out --fail and --crush'
            )
        self._run = run

    def place(
        self, text: str, groups: int, chunks: int, lost: Collection[int] = ()
    ) -> list[Mapping]:
        """Return the OSDs of each placement group.

        :param text: the map
        :param lost: OSDs that are out
        :raises PlacementCheckError: crushtool refused the map, or printed something else
        """
        weights = [word for osd in sorted(lost) for word in ('--weight', osd, 0)]
        with tempfile.TemporaryDirectory(prefix='crush') as directory:
            source, compiled = Path(directory) / 'map.txt', Path(directory) / 'map'
            source.write_text(text, encoding='ascii')
            try:
                self._run('crushtool', '--compile', source, '--outfn', compiled)
                output = self._run(
                    *('crushtool', '--infn', compiled, '--test', '--rule', 0, '--pool-id', 1),
                    *('--num-rep', chunks, '--min-x', 0, '--max-x', groups - 1),
                    *(*weights, '--show-mappings'),
                    timeout_sec=_TIMEOUT_SEC,
                )
            except exceptions.StorageCommandError as error:
                raise exceptions.PlacementCheckError(f'the CRUSH map: {error}') from error
        found = [_osds(line) for line in _MAPPING.findall(output)]
        if len(found) != groups:
            raise exceptions.PlacementCheckError(
                f'crushtool printed {len(found)} mappings for {groups} placement groups'
            )
        return found


def _osds(line: str) -> Mapping:
    numbers = (int(word) for word in line.split(',') if word)
    return tuple(-1 if number == _NO_OSD else number for number in numbers)
