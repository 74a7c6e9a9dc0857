# SPDX-License-Identifier: Apache-2.0
"""Rules for all hosts together: copies, healing, failover, and room for the volumes."""

import collections
import ipaddress
from collections.abc import Iterator, Sequence

from oslo_utils import units

from trove_ceph.hci import osds, sources
from trove_ceph.hci.inventory import Inventory
from trove_ceph.hci.plan import Finding, HostPlan, Level
from trove_ceph.hci.workload import RootDisk, Workload
from trove_ceph.reference_figures import FULL, LEAST_SERVERS

#: A device for data is as large as this many of the smallest ones at most.
_MOST_SIZES = 10
_SUPPORTED_HOSTS = 'QCT 2015: three servers at least'


def of_cluster(inventory: Inventory, workload: Workload) -> Iterator[Finding]:
    """Yield what the number of hosts and their networks break."""
    yield from _copies(inventory)
    yield from _host_count(inventory)
    yield from _classes(inventory)
    yield from _device_sizes(inventory)
    yield from _replicas(inventory, workload)
    yield from _cidrs(inventory)


def of_plans(
    inventory: Inventory, workload: Workload, hosts: Sequence[HostPlan]
) -> Iterator[Finding]:
    """Yield what the guests of all hosts break together."""
    yield from _volumes(inventory, workload, hosts)


def failover(capacities: Sequence[int], rooms: Sequence[int], wanted: int) -> Iterator[Finding]:
    """Yield that the databases of a host find no room on the others.

    :param capacities: the guests that each host can carry
    :param rooms: the guests for which each host keeps memory and huge pages
    :param wanted: the guests that each host is to carry
    """
    needed = wanted * len(capacities)
    # A host that is full without a failure breaks another rule.
    if len(capacities) < 2 or min(capacities) < wanted:
        return
    left, pages = (sum(each) - max(each) for each in (capacities, rooms))
    if left < needed:
        observed, what = f'room for {left} without the largest host', 'room'
        advice = 'plan fewer databases on each host, or another host'
    elif pages < needed:
        observed, what = f'huge pages for {pages} without the host with the most', 'huge pages'
        advice = 'plan fewer databases on each host, or hosts that are equal; without --huge-pages '
        advice += 'the memory that is spare serves'
    else:
        return
    yield Finding(
        Level.WARNING,
        'failover-room',
        'workload.databases_per_host',
        f'{needed} databases, and {observed}',
        f'{what} for {needed} databases on {len(capacities) - 1} hosts',
        'a failed host is replaced by the others',
        advice,
    )


def _copies(inventory: Inventory) -> Iterator[Finding]:
    hosts, copies = len(inventory.hosts), inventory.copies
    if copies == 1:
        yield Finding(
            Level.ERROR,
            'copies',
            'copies',
            '1 copy',
            '2 copies or more',
            sources.CEPH_CRUSH,
            'the loss of one device would be the loss of each database; one copy is for the '
            'volumes of replicas, on a tier of their own',
        )
    if hosts < copies:
        yield Finding(
            Level.ERROR,
            'hosts-for-copies',
            'hosts',
            f'{hosts} hosts',
            f'{copies} hosts or more for {copies} copies',
            sources.CEPH_CRUSH,
            'add hosts, or keep fewer copies',
        )
    elif hosts == copies > 1:
        yield Finding(
            Level.WARNING,
            'hosts-for-healing',
            'hosts',
            f'{hosts} hosts for {copies} copies',
            f'{copies + 1} hosts or more',
            sources.CEPH_CRUSH,
            'add a host: while one is away, no other can take its copies',
        )


def _host_count(inventory: Inventory) -> Iterator[Finding]:
    if len(inventory.hosts) < LEAST_SERVERS:
        yield Finding(
            Level.WARNING,
            'hosts',
            'hosts',
            f'{len(inventory.hosts)} hosts',
            f'{LEAST_SERVERS} hosts or more',
            _SUPPORTED_HOSTS,
            'add hosts: monitors need a majority of three',
        )


def _classes(inventory: Inventory) -> Iterator[Finding]:
    """Yield that hosts have devices of different classes; a pool is on one of them."""
    counts = collections.Counter(osds.device_class(host) for host in inventory.hosts)
    if len(counts) > 1:
        yield Finding(
            Level.ERROR,
            'one-class',
            'hosts',
            ' and '.join(f'{counts[kind]} hosts with {kind}' for kind in sorted(counts)),
            'devices of one class on all hosts',
            sources.SEAGATE_POOLS,
            'describe the hosts of each class in a file of their own: a pool for databases and its '
            'copies are on one class',
        )


def _device_sizes(inventory: Inventory) -> Iterator[Finding]:
    """Yield that sizes differ so much that one of them has a wrong unit, or gets all data."""
    devices = [(host, one) for host in inventory.hosts for one in host.data_devices]
    host, smallest = min(devices, key=lambda each: each[1].size_bytes)
    other, largest = max(devices, key=lambda each: each[1].size_bytes)
    if largest.size_bytes > _MOST_SIZES * smallest.size_bytes:
        yield Finding(
            Level.ERROR,
            'device-sizes',
            f'hosts.{host.name}.data_devices',
            f'{smallest.path} has {smallest.size_bytes / units.G:g} GB, and {largest.path} of '
            f'{other.name} has {largest.size_bytes / units.G:g} GB',
            f'devices that are {_MOST_SIZES} times as large as the smallest at most',
            sources.CEPH_WEIGHT,
            'check the units of the sizes; the largest devices would have nearly all data and '
            'requests',
        )


def _replicas(inventory: Inventory, workload: Workload) -> Iterator[Finding]:
    needed = workload.replicas + 1
    if len(inventory.hosts) < needed:
        yield Finding(
            Level.ERROR,
            'hosts-for-replicas',
            'workload.replicas',
            f'{len(inventory.hosts)} hosts for a database and {workload.replicas} replicas',
            f'{needed} hosts or more',
            'Nova, server group with the policy anti-affinity',
            'add hosts, or plan fewer replicas',
        )


def _cidrs(inventory: Inventory) -> Iterator[Finding]:
    public, cluster = inventory.public_network, inventory.cluster_network
    if not public or not cluster:
        return
    one, other = ipaddress.ip_network(public), ipaddress.ip_network(cluster)
    if one.version == other.version and one.overlaps(other):
        yield Finding(
            Level.WARNING,
            'separate-networks',
            'networks.cluster',
            f'{cluster} overlaps {public}',
            'a network apart from the public one',
            sources.INTEL_NETWORKS,
            'give the cluster network addresses of its own',
        )


def _volumes(
    inventory: Inventory, workload: Workload, hosts: Sequence[HostPlan]
) -> Iterator[Finding]:
    guests = sum(host.guests for host in hosts)
    each = workload.volume_bytes
    if workload.root_disk is RootDisk.CEPH:
        each += workload.root_disk_bytes
    needed, usable, allowed = guests * each, inventory.usable_bytes, inventory.most_bytes
    if needed > allowed:
        yield Finding(
            # Ceph stops writes before all space is used.
            Level.ERROR if needed > usable * FULL else Level.WARNING,
            'pool-space',
            'workload.volume',
            f'{guests} guests of {each / units.G:.0f} GB: {needed / units.T:.2f} TB',
            f'{allowed / units.T:.2f} TB or less of {usable / units.T:.2f} TB with '
            f'{inventory.copies} copies',
            f'{sources.QCT_HEALING}; {sources.CEPH_NEARFULL}',
            'plan fewer databases or smaller volumes, or add devices',
        )
