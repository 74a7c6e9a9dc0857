# SPDX-License-Identifier: Apache-2.0
"""What must be on different hosts, what keeps it apart, and what nothing can keep apart."""

from trove_ceph.hci.inventory import Inventory
from trove_ceph.hci.plan import AffinityRule, Aggregate
from trove_ceph.hci.workload import Workload

#: The aggregate of the hosts, and the property that flavors of databases ask for.
AGGREGATE = 'trove-ceph-hci'
PROPERTY = ('trove_ceph_hci', 'true')
#: What nova-scheduler must have enabled: Nova's own list, and two that it leaves out. The first of
#: them reads the property, and the second finds NUMA nodes with memory and huge pages.
FILTERS = (
    'ComputeFilter',
    'ComputeCapabilitiesFilter',
    'ImagePropertiesFilter',
    'ServerGroupAntiAffinityFilter',
    'ServerGroupAffinityFilter',
    'AggregateInstanceExtraSpecsFilter',
    'NUMATopologyFilter',
)


def rules(inventory: Inventory, workload: Workload) -> tuple[AffinityRule, ...]:
    """Return what the plan keeps apart, and how."""
    return (
        _replicas(inventory, workload),
        _databases(),
        _copies(inventory),
        _primaries(inventory),
    )


def aggregates(inventory: Inventory) -> tuple[Aggregate, ...]:
    """Return the aggregates: one of all hosts that are planned for databases."""
    names = tuple(host.name for host in inventory.hosts)
    return (Aggregate(AGGREGATE, names, (PROPERTY,)),)


def _replicas(inventory: Inventory, workload: Workload) -> AffinityRule:
    hosts, count = len(inventory.hosts), workload.replicas
    replicas = '1 replica' if count == 1 else f'{count} replicas'
    if count:
        need = f'a database and {replicas} need {count + 1} of {hosts} hosts'
    else:
        need = f'no replicas are planned; there are hosts for {hosts - 1}'
    return AffinityRule(
        subject='a database and its replicas',
        mechanism='server group of Nova with the policy anti-affinity, which Trove creates',
        setting='openstack database instance create --locality anti-affinity',
        limit=f'{need}; it is chosen when the database is created, and then no warm guest is used; '
        'Nova refuses a replica for which no host is left; racks are not considered',
    )


def _databases() -> AffinityRule:
    name, value = PROPERTY
    return AffinityRule(
        subject='databases and servers of other kinds',
        mechanism='host aggregate of Nova and the filter AggregateInstanceExtraSpecsFilter',
        setting=f'openstack flavor set --property aggregate_instance_extra_specs:{name}={value} '
        'FLAVOR',
        limit='the filter is off by default: enable it in nova-scheduler '
        '(openstack/nova-scheduler.conf); flavors without the property are not kept off the hosts; '
        'a trait that the aggregate requires keeps them off ([scheduler] '
        'enable_isolated_aggregate_filtering)',
    )


def _copies(inventory: Inventory) -> AffinityRule:
    return AffinityRule(
        subject='the copies of an object',
        mechanism='CRUSH rule of the pool',
        setting='failure_domain: host (tiers file)',
        limit=f'{inventory.copies} copies on {inventory.copies} of {len(inventory.hosts)} hosts; '
        'a database and one copy of its objects may share a host, and fail with it',
    )


def _primaries(inventory: Inventory) -> AffinityRule:
    hosts = len(inventory.hosts)
    return AffinityRule(
        subject='a database and the OSDs with the primary copies of its volume',
        mechanism=None,
        setting=None,
        limit='CRUSH spreads the objects of each volume over all OSDs of the pool, so about '
        f'1/{hosts} of its primary copies are on each host, also on that of the database. Nova '
        'does not know where objects are. The loss of a host stops the databases on it and makes '
        f'another OSD the primary of about 1/{hosts} of the objects of all others, which continue',
    )
